"""Random lives of classic groups: members join, sync, commit, fall silent and come back; coordinators crash.

After every step:
- what the log says is what the machine knows: rebuilt from its records it is the same, compacted or not;
- a partition has one owner per generation, and only members of the generation commit (invariant 13);
- a committed offset is the last one that was acknowledged (invariant 12);
- nobody who waits is forgotten: each ticket is answered once, or handed back when the coordinator goes.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.group_shard import GroupShard
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUPS = st.sampled_from(["g", "g", "g", "h"])  # things happen together, now and then elsewhere
CLIENTS = st.integers(0, 3)
PARTITIONS = st.sampled_from([0, 0, 1])
PROTOCOLS = st.sampled_from([["range"], ["range", "sticky"], ["sticky", "range"], ["sticky"]])
PRODUCERS = st.sampled_from([71, 72])
SESSION_MS, REBALANCE_MS = 6_000, 9_000
GENERATIONS_BACK = st.sampled_from([0, 0, 0, 1])  # a late request, now and then


class Consumer:
    """What one client believes."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.is_leader_of: list[str] = []
        self.waits_for: int | None = None  # the ticket


class ClassicHistories(RuleBasedStateMachine):
    @initialize(max_size=st.sampled_from([2, 100]))
    def begin(self, max_size: int) -> None:
        self.shard = GroupShard(
            GroupSettings(
                group_initial_rebalance_delay_ms=500,
                group_max_size=max_size,
                offsets_retention_minutes=1,
                offsets_retention_check_interval_ms=20_000,
            )
        )
        # The last two clients are static members.
        self.consumers = {
            (group, number): Consumer(f"instance-{number}" if number >= 2 else None)
            for group in ("g", "h")
            for number in range(4)
        }
        self.tickets: dict[int, tuple[str, int]] = {}
        self.issued = 0
        # By group, generation and owner, as the share itself names them: who received it.
        self.owners: dict[tuple[str, bytes], tuple[str, int]] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.pending: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
        self.order = 0
        self.written: dict[tuple[str, int], int] = {}

    # --- requests -------------------------------------------------------------------------------------------

    def ticket(self, group: str, client: int) -> int:
        self.issued += 1
        self.tickets[self.issued] = (group, client)
        return self.issued

    @rule(group=GROUPS, client=CLIENTS, protocols=PROTOCOLS, version=st.sampled_from([2, 9]))
    def join(self, group: str, client: int, protocols: list[str], version: int) -> None:
        consumer = self.consumers[group, client]
        ticket = self.ticket(group, client)
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=consumer.member_id,
            group_instance_id=consumer.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=b"meta") for name in protocols],
        )
        version = 9 if consumer.instance_id else version
        self.answered(ticket, self.shard.ask(request, version, f"c{client}", ticket))

    @rule(group=GROUPS, client=CLIENTS, back=GENERATIONS_BACK)
    def sync(self, group: str, client: int, back: int) -> None:
        consumer = self.consumers[group, client]
        ticket = self.ticket(group, client)
        generation = consumer.generation - back
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=consumer.member_id,
            group_instance_id=consumer.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=f"{generation}:{member}".encode())
                for member in consumer.is_leader_of
            ],
        )
        self.answered(ticket, self.shard.ask(request, 3, f"c{client}", ticket))

    @rule(group=GROUPS, client=CLIENTS, back=GENERATIONS_BACK)
    def heartbeat(self, group: str, client: int, back: int) -> None:
        consumer = self.consumers[group, client]
        request = HeartbeatRequest(
            group_id=group,
            generation_id=consumer.generation - back,
            member_id=consumer.member_id,
            group_instance_id=consumer.instance_id,
        )
        error = self.shard.ask(request, 4).error_code
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            consumer.member_id, consumer.generation = "", -1

    @rule(group=GROUPS, client=CLIENTS)
    def leave(self, group: str, client: int) -> None:
        consumer = self.consumers[group, client]
        identity = MemberIdentity(member_id=consumer.member_id, group_instance_id=consumer.instance_id)
        self.shard.ask(LeaveGroupRequest(group_id=group, members=[identity]), 5)
        consumer.member_id, consumer.generation = "", -1

    @rule(group=GROUPS, client=CLIENTS)
    def restart(self, group: str, client: int) -> None:
        """The client forgets who it was: nobody tells the coordinator."""
        consumer = self.consumers[group, client]
        consumer.member_id, consumer.generation = "", -1

    @rule(group=GROUPS, client=CLIENTS, partition=PARTITIONS, back=GENERATIONS_BACK)
    def commit(self, group: str, client: int, partition: int, back: int) -> None:
        consumer = self.consumers[group, client]
        generation = consumer.generation - back
        self.order += 1
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=consumer.member_id,
            group_instance_id=consumer.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=self.order, committed_metadata=None
                        )
                    ],
                )
            ],
        )
        may_commit = self.may_commit(group, consumer.member_id, generation)
        (topic,) = self.shard.ask(request, 8).topics
        if topic.partitions[0].error_code == ErrorCode.NONE:
            assert may_commit, "a member of another generation has committed"
            self.acknowledged[group, partition] = self.order
            self.written[group, partition] = self.order

    def may_commit(self, group: str, member_id: str, generation: int) -> bool:
        found = self.shard.machine.groups.get(group)
        if found is None or found.is_empty:
            return generation < 0
        assert isinstance(found, ClassicGroup)
        return member_id in found.members and generation == found.generation

    @rule(group=GROUPS, partition=PARTITIONS, producer=PRODUCERS)
    def commit_transactional(self, group: str, partition: int, producer: int) -> None:
        self.order += 1
        request = TxnOffsetCommitRequest(
            transactional_id=str(producer),
            group_id=group,
            producer_id=producer,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=self.order, committed_metadata=None
                        )
                    ],
                )
            ],
        )
        (topic,) = self.shard.ask(request, 3).topics
        assert topic.partitions[0].error_code == ErrorCode.NONE
        self.pending.setdefault(producer, {})[group, partition] = self.order, self.order

    @rule(producer=PRODUCERS, is_committed=st.booleans())
    def end_transaction(self, producer: int, is_committed: bool) -> None:
        self.shard.end_transaction(producer, is_committed)
        for place, (order, offset) in self.pending.pop(producer, {}).items():
            if is_committed and order > self.written.get(place, 0):
                self.written[place], self.acknowledged[place] = order, offset

    @rule(group=GROUPS, partition=PARTITIONS)
    def delete_offset(self, group: str, partition: int) -> None:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name="t", partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                )
            ],
        )
        response = self.shard.ask(request, 0)
        if not response.error_code and not response.topics[0].partitions[0].error_code:
            self.forget(group, partition)

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        if self.shard.apply(self.shard.machine.delete_group(self.shard.now, group)) == ErrorCode.NONE:
            for partition in range(2):
                self.forget(group, partition)

    def forget(self, group: str, partition: int) -> None:
        self.acknowledged.pop((group, partition), None)
        for places in self.pending.values():
            places.pop((group, partition), None)

    @rule(milliseconds=st.sampled_from([1, 400, 2_000, 6_000, 20_000, 90_000]))
    def advance(self, milliseconds: int) -> None:
        before = {place for place in self.acknowledged if self.offset_of(*place) is not None}
        self.shard.advance(milliseconds)
        for place in before:
            if self.offset_of(*place) is None:  # it was too old: what else there is to it, `test_expiry` asks
                del self.acknowledged[place]

    @rule(milliseconds=st.sampled_from([400, 6_000, 90_000]))
    def advance_while_nothing_is_written(self, milliseconds: int) -> None:
        before = len(self.shard.lines)
        self.shard.can_write = False
        self.shard.advance(milliseconds)
        self.shard.can_write = True
        assert len(self.shard.lines) == before

    @rule()
    def crash(self) -> None:
        for ticket in self.shard.crash():
            self.consumers[self.tickets.pop(ticket)].waits_for = None

    @precondition(lambda self: self.shard.lines)
    @rule()
    def compact(self) -> None:
        self.shard.compact()

    @rule(
        group=GROUPS, clients=st.permutations(range(4)), count=st.integers(1, 4), lets_time_pass=st.booleans()
    )
    def gather(self, group: str, clients: list[int], count: int, lets_time_pass: bool) -> None:
        """Some clients do all that is expected of them: chance alone hardly ever makes a group stable."""
        for _ in range(2):  # with the id that it gets, each comes once more
            for client in clients[:count]:
                if self.consumers[group, client].waits_for is None:
                    self.join(group, client, ["range", "sticky"], 9)
                    self.everybody_gets_its_answer_once()
        self.advance(REBALANCE_MS if lets_time_pass else 1_000)
        self.everybody_gets_its_answer_once()
        for client in clients[:count]:
            if self.consumers[group, client].waits_for is None:
                self.sync(group, client, 0)
                self.everybody_gets_its_answer_once()

    # --- answers --------------------------------------------------------------------------------------------

    def answered(self, ticket: int, reply: Any) -> None:
        if reply is None:
            self.consumers[self.tickets[ticket]].waits_for = ticket
        else:
            self.learn(ticket, reply)

    def learn(self, ticket: int, reply: Any) -> None:
        place = self.tickets.pop(ticket)  # KeyError: answered twice
        consumer = self.consumers[place]
        if consumer.waits_for == ticket:
            consumer.waits_for = None
        if isinstance(reply, JoinGroupResponse):
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                consumer.member_id = reply.member_id
            elif reply.error_code == ErrorCode.NONE:
                consumer.member_id, consumer.generation = reply.member_id, reply.generation_id
                is_leader = reply.leader == reply.member_id and not reply.skip_assignment
                consumer.is_leader_of = [member.member_id for member in reply.members] if is_leader else []
            elif reply.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                consumer.member_id, consumer.generation = "", -1
        elif isinstance(reply, SyncGroupResponse) and not reply.error_code and reply.assignment:
            owner = self.owners.setdefault((place[0], reply.assignment), place)
            assert owner == place, "two clients own the same in one generation"

    @invariant()
    def everybody_gets_its_answer_once(self) -> None:
        for ticket, reply in self.shard.take_answers():
            self.learn(ticket, reply)
        assert sorted(self.shard.machine.abandon()) == sorted(self.tickets)

    @invariant()
    def the_log_says_what_the_machine_knows(self) -> None:
        assert self.shard.rebuilt().state() == self.shard.machine.state()

    @invariant()
    def the_last_acknowledged_commit_is_there(self) -> None:
        for place, offset in self.acknowledged.items():
            assert self.offset_of(*place) == offset

    def offset_of(self, group: str, partition: int) -> int | None:
        committed = self.shard.machine.offsets.get(group, "t", partition)
        return None if committed is None else committed[0]

    @invariant()
    def groups_are_sound(self) -> None:
        for group in self.shard.machine.groups.values():
            assert isinstance(group, ClassicGroup)
            if not group.members and group.status is not State.EMPTY:
                # Without members it is empty as soon as its timer rings, which others may join before.
                assert group.is_initial_rebalance or group.pending
            if group.status is State.STABLE:
                self.check_shares(group)

    def check_shares(self, group: ClassicGroup) -> None:
        """Everybody has what its leader gave it in this generation, and the log knows."""
        assert group.recorded is not None
        assert group.recorded.generation == group.generation
        recorded = {member.member_id: bytes(member.assignment) for member in group.recorded.members}
        assert recorded == {name: member.assignment for name, member in group.members.items()}
        owners = [share for share in recorded.values() if share]
        assert len(owners) == len(set(owners))
        assert all(share.startswith(f"{group.generation}:".encode()) for share in owners)

    def teardown(self) -> None:
        """Whoever waits is answered in the end, without anybody's doing but time's."""
        if hasattr(self, "shard"):
            self.shard.advance(10 * 60_000)
            self.everybody_gets_its_answer_once()
            assert self.tickets == {}


TestClassicHistories = ClassicHistories.TestCase
TestClassicHistories.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
