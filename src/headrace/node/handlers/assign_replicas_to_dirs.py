"""AssignReplicasToDirs, key 73, version 0: a broker says in which log directories its replicas are."""

from headrace.base.ids import TopicId
from headrace.base.time import Now
from headrace.machines.metadata.controller.allocations import ReplicaPlace
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.node.broker_watch import BrokerWatch
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryResult,
    PartitionResult,
    TopicResult,
)


class AssignReplicasToDirs:
    def __init__(self, metadata: MetadataLog, decisions: ControllerDecisions, watch: BrokerWatch) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._watch = watch

    def decide(self, now: Now, body: AssignReplicasToDirsRequest) -> tuple[AssignReplicasToDirsResponse, int]:
        places = [
            ReplicaPlace(TopicId(bytes(topic.topic_id)), partition.partition_index, bytes(directory.id))
            for directory in body.directories
            for topic in directory.topics
            for partition in topic.partitions
        ]
        try:
            decision = self._decisions.assign_directories(body.broker_id, body.broker_epoch, places)
            offset = self._watch.propose(now, decision)  # a replica that is found again may lead
        except Refusal as refusal:
            return AssignReplicasToDirsResponse(error_code=refusal.code), self._metadata.end_offset
        except FAULTS as fault:
            return AssignReplicasToDirsResponse(error_code=code_of(fault)), self._metadata.end_offset
        assigned = iter(decision.reply)
        return (
            AssignReplicasToDirsResponse(
                directories=[
                    DirectoryResult(
                        id=directory.id,
                        topics=[
                            TopicResult(
                                topic_id=topic.topic_id,
                                partitions=[
                                    PartitionResult(
                                        partition_index=partition.partition_index,
                                        error_code=next(assigned).error,
                                    )
                                    for partition in topic.partitions
                                ],
                            )
                            for topic in directory.topics
                        ],
                    )
                    for directory in body.directories
                ]
            ),
            offset,
        )
