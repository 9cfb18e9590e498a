"""Migration of a group between the protocols while its members are active.

Upgrade: the first member of the consumer protocol joins a classic group of consumers. The other members stay:
in the consumer group they continue with JoinGroup, SyncGroup and Heartbeat (`classic_members.py`), and the
coordinator assigns for them. Downgrade: the last member of the consumer protocol has left, and the others are
a classic group again, which begins with a rebalance. An empty group of one protocol is replaced by a group of
the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.machines.groups.assignors import Target
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from headrace.machines.groups.classic.group import Member as ClassicMember
from headrace.machines.groups.consumer import embedded, records
from headrace.machines.groups.consumer.errors import GroupError
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.timing import await_nothing, await_session
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import (
    ClassicMemberMetadata,
    ClassicProtocol,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from headrace.protocol.errors import ErrorCode, MalformedMessage

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups

UPGRADES = ("upgrade", "bidirectional")
DOWNGRADES = ("downgrade", "bidirectional")


def group_to_join(machine: Groups, group_id: str, written: list[Record]) -> ConsumerGroup:
    """The group as it is, as it will be once the written records are replayed, or a new one."""
    group = machine.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is None:
        return ConsumerGroup(group_id)
    if not isinstance(group, ClassicGroup):
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id!r} is not a consumer group")
    if group.is_empty:
        written += group.tombstones()
        return ConsumerGroup(group_id)
    return _upgraded(machine, group, written)


# --- classic to consumer ------------------------------------------------------------------------------------


def _upgraded(machine: Groups, classic: ClassicGroup, written: list[Record]) -> ConsumerGroup:
    policy = machine.settings.group_consumer_migration_policy.lower()
    if policy not in UPGRADES:
        raise _cannot_upgrade(classic, "online upgrades are disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _cannot_upgrade(classic, "it is not a group of consumers")
    if len(classic.members) > machine.settings.group_consumer_max_size:
        raise _cannot_upgrade(classic, "it has more members than a consumer group may have")
    try:
        members = [_upgraded_member(machine, classic, member) for member in classic.members.values()]
    except MalformedMessage as error:
        raise _cannot_upgrade(classic, "what its members say or have cannot be read") from error

    group_id, epoch = classic.group_id, _epoch(classic)
    made = [records.member_metadata(group_id, member) for member in members]
    # No hash: whatever the joining member wants, there is a new epoch, and members that were waiting for
    # their first assignment get one.
    made.append(records.group_epoch(group_id, epoch, 0))
    made += [records.member_target(group_id, member.member_id, _numbers(member)) for member in members]
    made.append(records.target_epoch(group_id, epoch, 0))
    made += [records.current_assignment(group_id, member) for member in members]
    written += classic.tombstones()
    written += made
    group = ConsumerGroup(group_id)
    for record in made:
        group.replay(record)
    return group


def take_over_classic(machine: Groups, now: Now, group: ConsumerGroup, decision: Decision) -> None:
    """Answers the waiting requests of the classic group: they have to join again. Called last, when
    nothing can fail.
    """
    group_id = group.group_id
    classic = machine.groups.get(group_id)
    if not isinstance(classic, ClassicGroup):
        return
    for waiting in classic.members.values():
        rebalance.dismiss(classic, waiting, ErrorCode.REBALANCE_IN_PROGRESS, decision)
    for member_id in [*classic.members, *classic.pending]:
        machine.timers.cancel((rebalance.SESSION, group_id, member_id))
    for kind in (rebalance.JOIN, rebalance.SYNC, rebalance.ADOPT):
        machine.timers.cancel((kind, group_id, ""))
    for member in group.members.values():
        await_session(machine, now, group_id, member)


def _upgraded_member(machine: Groups, classic: ClassicGroup, member: ClassicMember) -> Member:
    protocol = classic.protocol or classic.voted_protocol()
    subscription = embedded.read_subscription(member.metadata_of(protocol))
    epoch = _epoch(classic)
    assigned: dict[bytes, dict[int, int]] = {}
    if member.assignment:
        assignment = embedded.read_assignment(member.assignment)
        if assignment.user_data:
            raise _cannot_upgrade(classic, "a custom assignor keeps data in its assignments")
        for topic in assignment.assigned_partitions:
            topic_id = machine.topics.id_of(topic.topic)
            if topic_id is not None and topic.partitions:
                assigned[topic_id] = dict.fromkeys(topic.partitions, epoch)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols
            ],
        ),
        epoch=epoch,
        previous_epoch=epoch,
        assigned=assigned,
    )


def _epoch(classic: ClassicGroup) -> int:
    """Without a generation yet it begins where new groups do: a member at 0 would be one that joins."""
    return max(classic.generation, 1)


def _numbers(member: Member) -> Target:
    return {topic: tuple(sorted(epochs)) for topic, epochs in member.assigned.items()}


def _cannot_upgrade(classic: ClassicGroup, reason: str) -> GroupError:
    message = f"the classic group {classic.group_id!r} cannot become a consumer group: {reason}"
    return GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message)


# --- consumer to classic ------------------------------------------------------------------------------------


def may_downgrade(machine: Groups, group: ConsumerGroup, leaving: Sequence[Member]) -> bool:
    """Whether, without these, members are left and all of them use the classic protocol."""
    left = len(group.members) - len(leaving)
    leaving_classic = sum(member.classic is not None for member in leaving)
    return (
        0 < left <= machine.settings.group_max_size
        and group.classic_count - leaving_classic == left
        and machine.settings.group_consumer_migration_policy.lower() in DOWNGRADES
    )


def may_replace_and_downgrade(machine: Groups, group: ConsumerGroup, replaced: Member) -> bool:
    """The same where the one that leaves comes back with the classic protocol."""
    return (
        replaced.classic is None
        and group.classic_count == len(group.members) - 1
        and len(group.members) <= machine.settings.group_max_size
        and machine.settings.group_consumer_migration_policy.lower() in DOWNGRADES
    )


def downgrade(
    machine: Groups,
    now: Now,
    group: ConsumerGroup,
    leaving: Sequence[Member],
    decision: Decision,
    joining: Member | None = None,
) -> None:
    """`joining` takes the place of one that leaves: a static member that came back with the classic
    protocol.
    """
    gone = {member.member_id for member in leaving}
    staying = [member for member in group.members.values() if member.member_id not in gone]
    targets: dict[str, Target] = {
        member.member_id: group.targets.get(member.member_id, {}) for member in staying
    }
    if joining is not None:
        staying.append(joining)
        targets[joining.member_id] = group.targets.get(leaving[0].member_id, {})
    decision.records += group.tombstones()
    decision.records.append(_classic_record(machine, now, group, staying, targets))
    for member_id in group.members:
        await_nothing(machine, group.group_id, member_id)
    # The classic group exists once the record is replayed: then its sessions and its rebalance begin.
    machine.timers.set((rebalance.ADOPT, group.group_id, ""), now.mono)


def _classic_record(
    machine: Groups, now: Now, group: ConsumerGroup, staying: Sequence[Member], targets: Mapping[str, Target]
) -> Record:
    protocol = embedded.common_protocol(staying)
    members = []
    for member in staying:
        assert member.classic is not None
        subscription = embedded.metadata_of(member.classic, protocol)
        members.append(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.classic.session_timeout_ms,
                subscription=subscription,
                assignment=embedded.write_assignment(targets[member.member_id], subscription, machine.topics),
            )
        )
    value = GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=None,  # a coordinator that reads this knows that the group has to begin with a rebalance
        current_state_timestamp=now.wall_ms,
        members=members,
    )
    return Record(GroupMetadataKey(group=group.group_id), value)
