"""Leader, ISR and eligible leader replicas of one partition after a change (KIP-966).

A leader comes from the ISR. If the ISR is empty, it comes from the ELR: replicas that left the ISR while it
was smaller than min.insync.replicas, and so have every record below the high watermark. If both are empty,
the last known leader is taken once it is back, and any live replica only where the topic allows unclean
elections; both are reported as unclean. Without the feature, the last member of the ISR stays in it.
"""

from collections.abc import Callable, Collection
from enum import IntEnum

from headrace.machines.metadata.controller.topic_rules import TopicRules
from headrace.machines.metadata.image import NO_LEADER, PartitionState
from headrace.protocol.metadata_records import PartitionChangeRecord

RECOVERED = 0
RECOVERING = 1  # the leader may lack records that were acknowledged

CanLead = Callable[[int], bool]


class Preference(IntEnum):
    """Which leader an election looks for."""

    PRESENT = 0  # the present leader, if it can go on
    FIRST = 1  # the first replica, called the preferred leader


def settled(
    partition: PartitionState,
    isr: tuple[int, ...],
    rules: TopicRules,
    can_lead: CanLead,
    *,
    lost: Collection[int] = (),
    preference: Preference = Preference.PRESENT,
    recovery: int | None = None,
) -> tuple[PartitionState, bool]:
    """The partition with this ISR, with the leader that follows from it; and whether that leader may lack
    acknowledged records. `lost` are replicas that may have lost records, and so leave the ELR.

    The partition epoch stays: it rises when the record of the change is replayed.
    """
    eligible = eligible_replicas(partition, isr, rules, lost)
    leader, is_unclean = elected(partition, isr, eligible, rules, can_lead, preference)
    if recovery is None:
        recovery = partition.leader_recovery_state
    if is_unclean:
        isr, eligible, recovery = (leader,), (), RECOVERING
    elif not isr and leader != NO_LEADER:
        isr = (leader,)
        eligible = eligible_replicas(partition, isr, rules, lost)
    elif not isr and not rules.tracks_eligible:
        isr = partition.isr
    after = PartitionState(
        partition.replicas,
        isr,
        leader,
        partition.leader_epoch + (leader != partition.leader),
        partition.partition_epoch,
        partition.directories,
        partition.removing_replicas,
        partition.adding_replicas,
        eligible,
        last_known_leader(partition, isr, leader, rules),
        recovery,
    )
    return after, is_unclean


def eligible_replicas(
    partition: PartitionState, isr: tuple[int, ...], rules: TopicRules, lost: Collection[int]
) -> tuple[int, ...]:
    """Those that leave an ISR that is too small join the ELR; the ELR ends when the ISR is large enough."""
    if not rules.tracks_eligible or len(isr) >= min(rules.min_insync_replicas, len(partition.replicas)):
        return ()
    before = {*partition.eligible_leader_replicas, *partition.isr}
    return tuple(
        replica
        for replica in partition.replicas
        if replica in before and replica not in isr and replica not in lost
    )


def elected(
    partition: PartitionState,
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    rules: TopicRules,
    can_lead: CanLead,
    preference: Preference,
) -> tuple[int, bool]:
    """The leader, and whether it may lack acknowledged records."""
    complete = isr or eligible
    candidates = [partition.leader, *partition.replicas]
    if preference is Preference.FIRST:
        candidates.insert(0, partition.replicas[0])
    for replica in candidates:
        if replica in complete and can_lead(replica):
            return replica, False
    if not complete and len(partition.last_known_elr) == 1:
        (last,) = partition.last_known_elr
        if rules.tracks_eligible and last in partition.replicas and can_lead(last):
            return last, True
    if rules.allows_unclean:
        for replica in partition.replicas:
            if can_lead(replica):
                return replica, True
    return NO_LEADER, False


def last_known_leader(
    partition: PartitionState, isr: tuple[int, ...], leader: int, rules: TopicRules
) -> tuple[int, ...]:
    """Remembered from the moment the ISR is empty, until somebody leads."""
    if not rules.tracks_eligible:
        return partition.last_known_elr
    if leader != NO_LEADER:
        return ()
    if not isr and partition.leader != NO_LEADER:
        return (partition.leader,)
    return partition.last_known_elr


def change_record(
    topic_id: bytes, index: int, before: PartitionState, after: PartitionState
) -> PartitionChangeRecord:
    """The record that turns one into the other. It names the leader when the leader epoch rises."""
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    if after.isr != before.isr:
        record.isr = list(after.isr)
    if after.leader_epoch != before.leader_epoch:
        record.leader = after.leader
    if after.eligible_leader_replicas != before.eligible_leader_replicas:
        record.eligible_leader_replicas = list(after.eligible_leader_replicas)
    if after.last_known_elr != before.last_known_elr:
        record.last_known_elr = list(after.last_known_elr)
    if after.leader_recovery_state != before.leader_recovery_state:
        record.leader_recovery_state = after.leader_recovery_state
    if after.directories != before.directories:
        record.directories = list(after.directories)
    return record
