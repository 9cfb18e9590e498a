"""Random lives of a group whose members speak both protocols: it is upgraded and downgraded again and again,
and requests come at any moment, also between a downgrade and the timer that follows it.

After every step the machine's own invariants hold (the harness asks for them), the log says what the machine
knows, and nobody who waits is forgotten. In the end, those who are left settle.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from harness.group_shard import GroupShard
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.sync_group import SyncGroupRequest
from headrace.protocol.versioned import encode_versioned

CLIENTS = st.integers(0, 2)
NEWCOMERS = st.integers(0, 1)
SESSION_MS, REBALANCE_MS = 6_000, 9_000
JOINING, LEAVING = 0, -1
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Client:
    """One of the classic protocol, and what it believes."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def forget(self) -> None:
        self.member_id, self.generation = "", -1


class MigrationHistories(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 500]))
    def begin(self, delay_ms: int) -> None:
        self.shard = GroupShard(
            GroupSettings(
                group_initial_rebalance_delay_ms=delay_ms,
                group_consumer_session_timeout_ms=SESSION_MS,
                group_consumer_assignment_interval_ms=0,
                group_consumer_migration_policy="bidirectional",
            )
        )
        self.clients = [Client(None), Client(None), Client("static")]
        self.epochs = [LEAVING, LEAVING]  # of the members of the new protocol
        self.tickets: dict[int, int] = {}  # the client that waits for it
        self.issued = 0

    def ask(self, client: int, request: Any, version: int) -> None:
        self.issued += 1
        self.tickets[self.issued] = client
        reply = self.shard.ask(request, version, f"c{client}", self.issued)
        if reply is not None:
            self.learn(self.issued, reply)

    def learn(self, ticket: int, reply: Any) -> None:
        client = self.clients[self.tickets.pop(ticket)]  # KeyError: answered twice
        if reply.error_code in GONE:
            client.forget()
        elif isinstance(reply, JoinGroupResponse):
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = reply.member_id
            elif reply.error_code == ErrorCode.NONE:
                client.member_id, client.generation = reply.member_id, reply.generation_id

    # --- what happens ---------------------------------------------------------------------------------------

    @rule(client=CLIENTS, topic=st.sampled_from("ttu"))
    def join(self, client: int, topic: str) -> None:
        """With another subscription than before it begins a rebalance."""
        metadata = encode_versioned(ConsumerProtocolSubscription(topics=[topic]), 3)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.clients[client].member_id,
            group_instance_id=self.clients[client].instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        self.ask(client, request, 9)

    @rule(client=CLIENTS)
    def sync(self, client: int) -> None:
        """A leader gives nothing to anybody."""
        one = self.clients[client]
        request = SyncGroupRequest(
            group_id="g",
            generation_id=one.generation,
            member_id=one.member_id,
            group_instance_id=one.instance_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        self.ask(client, request, 5)

    @rule(client=CLIENTS)
    def heartbeat(self, client: int) -> None:
        self.beat(client)

    def beat(self, client: int) -> ErrorCode:
        one = self.clients[client]
        request = HeartbeatRequest(
            group_id="g",
            generation_id=one.generation,
            member_id=one.member_id,
            group_instance_id=one.instance_id,
        )
        code = ErrorCode(self.shard.ask(request, 4).error_code)
        if code in GONE:
            one.forget()
        return code

    def obey(self, client: int) -> None:
        """Does what is expected of a member."""
        if client in self.tickets.values():
            return
        if self.clients[client].generation >= 0 and self.beat(client) == ErrorCode.NONE:
            self.sync(client)
        else:
            self.join(client, "t")

    @rule(client=CLIENTS)
    def leave(self, client: int) -> None:
        one = self.clients[client]
        identity = MemberIdentity(member_id=one.member_id, group_instance_id=one.instance_id)
        self.shard.ask(LeaveGroupRequest(group_id="g", members=[identity]), 5)
        one.forget()

    @rule(newcomer=NEWCOMERS, stays=st.booleans())
    def change(self, newcomer: int, stays: bool) -> None:
        """A member of the new protocol joins, goes on or leaves."""
        epoch = self.epochs[newcomer]
        epoch = JOINING if epoch == LEAVING else epoch if stays else LEAVING
        is_joining = epoch == JOINING
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=f"new-{newcomer}",
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_joining else -1,
            subscribed_topic_names=["t"] if is_joining else None,
            topic_partitions=[] if is_joining else None,
        )
        reply = self.shard.ask(request, 1)
        self.epochs[newcomer] = LEAVING if reply.error_code else reply.member_epoch

    @rule(client=CLIENTS)
    def come_over(self, client: int) -> None:
        """The last of the new protocol leaves while a classic member joins: what chance seldom does."""
        for newcomer in range(2):
            if self.epochs[newcomer] != LEAVING:
                self.change(newcomer, stays=False)
        self.join(client, "u")

    @rule(milliseconds=st.sampled_from([0, 0, 1, 400, 2_000, 7_000]))
    def advance(self, milliseconds: int) -> None:
        self.shard.advance(milliseconds)

    @rule(milliseconds=st.sampled_from([0, 400, 7_000]))
    def advance_while_nothing_is_written(self, milliseconds: int) -> None:
        before = len(self.shard.lines)
        self.shard.can_write = False
        self.shard.advance(milliseconds)
        self.shard.can_write = True
        assert len(self.shard.lines) == before

    @rule()
    def crash(self) -> None:
        for ticket in self.shard.crash():
            del self.tickets[ticket]

    # --- what holds -----------------------------------------------------------------------------------------

    @invariant()
    def everybody_gets_its_answer_once(self) -> None:
        for ticket, reply in self.shard.take_answers():
            self.learn(ticket, reply)
        assert sorted(self.shard.machine.abandon()) == sorted(self.tickets)

    @invariant()
    def the_log_says_what_the_machine_knows(self) -> None:
        assert self.shard.rebuilt().state() == self.shard.machine.state()

    def teardown(self) -> None:
        if not hasattr(self, "shard"):
            return
        for newcomer in range(2):
            if self.epochs[newcomer] != LEAVING:
                self.change(newcomer, stays=False)
        for _ in range(40):
            for client in range(3):
                self.obey(client)
                self.everybody_gets_its_answer_once()
            self.shard.advance(500)
            self.everybody_gets_its_answer_once()
        assert self.tickets == {}
        group = self.shard.machine.groups["g"]
        assert isinstance(group, ClassicGroup)
        assert group.status is State.STABLE
        assert group.members.keys() == {client.member_id for client in self.clients}
        assert {client.generation for client in self.clients} == {group.generation}


TestMigrationHistories = MigrationHistories.TestCase
TestMigrationHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
