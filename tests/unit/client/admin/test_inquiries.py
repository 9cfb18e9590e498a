"""Operations of an admin client as requests and answers: who is asked, what is tried again, when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from harness.admin_stage import ONE, TWO, AdminStage, name_of, partitions_asked, request_of
from headrace.base.time import NEVER
from headrace.client.admin import broker_lookup
from headrace.client.admin.group_offsets import list_offsets_of_groups
from headrace.client.admin.groups import delete_groups
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
from headrace.client.cluster import TopicPartition
from headrace.client.errors import (
    BadResponse,
    ConnectionLost,
    InvalidInput,
    KafkaError,
    PartlyFailed,
    TimedOut,
    Unreachable,
)
from headrace.client.pending import Pending
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from headrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headrace.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup

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
        stage = AdminStage()
        pending = stage.begin(anything())
        (asked,) = stage.sent()
        assert (asked.to, name_of(asked), stage.lookups) == (None, "ListGroups", [])
        stage.answer(asked, ListGroupsResponse())
        assert result_of(pending) == "answer"
        assert stage.session.deadline() == NEVER

    def test_the_controller_is_looked_up_once(self) -> None:
        stage = AdminStage()
        for name in ("a", "b"):
            pending = stage.begin(delete_topics(name))
            (asked,) = stage.sent()
            assert asked.to == TWO
            stage.answer(asked, DeleteTopicsResponse(responses=[DeletableTopicResult(name=name)]))
            assert pending.is_done
        assert stage.lookups == ["brokers"]

    def test_partitions_of_a_leader_travel_together(self) -> None:
        stage = AdminStage()
        pending = stage.begin(list_offsets(ALL))
        first, second = stage.sent()
        assert (first.to, partitions_asked(first)) == (ONE, {"orders": [0, 2]})
        assert (second.to, partitions_asked(second)) == (TWO, {"orders": [1]})
        assert stage.lookups == ["topics orders"]
        stage.answer(second, offsets(p1=5))
        assert not pending.is_done
        stage.answer(first, offsets(p0=4, p2=6))
        assert result_of(pending) == {ZERO: at(4), FIRST: at(5), SECOND: at(6)}
        assert list(result_of(pending)) == [ZERO, FIRST, SECOND]

    def test_coordinators_are_looked_up_together(self) -> None:
        stage = AdminStage()
        stage.coordinators = {"a": 1, "b": 2, "c": 1}
        stage.begin(delete_groups(["a", "b", "c"]))
        asked = [(outgoing.to, request_of(outgoing).groups_names) for outgoing in stage.sent()]  # type: ignore[attr-defined]
        assert asked == [(ONE, ["a", "c"]), (TWO, ["b"])]
        assert stage.lookups == ["coordinators a b c"]

    def test_a_broker_that_finds_one_coordinator_at_a_time(self) -> None:
        stage = AdminStage(coordinator_version=3)
        stage.coordinators = {"a": 1, "b": 2}
        stage.begin(delete_groups(["a", "b"]))
        assert sorted(stage.told(), key=str) == [(ONE, "DeleteGroups"), (TWO, "DeleteGroups")]
        assert stage.lookups == ["coordinators a", "coordinators b"]

    def test_subjects_that_must_go_alone(self) -> None:
        stage = AdminStage()
        stage.coordinators = {"a": 1, "b": 1}
        pending = stage.begin(list_offsets_of_groups(["a", "b"]))
        asked = stage.sent()
        assert [outgoing.to for outgoing in asked] == [ONE, ONE]
        for outgoing in asked:
            stage.answer(outgoing, OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="any")]))
        assert result_of(pending) == {"a": {}, "b": {}}

    def test_a_broker_that_is_not_there(self) -> None:
        stage = AdminStage()
        question: Ask[int, str] = Ask(
            "asking", {7: OfBroker(7)}, lambda *_: ListGroupsRequest(), lambda *_: {7: "x"}
        )
        pending = stage.begin(ask_all(question))
        assert stage.sent() == []
        with pytest.raises(InvalidInput, match="no broker 7; the brokers are 1, 2"):
            pending.result()

    def test_operations_share_a_look_up(self) -> None:
        stage = AdminStage()
        both = [stage.begin(list_offsets({ZERO: OffsetAt.LATEST})) for _ in range(2)]
        assert stage.told() == [(ONE, "ListOffsets"), (ONE, "ListOffsets")]
        assert stage.lookups == ["topics orders"]
        assert not any(pending.is_done for pending in both)

    def test_old_news_is_asked_for_again(self) -> None:
        stage = AdminStage(metadata_age_s=60)
        for seconds, lookups in ((0, 1), (59, 1), (2, 2)):
            stage.pass_time(seconds)
            stage.begin(list_offsets({ZERO: OffsetAt.LATEST}))
            assert stage.told() == [(ONE, "ListOffsets")]
            assert len(stage.lookups) == lookups

    def test_names_of_long_ago_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(broker_lookup, "NAMES_KEPT_MAX", 10)
        stage = AdminStage()
        names = [f"g{number}" for number in range(11)]
        stage.coordinators = dict.fromkeys([*names, "last"], 1)
        pending = stage.begin(delete_groups(names))
        results = [DeletableGroupResult(group_id=name) for name in names]
        stage.answer_all(lambda _: DeleteGroupsResponse(results=results))
        assert pending.is_done
        stage.begin(delete_groups(["g0"]))
        stage.sent()
        assert stage.lookups[1:] == ["coordinators g0"]


class TestTryingAgain:
    def test_only_what_failed_and_only_after_a_look_up_and_a_pause(self) -> None:
        stage = AdminStage(retry_first_s=0.1)
        pending = stage.begin(list_offsets(ALL))
        first, second = stage.sent()
        stage.answer(first, offsets(p0=4, p2=-ErrorCode.NOT_LEADER_OR_FOLLOWER))
        stage.answer(second, offsets(p1=5))
        assert stage.sent() == []
        stage.leaders["orders"] = [1, 2, 2]
        before = stage.now
        stage.pass_pause()
        assert 0.08 <= stage.now - before <= 0.12
        (again,) = stage.sent()
        assert (again.to, partitions_asked(again)) == (TWO, {"orders": [2]})
        assert stage.lookups == ["topics orders", "topics orders"]
        stage.answer(again, offsets(p2=6))
        assert result_of(pending) == {ZERO: at(4), FIRST: at(5), SECOND: at(6)}

    def test_pauses_grow_up_to_the_last(self) -> None:
        stage = AdminStage(retry_first_s=0.1, retry_last_s=0.4)
        stage.begin(anything())
        pauses = []
        for _ in range(5):
            (asked,) = stage.sent()
            stage.answer(asked, ConnectionLost("gone"))
            before = stage.now
            stage.pass_pause()
            pauses.append(stage.now - before)
        assert all(
            0.8 * wanted <= pause <= 1.2 * wanted for pause, wanted in zip(pauses, (0.1, 0.2, 0.4, 0.4))
        )

    def test_what_fails_during_a_pause_waits_for_its_end(self) -> None:
        stage = AdminStage(retry_first_s=0.1)
        stage.begin(list_offsets(ALL))
        first, second = stage.sent()
        stage.answer(first, ConnectionLost("gone"))
        stage.pass_time(0.05)
        stage.answer(second, ConnectionLost("gone"))
        stage.leaders["orders"] = [2, 2, 2]
        stage.pass_pause()
        assert stage.now <= 1000.12
        (again,) = stage.sent()
        assert (again.to, partitions_asked(again)) == (TWO, {"orders": [0, 1, 2]})

    def test_a_coordinator_that_moved_is_looked_for_anew(self) -> None:
        stage = AdminStage()
        stage.coordinators = {"a": 1}
        pending = stage.begin(delete_groups("a"))
        (asked,) = stage.sent()
        moved = DeletableGroupResult(group_id="a", error_code=ErrorCode.NOT_COORDINATOR)
        stage.answer(asked, DeleteGroupsResponse(results=[moved]))
        stage.coordinators = {"a": 2}
        stage.pass_pause()
        (again,) = stage.sent()
        assert again.to == TWO
        stage.answer(again, DeleteGroupsResponse(results=[DeletableGroupResult(group_id="a")]))
        assert pending.is_done

    def test_a_coordinator_that_is_not_there_yet(self) -> None:
        stage = AdminStage()
        stage.begin(delete_groups("a"))
        assert stage.sent() == []
        stage.coordinators = {"a": 2}
        stage.pass_pause()
        assert stage.told() == [(TWO, "DeleteGroups")]

    def test_another_operation_may_know_better_meanwhile(self) -> None:
        """What one inquiry was told later serves another whose broker was wrong."""
        stage = AdminStage()
        stage.begin(list_offsets({SECOND: OffsetAt.LATEST}))
        (asked,) = stage.sent()
        stage.answer(asked, offsets(p2=-ErrorCode.NOT_LEADER_OR_FOLLOWER))
        stage.leaders["orders"] = [1, 2, 2]
        stage.pass_pause()
        assert stage.told() == [(TWO, "ListOffsets")]
        stage.begin(list_offsets({SECOND: OffsetAt.LATEST}))
        assert stage.told() == [(TWO, "ListOffsets")]
        assert stage.lookups == ["topics orders", "topics orders"]

    def test_an_error_that_does_not_pass_is_told_at_once(self) -> None:
        stage = AdminStage()
        pending = stage.begin(list_offsets({ZERO: OffsetAt.LATEST}))
        (asked,) = stage.sent()
        stage.answer(asked, offsets(p0=-ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(KafkaError, match="partition orders-0") as refused:
            pending.result()
        assert refused.value.name == "TOPIC_AUTHORIZATION_FAILED"

    def test_a_look_up_that_fails_for_good(self) -> None:
        stage = AdminStage()
        pending = stage.begin(list_offsets(ALL))
        (asked,) = stage.session.requests(stage.now)
        stage.answer(asked, BadResponse("no Kafka"))
        assert stage.sent() == []
        with pytest.raises(BadResponse, match="no Kafka"):
            pending.result()

    def test_a_topic_that_nobody_knows_is_asked_for_a_moment_longer(self) -> None:
        stage = AdminStage()
        pending = stage.begin(list_offsets({("nowhere", 0): OffsetAt.LATEST}))
        began = stage.now
        assert stage.sent() == []
        while not pending.is_done:
            stage.pass_pause()
            assert stage.sent() == []
        assert HEARSAY_S <= stage.now - began < HEARSAY_S + 2
        with pytest.raises(KafkaError, match="nowhere") as unknown:
            pending.result()
        assert unknown.value.is_unknown_topic

    def test_an_order_about_a_topic_that_nobody_knows_fails_at_once(self) -> None:
        stage = AdminStage()
        pending = stage.begin(delete_topics("nowhere"))
        unknown = DeletableTopicResult(name="nowhere", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        stage.answer_all(lambda _: DeleteTopicsResponse(responses=[unknown]))
        with pytest.raises(KafkaError, match="topic 'nowhere'"):
            pending.result()

    def test_a_topic_is_made_when_a_broker_tells_of_it(self) -> None:
        stage = AdminStage()
        pending = stage.begin(create_topics(["new"]))
        (asked,) = stage.sent()
        stage.answer(asked, CreateTopicsResponse(topics=[CreatableTopicResult(name="new", num_partitions=1)]))
        assert stage.sent() == []
        assert not pending.is_done
        stage.leaders["new"] = [1]
        stage.pass_pause()
        assert stage.sent() == []
        assert result_of(pending)["new"].partitions == 1
        assert stage.lookups == ["brokers", "topics new", "topics new"]


class TestTime:
    def test_silence_ends_with_what_was_being_done(self) -> None:
        stage = AdminStage(api_timeout_s=10, request_timeout_s=30)
        pending = stage.begin(list_offsets({ZERO: OffsetAt.LATEST}))
        (asked,) = stage.sent()
        assert asked.timeout_s == 10
        assert stage.session.deadline() == stage.now + 10
        stage.pass_time(9.9)
        assert stage.sent() == []
        stage.pass_pause()
        assert stage.sent() == []
        with pytest.raises(TimedOut, match="timed out while listing offsets"):
            pending.result()
        stage.answer(asked, offsets(p0=4))  # too late, and nobody minds

    def test_the_last_error_says_more_than_the_clock(self) -> None:
        stage = AdminStage()
        pending = stage.begin(anything(), timeout_s=1.0)
        while not pending.is_done:
            for asked in stage.sent():
                stage.answer(asked, Unreachable("nobody at one:9092"))
            if not pending.is_done:
                stage.pass_pause()
        assert stage.now < 1001.0
        with pytest.raises(Unreachable, match="nobody at one"):
            pending.result()

    def test_what_has_answered_counts_when_the_rest_is_late(self) -> None:
        stage = AdminStage()
        pending = stage.begin(list_offsets(ALL), timeout_s=5)
        first, _ = stage.sent()
        stage.answer(first, offsets(p0=4, p2=6))
        stage.pass_time(5)
        assert stage.sent() == []
        with pytest.raises(PartlyFailed, match="timed out") as late:
            pending.result()
        assert late.value.results == {ZERO: at(4), SECOND: at(6)}
        assert list(late.value.failures) == [FIRST]

    def test_requests_carry_what_time_is_left(self) -> None:
        stage = AdminStage(request_timeout_s=30)
        stage.begin(delete_topics("a"), timeout_s=7)
        (asked,) = stage.sent()
        request: Any = request_of(asked)
        assert (asked.timeout_s, request.timeout_ms) == (7, 7000)

    def test_what_nobody_waits_for_is_dropped(self) -> None:
        stage = AdminStage()
        pending = stage.begin(anything())
        (asked,) = stage.sent()
        stage.session.abandon(pending)
        assert stage.session.deadline() == NEVER
        stage.answer(asked, ListGroupsResponse())
        assert not pending.is_done

    def test_nothing_to_ask_about_is_answered_with_nothing(self) -> None:
        stage = AdminStage()
        pending = stage.begin(list_offsets({}))
        assert stage.session.deadline() < stage.now
        assert stage.sent() == []
        assert result_of(pending) == {}


class TestErrorsOfMany:
    def test_all_failures_and_all_results(self) -> None:
        stage = AdminStage()
        pending = stage.begin(delete_topics(["a", "b", "c"]))
        codes = {"a": 0, "b": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "c": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        told = [DeletableTopicResult(name=name, error_code=code) for name, code in codes.items()]
        stage.answer_all(lambda _: DeleteTopicsResponse(responses=told))
        with pytest.raises(PartlyFailed, match=r"topic 'b'.*; 1 more failed") as partly:
            pending.result()
        assert list(partly.value.results) == ["a"]
        names = {name: error.name for name, error in partly.value.failures.items()}  # type: ignore[attr-defined]
        assert names == {"b": "TOPIC_AUTHORIZATION_FAILED", "c": "UNKNOWN_TOPIC_OR_PARTITION"}
        assert not partly.value.is_retriable

    def test_one_error_for_all_is_that_error(self) -> None:
        stage = AdminStage()
        pending = stage.begin(delete_topics(["a", "b"]))
        stage.answer_all(lambda _: BadResponse("what?"))
        with pytest.raises(BadResponse, match=r"^what\?$"):
            pending.result()

    def test_a_subject_that_the_answer_leaves_out(self) -> None:
        stage = AdminStage()
        pending = stage.begin(delete_topics(["a", "b"]))
        stage.answer_all(lambda _: DeleteTopicsResponse(responses=[DeletableTopicResult(name="a")]))
        with pytest.raises(PartlyFailed, match="left something out of its answer while deleting topics"):
            pending.result()
