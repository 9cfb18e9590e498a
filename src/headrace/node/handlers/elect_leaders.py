"""ElectLeaders, key 43, versions 0–2: elects the preferred replica, or any live one, as leader.

Null topics are all; then partitions that need no election are left out of the answer, while their topics are
in it, as in Kafka.
"""

from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.elect_leaders import ElectedPartition, Election
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.broker_watch import BrokerWatch
from headrace.node.metadata_log import MetadataLog
from headrace.node.proposals import propose
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


class ElectLeaders:
    def __init__(
        self,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        watch: BrokerWatch,
        access: Access,
    ) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._watch = watch
        self._access = access

    def handle(self, request: Request) -> ElectLeadersResponse | Parked:
        body: ElectLeadersRequest = request.body
        if not self._access.allows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            return refused(
                request.version, body, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed."
            )
        if body.election_type not in tuple(Election):
            return refused(
                request.version,
                body,
                ErrorCode.INVALID_REQUEST,
                f"Unknown election type {body.election_type}",
            )
        image = self._decisions.image
        asked = (
            [(topic.name, list(topic.partitions)) for topic in image.topics.values()]
            if body.topic_partitions is None
            else [(topic.topic, topic.partitions) for topic in body.topic_partitions]
        )
        decision = self._decisions.elect_leaders(
            Election(body.election_type), [(topic, index) for topic, indexes in asked for index in indexes]
        )
        offset = propose(self._watch, request.now, decision)
        elected = iter(decision.reply)
        results = []
        for topic, indexes in asked:
            partitions = [next(elected) for _ in indexes]
            if body.topic_partitions is None:
                partitions = [one for one in partitions if one.error is not ErrorCode.ELECTION_NOT_NEEDED]
            results.append(
                ReplicaElectionResult(topic=topic, partition_result=[told(one) for one in partitions])
            )
        return self._metadata.when_known(
            request, offset, ElectLeadersResponse(replica_election_results=results)
        )


def told(partition: ElectedPartition) -> PartitionResult:
    return PartitionResult(
        partition_id=partition.index, error_code=partition.error, error_message=partition.message
    )


def refused(version: int, body: ElectLeadersRequest, code: ErrorCode, message: str) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code if version >= 1 else ErrorCode.NONE,  # version 0 has it only by partition
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    told(ElectedPartition(topic.topic, index, code, message)) for index in topic.partitions
                ],
            )
            for topic in body.topic_partitions or ()
        ],
    )
