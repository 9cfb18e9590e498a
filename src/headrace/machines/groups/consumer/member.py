"""One member of a consumer group, as the records describe it: an immutable value.

    STABLE ── a new target takes partitions away ──> UNREVOKED_PARTITIONS ── it gave them up ─┐
      ^ └──── a new target adds some that others still hold ──> UNRELEASED_PARTITIONS <───────┤
      └──────────────────────── all are free ─────────────────────────┘ <── nothing to wait for ┘

A member that must give partitions up stays at its epoch until it has. Only then does it move to the epoch of
the target, with all partitions that nobody else holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from headrace.protocol.coordinator_records.groups import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentPartitions,
)

# The epoch at which the member got each partition, by topic id and partition (KIP-1251: it may commit with
# any epoch since then). A value: never changed once made.
Partitions = Mapping[bytes, Mapping[int, int]]
NO_PARTITIONS: Partitions = {}

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # it will be back under the same instance id


class MemberState(IntEnum):
    """As the records number it."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127  # written by a newer broker

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(slots=True, frozen=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()  # subscribed by name, sorted
    regex: str = ""  # subscribed by pattern; empty: none
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None  # it speaks the classic protocol
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)  # taken away, and not yet given up

    def at_epoch(self, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions) -> Member:
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> Member:
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(sorted(value.subscribed_topic_names)),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=read_partitions(value.assigned_partitions, value.member_epoch),
            revoking=read_partitions(value.partitions_pending_revocation, value.member_epoch),
        )

    def assignment(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=write_partitions(self.assigned),
            partitions_pending_revocation=write_partitions(self.revoking),
        )


def write_partitions(partitions: Partitions) -> list[CurrentPartitions]:
    written: list[CurrentPartitions] = []
    for topic, epochs in sorted(partitions.items()):
        numbers = sorted(epochs)
        written.append(
            CurrentPartitions(
                topic_id=topic, partitions=numbers, assignment_epochs=[epochs[number] for number in numbers]
            )
        )
    return written


def read_partitions(written: Iterable[CurrentPartitions], member_epoch: int) -> Partitions:
    """Brokers before Kafka 4.3 did not write when a partition was assigned: the member's epoch is the
    latest.
    """
    partitions: dict[bytes, dict[int, int]] = {}
    for topic in written:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        partitions[topic.topic_id] = dict(zip(topic.partitions, epochs))
    return partitions
