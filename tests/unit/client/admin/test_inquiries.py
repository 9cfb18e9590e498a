"""Operations of an admin client as requests and answers: who is asked, what is tried again, when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from harness.scripted_admin import ONE, TWO, ScriptedAdmin, name_of, partitions_asked
from headrace.base.time import NEVER
from headrace.client.admin import broker_lookup
from headrace.client.admin.group_offsets import list_offsets_of_groups
from headrace.client.admin.groups import delete_groups, list_groups
from headrace.client.admin.offsets import ListedOffset, OffsetAt, list_offsets
from headrace.client.admin.operation import (
    ANY,
    HEARSAY_S,
    Ask,
    OfBroker,
    Operation,
    ask_all,
    ask_one,
)
from headrace.client.admin.topics import create_topics, delete_topics
from headrace.client.cluster import Address, TopicPartition
from headrace.client.errors import (
    BadResponse,
    ConnectionLost,
    InvalidInput,
    KafkaError,
    PartlyFailed,
    TimedOut,
    Unreachable,
)
from headrace.client.steps import Pending
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from headrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headrace.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from headrace.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from headrace.simulator.scripted_cluster import address_of, request_of

ZERO, FIRST, SECOND = (TopicPartition("orders", index) for index in range(3))
ALL = dict.fromkeys((ZERO, FIRST, SECOND), OffsetAt.LATEST)


def offsets(**codes_or_offsets: int) -> ListOffsetsResponse:
    """By partition, as p0=7; a negative number is an error code."""
    partitions = [
        ListOffsetsPartitionResponse(
            partition_index=int(key[1:]), offset=max(value, -1), error_code=max(-value, 0)
        )
        for key, value in codes_or_offsets.items()
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=partitions)])


def at(offset: int) -> ListedOffset:
    return ListedOffset(offset, None, None)


def anything() -> Operation[str]:
    """The smallest operation."""
    return (yield from ask_one("asking", ANY, lambda _: ListGroupsRequest(), lambda _: "answer"))


def result_of(pending: Pending[Any]) -> Any:
    assert pending.is_done
    return pending.result()


class TestPlaces:
    def test_any_broker_is_asked_at_once(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(anything())
        (asked,) = admin.sent()
        assert (asked.to, name_of(asked), admin.cluster.lookups) == (None, "ListGroups", [])
        admin.answer(asked, ListGroupsResponse())
        assert result_of(pending) == "answer"
        assert admin.session.deadline() == NEVER

    def test_the_controller_is_looked_up_once(self) -> None:
        admin = ScriptedAdmin()
        for name in ("a", "b"):
            pending = admin.begin(delete_topics(name))
            (asked,) = admin.sent()
            assert asked.to == TWO
            admin.answer(asked, DeleteTopicsResponse(responses=[DeletableTopicResult(name=name)]))
            assert pending.is_done
        assert admin.cluster.lookups == ["brokers"]

    def test_partitions_of_a_leader_travel_together(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(list_offsets(ALL))
        first, second = admin.sent()
        assert (first.to, partitions_asked(first)) == (ONE, {"orders": [0, 2]})
        assert (second.to, partitions_asked(second)) == (TWO, {"orders": [1]})
        assert admin.cluster.lookups == ["topics orders"]
        admin.answer(second, offsets(p1=5))
        assert not pending.is_done
        admin.answer(first, offsets(p0=4, p2=6))
        assert result_of(pending) == {ZERO: at(4), FIRST: at(5), SECOND: at(6)}
        assert list(result_of(pending)) == [ZERO, FIRST, SECOND]

    def test_coordinators_are_looked_up_together(self) -> None:
        admin = ScriptedAdmin()
        admin.cluster.coordinators = {"a": 1, "b": 2, "c": 1}
        admin.begin(delete_groups(["a", "b", "c"]))
        asked = [(outgoing.to, request_of(outgoing).groups_names) for outgoing in admin.sent()]
        assert asked == [(ONE, ["a", "c"]), (TWO, ["b"])]
        assert admin.cluster.lookups == ["coordinators a b c"]

    def test_a_broker_that_finds_one_coordinator_at_a_time(self) -> None:
        admin = ScriptedAdmin(coordinator_version=3)
        admin.cluster.coordinators = {"a": 1, "b": 2}
        admin.begin(delete_groups(["a", "b"]))
        assert sorted(admin.told(), key=str) == [(ONE, "DeleteGroups"), (TWO, "DeleteGroups")]
        assert admin.cluster.lookups == ["coordinators a", "coordinators b"]

    def test_subjects_that_must_go_alone(self) -> None:
        admin = ScriptedAdmin()
        admin.cluster.coordinators = {"a": 1, "b": 1}
        pending = admin.begin(list_offsets_of_groups(["a", "b"]))
        asked = admin.sent()
        assert [outgoing.to for outgoing in asked] == [ONE, ONE]
        for outgoing in asked:
            admin.answer(outgoing, OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="any")]))
        assert result_of(pending) == {"a": {}, "b": {}}

    def test_a_broker_that_is_not_there(self) -> None:
        admin = ScriptedAdmin()
        question: Ask[int, str] = Ask(
            "asking", {7: OfBroker(7)}, lambda *_: ListGroupsRequest(), lambda *_: {7: "x"}
        )
        pending = admin.begin(ask_all(question))
        assert admin.sent() == []
        with pytest.raises(InvalidInput, match="no broker 7; the brokers are 1, 2"):
            pending.result()

    def test_all_brokers_are_asked_again_when_one_has_left_meanwhile(self) -> None:
        """Another one may have taken over its groups after it was asked."""
        admin = ScriptedAdmin()
        admin.place("elsewhere", 3)
        pending = admin.begin(list_groups())
        first = admin.sent()
        assert {outgoing.to for outgoing in first} == {ONE, TWO, address_of(3)}
        admin.cluster.leaders.pop(TopicPartition("elsewhere", 0))
        for outgoing in first:
            is_gone = outgoing.to == address_of(3)
            admin.answer(outgoing, ConnectionLost("it is gone") if is_gone else ListGroupsResponse())
        asked: list[Address | None] = []
        while not pending.is_done:
            for outgoing in admin.sent():
                asked.append(outgoing.to)
                taken = [ListedGroup(group_id="moved", group_type="classic", group_state="Empty")]
                groups = taken if outgoing.to == TWO else []
                admin.answer(outgoing, ListGroupsResponse(groups=groups))
            if not pending.is_done:
                admin.pass_pause()
        assert sorted(asked, key=str) == [ONE, TWO]
        assert [listed.group for listed in result_of(pending)] == ["moved"]

    def test_operations_share_a_look_up(self) -> None:
        admin = ScriptedAdmin()
        both = [admin.begin(list_offsets({ZERO: OffsetAt.LATEST})) for _ in range(2)]
        assert admin.told() == [(ONE, "ListOffsets"), (ONE, "ListOffsets")]
        assert admin.cluster.lookups == ["topics orders"]
        assert not any(pending.is_done for pending in both)

    def test_old_news_is_asked_for_again(self) -> None:
        admin = ScriptedAdmin(metadata_age_s=60)
        for seconds, lookups in ((0, 1), (59, 1), (2, 2)):
            admin.pass_time(seconds)
            admin.begin(list_offsets({ZERO: OffsetAt.LATEST}))
            assert admin.told() == [(ONE, "ListOffsets")]
            assert len(admin.cluster.lookups) == lookups

    def test_names_of_long_ago_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(broker_lookup, "NAMES_KEPT_MAX", 10)
        admin = ScriptedAdmin()
        names = [f"g{number}" for number in range(11)]
        admin.cluster.coordinators = dict.fromkeys([*names, "last"], 1)
        pending = admin.begin(delete_groups(names))
        results = [DeletableGroupResult(group_id=name) for name in names]
        admin.answer_all(lambda _: DeleteGroupsResponse(results=results))
        assert pending.is_done
        admin.begin(delete_groups(["g0"]))
        admin.sent()
        assert admin.cluster.lookups[1:] == ["coordinators g0"]


class TestTryingAgain:
    def test_only_what_failed_and_only_after_a_look_up_and_a_pause(self) -> None:
        admin = ScriptedAdmin(retry_first_s=0.1)
        pending = admin.begin(list_offsets(ALL))
        first, second = admin.sent()
        admin.answer(first, offsets(p0=4, p2=-ErrorCode.NOT_LEADER_OR_FOLLOWER))
        admin.answer(second, offsets(p1=5))
        assert admin.sent() == []
        admin.place("orders", 1, 2, 2)
        before = admin.now
        admin.pass_pause()
        assert 0.08 <= admin.now - before <= 0.12
        (again,) = admin.sent()
        assert (again.to, partitions_asked(again)) == (TWO, {"orders": [2]})
        assert admin.cluster.lookups == ["topics orders", "topics orders"]
        admin.answer(again, offsets(p2=6))
        assert result_of(pending) == {ZERO: at(4), FIRST: at(5), SECOND: at(6)}

    def test_pauses_grow_up_to_the_last(self) -> None:
        admin = ScriptedAdmin(retry_first_s=0.1, retry_last_s=0.4)
        admin.begin(anything())
        pauses = []
        for _ in range(5):
            (asked,) = admin.sent()
            admin.answer(asked, ConnectionLost("gone"))
            before = admin.now
            admin.pass_pause()
            pauses.append(admin.now - before)
        assert all(
            0.8 * wanted <= pause <= 1.2 * wanted for pause, wanted in zip(pauses, (0.1, 0.2, 0.4, 0.4))
        )

    def test_what_fails_during_a_pause_waits_for_its_end(self) -> None:
        admin = ScriptedAdmin(retry_first_s=0.1)
        admin.begin(list_offsets(ALL))
        first, second = admin.sent()
        admin.answer(first, ConnectionLost("gone"))
        admin.pass_time(0.05)
        admin.answer(second, ConnectionLost("gone"))
        admin.place("orders", 2, 2, 2)
        admin.pass_pause()
        assert admin.now <= 1000.12
        (again,) = admin.sent()
        assert (again.to, partitions_asked(again)) == (TWO, {"orders": [0, 1, 2]})

    def test_a_coordinator_that_moved_is_looked_for_anew(self) -> None:
        admin = ScriptedAdmin()
        admin.cluster.coordinators = {"a": 1}
        pending = admin.begin(delete_groups("a"))
        (asked,) = admin.sent()
        moved = DeletableGroupResult(group_id="a", error_code=ErrorCode.NOT_COORDINATOR)
        admin.answer(asked, DeleteGroupsResponse(results=[moved]))
        admin.cluster.coordinators = {"a": 2}
        admin.pass_pause()
        (again,) = admin.sent()
        assert again.to == TWO
        admin.answer(again, DeleteGroupsResponse(results=[DeletableGroupResult(group_id="a")]))
        assert pending.is_done

    def test_a_coordinator_that_is_not_there_yet(self) -> None:
        admin = ScriptedAdmin()
        admin.begin(delete_groups("a"))
        assert admin.sent() == []
        admin.cluster.coordinators = {"a": 2}
        admin.pass_pause()
        assert admin.told() == [(TWO, "DeleteGroups")]

    def test_another_operation_may_know_better_meanwhile(self) -> None:
        """What one inquiry was told later serves another whose broker was wrong."""
        admin = ScriptedAdmin()
        admin.begin(list_offsets({SECOND: OffsetAt.LATEST}))
        (asked,) = admin.sent()
        admin.answer(asked, offsets(p2=-ErrorCode.NOT_LEADER_OR_FOLLOWER))
        admin.place("orders", 1, 2, 2)
        admin.pass_pause()
        assert admin.told() == [(TWO, "ListOffsets")]
        admin.begin(list_offsets({SECOND: OffsetAt.LATEST}))
        assert admin.told() == [(TWO, "ListOffsets")]
        assert admin.cluster.lookups == ["topics orders", "topics orders"]

    def test_an_error_that_does_not_pass_is_told_at_once(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(list_offsets({ZERO: OffsetAt.LATEST}))
        (asked,) = admin.sent()
        admin.answer(asked, offsets(p0=-ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(KafkaError, match="partition orders-0") as refused:
            pending.result()
        assert refused.value.name == "TOPIC_AUTHORIZATION_FAILED"

    def test_a_look_up_that_fails_for_good(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(list_offsets(ALL))
        (asked,) = admin.session.requests(admin.now)
        admin.answer(asked, BadResponse("no Kafka"))
        assert admin.sent() == []
        with pytest.raises(BadResponse, match="no Kafka"):
            pending.result()

    def test_a_topic_that_nobody_knows_is_asked_for_a_moment_longer(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(list_offsets({("nowhere", 0): OffsetAt.LATEST}))
        began = admin.now
        assert admin.sent() == []
        while not pending.is_done:
            admin.pass_pause()
            assert admin.sent() == []
        assert HEARSAY_S <= admin.now - began < HEARSAY_S + 2
        with pytest.raises(KafkaError, match="nowhere") as unknown:
            pending.result()
        assert unknown.value.is_unknown_topic

    def test_an_order_about_a_topic_that_nobody_knows_fails_at_once(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(delete_topics("nowhere"))
        unknown = DeletableTopicResult(name="nowhere", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        admin.answer_all(lambda _: DeleteTopicsResponse(responses=[unknown]))
        with pytest.raises(KafkaError, match="topic 'nowhere'"):
            pending.result()

    def test_a_topic_is_made_when_a_broker_tells_of_it(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(create_topics(["new"]))
        (asked,) = admin.sent()
        admin.answer(asked, CreateTopicsResponse(topics=[CreatableTopicResult(name="new", num_partitions=1)]))
        assert admin.sent() == []
        assert not pending.is_done
        admin.place("new", 1)
        admin.pass_pause()
        assert admin.sent() == []
        assert result_of(pending)["new"].partitions == 1
        assert admin.cluster.lookups == ["brokers", "topics new", "topics new"]


class TestTime:
    def test_silence_ends_with_what_was_being_done(self) -> None:
        admin = ScriptedAdmin(api_timeout_s=10, request_timeout_s=30)
        pending = admin.begin(list_offsets({ZERO: OffsetAt.LATEST}))
        (asked,) = admin.sent()
        assert asked.timeout_s == 10
        assert admin.session.deadline() == admin.now + 10
        admin.pass_time(9.9)
        assert admin.sent() == []
        admin.pass_pause()
        assert admin.sent() == []
        with pytest.raises(TimedOut, match="timed out while listing offsets"):
            pending.result()
        admin.answer(asked, offsets(p0=4))  # too late, and nobody minds

    def test_the_last_error_says_more_than_the_clock(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(anything(), timeout_s=1.0)
        while not pending.is_done:
            for asked in admin.sent():
                admin.answer(asked, Unreachable("nobody at one:9092"))
            if not pending.is_done:
                admin.pass_pause()
        assert admin.now < 1001.0
        with pytest.raises(Unreachable, match="nobody at one"):
            pending.result()

    def test_what_has_answered_counts_when_the_rest_is_late(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(list_offsets(ALL), timeout_s=5)
        first, _ = admin.sent()
        admin.answer(first, offsets(p0=4, p2=6))
        admin.pass_time(5)
        assert admin.sent() == []
        with pytest.raises(PartlyFailed, match="timed out") as late:
            pending.result()
        assert late.value.results == {ZERO: at(4), SECOND: at(6)}
        assert list(late.value.failures) == [FIRST]

    def test_requests_carry_what_time_is_left(self) -> None:
        admin = ScriptedAdmin(request_timeout_s=30)
        admin.begin(delete_topics("a"), timeout_s=7)
        (asked,) = admin.sent()
        request: Any = request_of(asked)
        assert (asked.timeout_s, request.timeout_ms) == (7, 7000)

    def test_what_nobody_waits_for_is_dropped(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(anything())
        (asked,) = admin.sent()
        admin.session.abandon(pending)
        assert admin.session.deadline() == NEVER
        admin.answer(asked, ListGroupsResponse())
        assert not pending.is_done

    def test_nothing_to_ask_about_is_answered_with_nothing(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(list_offsets({}))
        assert admin.session.deadline() < admin.now
        assert admin.sent() == []
        assert result_of(pending) == {}


class TestErrorsOfMany:
    def test_all_failures_and_all_results(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(delete_topics(["a", "b", "c"]))
        codes = {"a": 0, "b": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "c": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        told = [DeletableTopicResult(name=name, error_code=code) for name, code in codes.items()]
        admin.answer_all(lambda _: DeleteTopicsResponse(responses=told))
        with pytest.raises(PartlyFailed, match=r"topic 'b'.*; 1 more failed") as partly:
            pending.result()
        assert list(partly.value.results) == ["a"]
        names = {name: error.name for name, error in partly.value.failures.items()}
        assert names == {"b": "TOPIC_AUTHORIZATION_FAILED", "c": "UNKNOWN_TOPIC_OR_PARTITION"}
        assert not partly.value.is_retriable

    def test_one_error_for_all_is_that_error(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(delete_topics(["a", "b"]))
        admin.answer_all(lambda _: BadResponse("what?"))
        with pytest.raises(BadResponse, match=r"^what\?$"):
            pending.result()

    def test_a_subject_that_the_answer_leaves_out(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(delete_topics(["a", "b"]))
        admin.answer_all(lambda _: DeleteTopicsResponse(responses=[DeletableTopicResult(name="a")]))
        with pytest.raises(PartlyFailed, match="left something out of its answer while deleting topics"):
            pending.result()
