"""A member of the consumer protocol: what its heartbeats say, and what it makes of the answers."""

from __future__ import annotations

import pytest

from harness.group_simulation import partitions
from harness.scripted_member import BOTH, TOPIC_ID, ScriptedMember, failure
from headrace.client.errors import ConnectionLost, UnsupportedByBroker
from headrace.client.membership.events import (
    Assigned,
    Failed,
    Lost,
    Revoked,
)
from headrace.client.membership.subscription import Subscription
from headrace.client.settings.consumer import GroupProtocol
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


class TestConsumerProtocol:
    def joined(self) -> tuple[ScriptedMember, ConsumerGroupHeartbeatRequest]:
        """A member with both partitions, which it has acknowledged."""
        member = ScriptedMember(protocol=GroupProtocol.CONSUMER, server_assignor="uniform")
        member.group.subscribe(member.now, Subscription(frozenset({"a"})))
        first, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(epoch=3, partitions=[0, 1]))
        assert member.take() == [Assigned(BOTH)]
        told, ticket = member.next(ConsumerGroupHeartbeatRequest)
        assert told.topic_partitions == [TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
        member.answer(ticket, self.told(epoch=3))
        return member, first

    def told(
        self, code: int = 0, *, epoch: int = 0, partitions: list[int] | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        share = None
        if partitions is not None:
            share = Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=partitions)])
        return ConsumerGroupHeartbeatResponse(
            error_code=code, member_epoch=epoch, heartbeat_interval_ms=2000, assignment=share
        )

    def test_says_everything_once_and_then_what_is_new(self) -> None:
        member, first = self.joined()
        assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["a"], [])
        assert (first.server_assignor, first.rebalance_timeout_ms) == ("uniform", 300_000)
        joined_at = member.now
        later, _ = member.next(ConsumerGroupHeartbeatRequest)
        assert member.now - joined_at == pytest.approx(2.0)
        assert (later.member_epoch, later.subscribed_topic_names, later.topic_partitions) == (3, None, None)
        assert (later.server_assignor, later.rebalance_timeout_ms) == (None, -1)

    def test_keeps_to_the_interval_that_the_broker_wants(self) -> None:
        """From the first answer on: ours may be longer than the session."""
        member = ScriptedMember(protocol=GroupProtocol.CONSUMER)
        member.group.subscribe(member.now, Subscription(frozenset({"a"})))
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(epoch=3))
        joined_at = member.now
        member.next(ConsumerGroupHeartbeatRequest)
        assert member.now - joined_at == pytest.approx(2.0)

    def test_says_everything_again_after_a_lost_heartbeat(self) -> None:
        member, _ = self.joined()
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, ConnectionLost("gone"))
        again, _ = member.next(ConsumerGroupHeartbeatRequest)
        assert (again.member_epoch, again.subscribed_topic_names) == (3, ["a"])
        assert again.topic_partitions == [TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]

    def test_tells_what_it_gave_up_only_when_the_application_has(self) -> None:
        member, _ = self.joined()
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(epoch=3, partitions=[1]))
        assert member.take() == [Revoked(partitions("a", 0))]
        meanwhile, ticket = member.next(ConsumerGroupHeartbeatRequest)
        assert meanwhile.topic_partitions is None
        member.answer(ticket, self.told(epoch=3))
        member.group.acknowledge(member.now)
        given_up, _ = member.next(ConsumerGroupHeartbeatRequest)
        assert given_up.topic_partitions == [TopicPartitions(topic_id=TOPIC_ID, partitions=[1])]

    def test_a_share_that_was_replaced_while_the_application_gave_up_is_not_taken(self) -> None:
        """The broker may have given it to somebody else: we never said that we had it."""
        member, _ = self.joined()
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(epoch=4, partitions=[2]))
        assert member.take() == [Revoked(BOTH)]
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(epoch=5, partitions=[]))
        member.group.acknowledge(member.now)
        assert member.take() == [Assigned(frozenset())]

    @pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
    def test_is_fenced_and_joins_again(self, code: ErrorCode) -> None:
        member, first = self.joined()
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(code))
        assert member.take() == [Lost(BOTH)]
        again, _ = member.next(ConsumerGroupHeartbeatRequest)
        assert (again.member_id, again.member_epoch, again.topic_partitions) == (first.member_id, 0, [])

    @pytest.mark.parametrize(
        ("code", "searches"),
        [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1), (ErrorCode.NOT_COORDINATOR, 2)],
    )
    def test_tries_again(self, code: ErrorCode, searches: int) -> None:
        member, _ = self.joined()
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(code))
        again, _ = member.next(ConsumerGroupHeartbeatRequest)
        assert (again.member_epoch, member.searches) == (3, searches)
        assert member.take() == []

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            ErrorCode.INVALID_REQUEST,
        ],
    )
    def test_gives_up(self, code: ErrorCode) -> None:
        member, _ = self.joined()
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(code))
        events = member.take()
        assert failure(events) == code.name
        assert events[-1] == Lost(BOTH)

    def test_an_instance_id_that_somebody_else_holds(self) -> None:
        member = ScriptedMember(protocol=GroupProtocol.CONSUMER, instance_id="i")
        member.group.subscribe(member.now, Subscription(frozenset({"a"})))
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(ErrorCode.UNRELEASED_INSTANCE_ID))
        assert failure(member.take()) == "UNRELEASED_INSTANCE_ID"

    def test_an_instance_id_that_we_hold_ourselves(self) -> None:
        """The answer to the first join was lost: the broker thinks that we are there, and so we are."""
        member = ScriptedMember(protocol=GroupProtocol.CONSUMER, instance_id="i")
        member.group.subscribe(member.now, Subscription(frozenset({"a"})))
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, ConnectionLost("gone"))
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(ErrorCode.UNRELEASED_INSTANCE_ID))
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(epoch=3, partitions=[0, 1]))
        assert member.take() == [Assigned(BOTH)]

    def test_a_broker_without_the_protocol(self) -> None:
        member = ScriptedMember(protocol=GroupProtocol.CONSUMER)
        member.group.subscribe(member.now, Subscription(frozenset({"a"})))
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        error = UnsupportedByBroker("ConsumerGroupHeartbeat")
        member.answer(ticket, error)
        assert member.take() == [Failed(error)]

    @pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
    def test_says_goodbye(self, instance_id: str | None, epoch: int) -> None:
        member = ScriptedMember(protocol=GroupProtocol.CONSUMER, instance_id=instance_id)
        member.group.subscribe(member.now, Subscription(frozenset({"a"})))
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.answer(ticket, self.told(epoch=3, partitions=[]))
        _, ticket = member.next(ConsumerGroupHeartbeatRequest)
        member.group.leave(member.now)
        goodbye, _ = member.next(ConsumerGroupHeartbeatRequest)
        assert (goodbye.member_epoch, goodbye.instance_id) == (epoch, instance_id)
