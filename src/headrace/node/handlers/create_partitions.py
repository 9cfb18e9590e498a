"""CreatePartitions, key 37, versions 0–3: more partitions for topics, a result for each of them."""

from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.create_partitions import GrownTopic, MorePartitions
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.partitions import INTERNAL_TOPICS
from headrace.node.proposals import propose
from headrace.node.quotas import Quotas
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_SINCE = 3  # clients of this version know THROTTLING_QUOTA_EXCEEDED

# A key's coordinator is the partition that its hash names: with another number of partitions its records
# would be in one where nobody looks for them. (Kafka takes the request, and its next start forgets groups.)
KEPT = "The number of partitions of internal topic %s cannot change: its coordinators would lose their keys."


class CreatePartitions:
    def __init__(
        self,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        access: Access,
        quotas: Quotas,
    ) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._access = access
        self._quotas = quotas

    def handle(self, request: Request) -> CreatePartitionsResponse | Parked:
        body: CreatePartitionsRequest = request.body
        refused: list[GrownTopic] = []
        wanted: list[MorePartitions] = []
        for topic in body.topics:
            if not self._access.allows(request, Operation.ALTER, Resource.TOPIC, topic.name):
                refused.append(GrownTopic(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif topic.name in INTERNAL_TOPICS:
                refused.append(GrownTopic(topic.name, ErrorCode.INVALID_TOPIC_EXCEPTION, KEPT % topic.name))
            else:
                wanted.append(MorePartitions(topic.name, topic.count, assignments(topic)))
        quota = self._quotas.mutation(request, STRICT_SINCE)
        decision = self._decisions.create_partitions(
            wanted, validate_only=body.validate_only, admits=quota.admits
        )
        offset = propose(self._metadata, request.now, decision)
        response = CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=grown.name, error_code=grown.error, error_message=grown.message
                )
                for grown in refused + decision.reply
            ]
        )
        self._quotas.mutated(quota, response)
        return self._metadata.when_known(request, offset, response)


def assignments(topic: CreatePartitionsTopic) -> list[list[int]] | None:
    if topic.assignments is None:
        return None
    return [assignment.broker_ids for assignment in topic.assignments]
