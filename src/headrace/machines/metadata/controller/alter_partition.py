"""Decision about changes of an ISR that the leader of a partition asks for (AlterPartition).

Each partition is changed or refused on its own. Every member of the new ISR must be active, be the run of the
broker that the leader means (KIP-903), and have its replica in a log directory that has not failed. A request
that is granted raises the partition epoch, also if it asks for the present ISR, which Kafka ignores: copies
of earlier requests that still travel are void.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.base.ids import TopicId
from headrace.machines.metadata.controller.brokers import RulesOf, check_epoch
from headrace.machines.metadata.controller.decision import MetadataDecision, Refusal
from headrace.machines.metadata.controller.leadership import RECOVERED, RECOVERING
from headrace.machines.metadata.controller.partition_changes import PartitionChanges, is_online
from headrace.machines.metadata.image import BrokerState, ClusterImage, PartitionState
from headrace.protocol.errors import ErrorCode

ANY_EPOCH = -1


@dataclass(slots=True)
class IsrMember:
    broker: int
    epoch: int = ANY_EPOCH


@dataclass(slots=True)
class IsrChange:
    topic_id: TopicId
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[IsrMember]
    recovery: int = RECOVERED


@dataclass(slots=True)
class AlteredPartition:
    topic_id: TopicId
    index: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partition: PartitionState | None = None  # as it will be, if there is no error


def alter_partitions(
    image: ClusterImage, broker: int, broker_epoch: int, wanted: Sequence[IsrChange], rules_of: RulesOf
) -> MetadataDecision[list[AlteredPartition]]:
    """Refusal: the broker has registered again since."""
    check_epoch(image, broker, broker_epoch)
    changes = PartitionChanges(image, rules_of)
    altered = []
    for change in wanted:
        result = AlteredPartition(change.topic_id, change.index)
        altered.append(result)
        try:
            result.partition = alter(image, broker, change, changes)
            if result.partition.leader != broker:
                result.error = ErrorCode.NEW_LEADER_ELECTED
        except Refusal as refusal:
            result.error, result.message = refusal.code, refusal.message
    return MetadataDecision(altered, changes.records(), changes.unclean_elections)


def alter(image: ClusterImage, broker: int, change: IsrChange, changes: PartitionChanges) -> PartitionState:
    """The partition after the change, with the partition epoch that its record gives it."""
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    before = topic.partitions.get(change.index)
    if before is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this partition.")
    check_epochs(broker, change, before)
    check_isr(broker, change, before)
    check_members(image, broker, change, before)
    isr = tuple(member.broker for member in change.isr)
    # a leader without itself in the ISR has found damage in its log, and may lack records that others have
    lost = () if broker in isr else (broker,)
    after = changes.settle((topic.id, change.index), isr, lost=lost, recovery=change.recovery)
    changes.renew((topic.id, change.index))
    return replace(after, partition_epoch=before.partition_epoch + 1)


def check_epochs(broker: int, change: IsrChange, partition: PartitionState) -> None:
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        # the leader has seen a change that we have not: another node is the controller
        raise Refusal(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
    if change.leader_epoch < partition.leader_epoch:
        raise Refusal(ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch in the request is older than ours.")
    if broker != partition.leader:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker {broker} does not lead this partition.")
    if change.partition_epoch < partition.partition_epoch:
        raise Refusal(
            ErrorCode.INVALID_UPDATE_VERSION, "The partition has changed since: its partition epoch is newer."
        )


def check_isr(broker: int, change: IsrChange, partition: PartitionState) -> None:
    isr = [member.broker for member in change.isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{isr} is not a set of replicas of this partition.")
    if not isr:
        raise Refusal(ErrorCode.INVALID_REQUEST, "The ISR must not be empty.")
    if change.recovery not in (RECOVERED, RECOVERING):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown leader recovery state {change.recovery}")
    if change.recovery == RECOVERING:
        if partition.leader_recovery_state == RECOVERED:
            raise Refusal(ErrorCode.INVALID_REQUEST, "A leader that has recovered cannot be recovering.")
        if len(isr) > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, "The ISR of a leader that recovers is the leader alone.")


def check_members(image: ClusterImage, leader: int, change: IsrChange, partition: PartitionState) -> None:
    for member in change.isr:
        state = image.brokers.get(member.broker)
        reason = ineligible(state, member)
        if reason is None and state is not None and member.broker != leader:
            reason = None if is_online(partition, state) else "the log directory of its replica has failed"
        if reason is not None:
            raise Refusal(
                ErrorCode.INELIGIBLE_REPLICA, f"Broker {member.broker} cannot be in the ISR: {reason}"
            )


def ineligible(state: BrokerState | None, member: IsrMember) -> str | None:
    if state is None:
        return "it is not registered"
    if state.in_controlled_shutdown:
        return "it is shutting down"
    if state.is_fenced:
        return "it is fenced"
    if member.epoch not in (ANY_EPOCH, state.epoch):
        return f"it has registered again since, with epoch {state.epoch} instead of {member.epoch}"
    return None
