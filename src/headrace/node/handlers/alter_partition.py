"""AlterPartition, key 56, versions 2–3: a leader asks for another ISR. From version 3 with broker epochs."""

from headrace.base.ids import TopicId
from headrace.base.time import Now
from headrace.machines.metadata.controller.alter_partition import AlteredPartition, IsrChange, IsrMember
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.node.broker_watch import BrokerWatch
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionResult,
    TopicResult,
)


class AlterPartition:
    def __init__(self, metadata: MetadataLog, decisions: ControllerDecisions, watch: BrokerWatch) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._watch = watch

    def decide(self, now: Now, body: AlterPartitionRequest) -> tuple[AlterPartitionResponse, int]:
        wanted = [
            IsrChange(
                TopicId(bytes(topic.topic_id)),
                partition.partition_index,
                partition.leader_epoch,
                partition.partition_epoch,
                members(partition),
                partition.leader_recovery_state,
            )
            for topic in body.topics
            for partition in topic.partitions
        ]
        try:
            decision = self._decisions.alter_partitions(body.broker_id, body.broker_epoch, wanted)
            offset = self._watch.propose(now, decision)
        except Refusal as refusal:
            return AlterPartitionResponse(error_code=refusal.code), self._metadata.end_offset
        except FAULTS as fault:
            return AlterPartitionResponse(error_code=code_of(fault)), self._metadata.end_offset
        topics: dict[TopicId, TopicResult] = {}
        for altered in decision.reply:
            topic = topics.setdefault(altered.topic_id, TopicResult(topic_id=altered.topic_id))
            topic.partitions.append(told(altered))
        return AlterPartitionResponse(topics=list(topics.values())), offset


def members(partition: PartitionData) -> list[IsrMember]:
    if partition.new_isr_with_epochs:
        return [IsrMember(one.broker_id, one.broker_epoch) for one in partition.new_isr_with_epochs]
    return [IsrMember(broker) for broker in partition.new_isr]


def told(altered: AlteredPartition) -> PartitionResult:
    state = altered.partition
    if state is None or altered.error is not ErrorCode.NONE:
        return PartitionResult(partition_index=altered.index, error_code=altered.error)
    return PartitionResult(
        partition_index=altered.index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=state.partition_epoch,
    )
