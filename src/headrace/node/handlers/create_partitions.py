"""CreatePartitions, key 37, versions 0–3: more partitions for topics, a result for each of them."""

from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.create_partitions import GrownTopic, MorePartitions
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.metadata_log import CommittedReply, MetadataLog, propose
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


class CreatePartitions:
    def __init__(
        self,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        access: Access,
    ) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._access = access

    def handle(self, request: Request) -> CreatePartitionsResponse | CommittedReply:
        body: CreatePartitionsRequest = request.body
        refused: list[GrownTopic] = []
        wanted: list[MorePartitions] = []
        for topic in body.topics:
            if self._access.allows(request, Operation.ALTER, Resource.TOPIC, topic.name):
                wanted.append(MorePartitions(topic.name, topic.count, assignments(topic)))
            else:
                refused.append(GrownTopic(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        decision = self._decisions.create_partitions(wanted, validate_only=body.validate_only)
        offset = propose(self._metadata, request.now, decision)
        response = CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=grown.name, error_code=grown.error, error_message=grown.message
                )
                for grown in refused + decision.reply
            ]
        )
        return self._metadata.when_committed(request, offset, response)


def assignments(topic: CreatePartitionsTopic) -> list[list[int]] | None:
    if topic.assignments is None:
        return None
    return [assignment.broker_ids for assignment in topic.assignments]
