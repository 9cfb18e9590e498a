"""Where reading begins and goes on: resets, leader epochs, truncated logs, topics that are created again."""

from __future__ import annotations

from logging import getLogger

import pytest

from harness.scripted_consumer import A0, A1, WALL_MS, ScriptedConsumer, asked, data, offsets, rows
from headrace.client.consumer.core import ConsumerCore
from headrace.client.consumer.position import LogTruncated, PositionReset
from headrace.client.errors import (
    ConnectionLost,
    InvalidInput,
    KafkaError,
    LogTruncation,
    NoOffset,
    UnsupportedByBroker,
)
from headrace.client.membership.events import CommittedOffset
from headrace.client.serializers import Deserializers
from headrace.client.settings.configuration import InvalidSetting
from headrace.client.settings.consumer import ConsumerSettings, Reset, ResetKind, parse_reset
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from headrace.protocol.messages.list_offsets import ListOffsetsRequest
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

A = b"a" * 16
EARLIEST, LATEST = -2, -1


def timestamps(request: ListOffsetsRequest) -> list[int]:
    return [each.timestamp for topic in request.topics for each in topic.partitions]


# Beginning


@pytest.mark.parametrize(
    ("reset", "timestamp"),
    [("earliest", EARLIEST), ("latest", LATEST), ("by_duration:PT1H", WALL_MS - 3_600_000)],
)
def test_without_a_group_reading_begins_where_the_policy_says(reset: str, timestamp: int) -> None:
    consumer = ScriptedConsumer(reset)
    consumer.session.assign(consumer.now, [A0, A1])
    assert consumer.session.position(A0) is None
    request = consumer.listed({A0: 5, A1: 9})
    assert timestamps(request) == [timestamp, timestamp], "one question for both"
    fetch, _ = consumer.fetch()
    assert asked(fetch) == {(A, 0): 5, (A, 1): 9}
    assert (consumer.session.position(A0), consumer.session.position(A1)) == (5, 9)
    assert consumer.told() == [PositionReset(A0, None, 5), PositionReset(A1, None, 9)]


def test_by_duration_goes_to_the_end_where_nothing_is_that_late() -> None:
    consumer = ScriptedConsumer("by_duration:PT1H")
    consumer.session.assign(consumer.now, [A0])
    consumer.listed({A0: -1})
    assert timestamps(consumer.listed({A0: 42})) == [LATEST]
    assert consumer.session.position(A0) == 42


def test_without_a_policy_the_application_has_to_say() -> None:
    consumer = ScriptedConsumer("none")
    consumer.session.assign(consumer.now, [A0])
    consumer.turn()
    with pytest.raises(NoOffset, match="a-0"):
        consumer.take()
    consumer.advance(5.0)
    with pytest.raises(NoOffset):
        consumer.session.position(A0)
    consumer.session.seek(consumer.now, A0, 3)
    assert consumer.session.position(A0) == 3
    assert consumer.take() == []
    assert asked(consumer.fetch()[0]) == {(A, 0): 3}


def test_what_is_given_is_not_asked_for() -> None:
    consumer = ScriptedConsumer()
    consumer.session.assign(consumer.now, {A0: 4})
    assert asked(consumer.fetch()[0]) == {(A, 0): 4}
    assert not consumer.asks(ListOffsetsRequest)


def test_a_position_that_is_sought_is_not_moved_by_the_answer_that_was_on_its_way() -> None:
    consumer = ScriptedConsumer()
    consumer.session.assign(consumer.now, [A0])
    consumer.turn()
    consumer.session.seek(consumer.now, A0, 7)
    consumer.listed({A0: 3})
    assert consumer.session.position(A0) == 7
    assert consumer.told() == []


def test_listing_is_tried_again_at_another_leader() -> None:
    consumer = ScriptedConsumer()
    consumer.session.assign(consumer.now, [A0])
    consumer.turn()
    consumer.cluster.leaders[A0] = 2
    consumer.listed({}, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not consumer.asks(ListOffsetsRequest)
    _, outgoing = consumer.next(ListOffsetsRequest)
    assert str(outgoing.to) == "broker2:9092"


def test_seeking_to_the_ends() -> None:
    consumer = ScriptedConsumer("none")
    consumer.reading(A0, A1)
    consumer.session.seek_to_end(consumer.now, [A0])
    assert consumer.session.position(A0) is None
    assert timestamps(consumer.listed({A0: 30})) == [LATEST]
    consumer.session.seek_to_beginning(consumer.now, [A0, A1])
    assert timestamps(consumer.listed({A0: 2, A1: 3})) == [EARLIEST, EARLIEST]
    assert consumer.session.positions().keys() == {A0, A1}
    assert (consumer.session.position(A0), consumer.session.position(A1)) == (2, 3)
    assert consumer.told() == [], "who seeks knows it"


def test_only_what_is_assigned_has_a_position() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    for call in (
        lambda: consumer.session.position(A1),
        lambda: consumer.session.seek(consumer.now, A1, 0),
        lambda: consumer.session.pause([A1]),
        lambda: consumer.session.lag(A1),
        lambda: consumer.session.seek_to_end(consumer.now, [A1]),
    ):
        with pytest.raises(InvalidInput, match="a-1 is not assigned"):
            call()
    with pytest.raises(InvalidInput, match="must be at least 0"):
        consumer.session.seek(consumer.now, A0, -1)


# Out of range


def test_out_of_range_resets() -> None:
    consumer = ScriptedConsumer("latest")
    consumer.reading(A0, offset=3)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert timestamps(consumer.listed({A0: 90})) == [LATEST]
    assert consumer.told() == [PositionReset(A0, 3, 90)]
    assert asked(consumer.fetch()[0]) == {(A, 0): 90}


def test_out_of_range_ahead_of_the_application_waits_for_it() -> None:
    """The leader may have lost what lies behind the records that we have; those are handed out first."""
    consumer = ScriptedConsumer("latest")
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3)))
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert not consumer.asks(ListOffsetsRequest)
    assert not consumer.asks(FetchRequest)
    assert consumer.take() == offsets(0, 3)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    consumer.listed({A0: 90})
    assert consumer.session.position(A0) == 90


def test_out_of_range_without_a_policy_is_raised_each_time_it_is_tried() -> None:
    consumer = ScriptedConsumer("none")
    consumer.reading(A0, offset=3)
    for _ in range(2):
        _, flight = consumer.fetch()
        consumer.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
        with pytest.raises(KafkaError, match="offset 3 of partition a-0"):
            consumer.take()
    assert consumer.session.position(A0) == 3


# Leaders' epochs (KIP-320)


def epoch_end(
    consumer: ScriptedConsumer, epoch: int, end: int, error: int = 0
) -> OffsetForLeaderEpochRequest:
    request, outgoing = consumer.next(OffsetForLeaderEpochRequest)
    told = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end, error_code=error)
    answer = OffsetForLeaderTopicResult(topic="a", partitions=[told])
    consumer.answer(outgoing, OffsetForLeaderEpochResponse(topics=[answer]))
    return request


def read_under_epoch_0(consumer: ScriptedConsumer, count: int, taken: int) -> None:
    """Then the leader changes."""
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, count, epoch=0)))
    assert len(consumer.take(taken)) == taken if taken else True
    _, flight = consumer.fetch()
    consumer.cluster.leaders[A0] = 2
    consumer.cluster.epochs[A0] = 4
    consumer.bring(flight, data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))


def test_a_new_leader_is_asked_whether_it_has_what_we_read() -> None:
    consumer = ScriptedConsumer()
    read_under_epoch_0(consumer, 5, taken=5)
    request = epoch_end(consumer, 0, 5)
    (question,) = request.topics[0].partitions
    assert (request.replica_id, question.current_leader_epoch, question.leader_epoch) == (-1, 4, 0)
    fetch, flight = consumer.fetch()
    assert (asked(fetch), str(flight.to)) == ({(A, 0): 5}, "broker2:9092")
    assert fetch.topics[0].partitions[0].current_leader_epoch == 4
    assert consumer.told() == []


def test_nothing_is_fetched_before_that_is_known() -> None:
    consumer = ScriptedConsumer()
    read_under_epoch_0(consumer, 5, taken=5)
    _, outgoing = consumer.next(OffsetForLeaderEpochRequest)
    assert not consumer.asks(FetchRequest)
    consumer.answer(outgoing, ConnectionLost("cut"))
    assert not consumer.asks(FetchRequest)
    epoch_end(consumer, 0, 5)
    assert consumer.asks(FetchRequest)


def test_reading_goes_on_where_the_logs_part() -> None:
    consumer = ScriptedConsumer("latest")
    read_under_epoch_0(consumer, 5, taken=5)
    epoch_end(consumer, 0, 3)
    assert consumer.told() == [LogTruncated(A0, 5, 3)]
    assert consumer.session.position(A0) == 3
    epoch_end(consumer, 0, 3)  # what lies before is of an earlier epoch still
    assert asked(consumer.fetch()[0]) == {(A, 0): 3}


def test_without_a_policy_a_truncated_log_is_raised_until_the_application_seeks() -> None:
    consumer = ScriptedConsumer("none")
    read_under_epoch_0(consumer, 5, taken=5)
    for _ in range(2):
        epoch_end(consumer, 0, 3)
        with pytest.raises(LogTruncation) as raised:
            consumer.take()
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("a", 0, 3)
    consumer.session.seek(consumer.now, A0, 3)
    assert asked(consumer.fetch()[0]) == {(A, 0): 3}


def test_a_leader_that_knows_nothing_of_our_epoch_resets() -> None:
    consumer = ScriptedConsumer("earliest")
    read_under_epoch_0(consumer, 5, taken=5)
    epoch_end(consumer, -1, -1)
    consumer.listed({A0: 0})
    assert consumer.told() == [PositionReset(A0, 5, 0)]


def test_what_was_fetched_ahead_is_dropped_first_and_what_was_handed_out_may_still_be_there() -> None:
    consumer = ScriptedConsumer()
    read_under_epoch_0(consumer, 5, taken=2)
    epoch_end(consumer, 0, 3)  # of 5
    assert consumer.take() == [], "offsets 3 and 4 are others now"
    epoch_end(consumer, 0, 3)  # of 2
    assert consumer.told() == []
    assert asked(consumer.fetch()[0]) == {(A, 0): 2}


def test_what_was_fetched_ahead_may_be_read_while_the_leader_is_asked() -> None:
    consumer = ScriptedConsumer()
    read_under_epoch_0(consumer, 5, taken=2)
    _, outgoing = consumer.next(OffsetForLeaderEpochRequest)
    assert consumer.take() == offsets(2, 3)
    told = EpochEndOffset(partition=0, leader_epoch=0, end_offset=5)
    answer = OffsetForLeaderTopicResult(topic="a", partitions=[told])
    consumer.answer(outgoing, OffsetForLeaderEpochResponse(topics=[answer]))
    assert consumer.told() == []
    assert asked(consumer.fetch()[0]) == {(A, 0): 5}


def test_what_the_old_leader_still_answers_is_not_trusted() -> None:
    consumer = ScriptedConsumer(metadata_age_s=60.0)
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 5, epoch=0)))
    assert consumer.take() == offsets(0, 5)
    _, flight = consumer.fetch()
    consumer.cluster.leaders[A0] = 2
    consumer.cluster.epochs[A0] = 4
    consumer.advance(61.0)  # the topic is looked at again while the long poll waits
    consumer.bring(flight, data(0, rows(5, 2, epoch=0)))
    assert consumer.take() == []
    epoch_end(consumer, 0, 5)
    assert asked(consumer.fetch()[0]) == {(A, 0): 5}


def test_a_fenced_question_is_asked_again_when_more_is_known() -> None:
    consumer = ScriptedConsumer()
    read_under_epoch_0(consumer, 5, taken=5)
    described = consumer.described
    epoch_end(consumer, -1, -1, error=ErrorCode.FENCED_LEADER_EPOCH)
    assert consumer.described > described
    epoch_end(consumer, 0, 5)
    assert consumer.asks(FetchRequest)


def test_a_broker_that_cannot_say_is_trusted() -> None:
    consumer = ScriptedConsumer()
    read_under_epoch_0(consumer, 5, taken=5)
    _, outgoing = consumer.next(OffsetForLeaderEpochRequest)
    consumer.answer(outgoing, UnsupportedByBroker("OffsetForLeaderEpoch"))
    assert consumer.asks(FetchRequest)
    assert not consumer.session.has_error


def test_within_an_epoch_nobody_is_asked() -> None:
    consumer = ScriptedConsumer()
    consumer.cluster.epochs[A0] = 4
    consumer.session.assign(consumer.now, [A0])
    consumer.session.seek(consumer.now, A0, 9, leader_epoch=4)
    assert asked(consumer.fetch()[0]) == {(A, 0): 9}
    assert not consumer.asks(OffsetForLeaderEpochRequest)


def test_a_position_with_an_older_epoch_is_checked_before_the_first_fetch() -> None:
    consumer = ScriptedConsumer()
    consumer.cluster.epochs[A0] = 4
    consumer.session.assign(consumer.now, [A0])
    consumer.session.seek(consumer.now, A0, 9, leader_epoch=2)
    epoch_end(consumer, 2, 8)
    assert consumer.told() == [LogTruncated(A0, 9, 8)]


@pytest.mark.parametrize("way", ["assign", "seek"])
def test_an_offset_that_was_kept_with_its_epoch_is_checked_in_a_new_process(way: str) -> None:
    """As `positions` returns it, and an application keeps it in a database of its own."""
    consumer = ScriptedConsumer()
    consumer.cluster.epochs[A0] = 4
    no_deserializers = Deserializers(None, None)
    core = ConsumerCore(
        consumer.session, ConsumerSettings(), no_deserializers, lambda: consumer.now, log=getLogger()
    )
    if way == "assign":
        core.assign({A0: CommittedOffset(9, leader_epoch=2)})
    else:
        core.assign([A0])
        core.seek(("a", 0), CommittedOffset(9, leader_epoch=2))
    epoch_end(consumer, 2, 8)
    assert consumer.told() == [LogTruncated(A0, 9, 8)]


def test_a_position_of_a_later_epoch_waits_for_metadata_of_that_epoch() -> None:
    """The leader that we know was replaced, and another member of the group has read from the next one: the
    old one, cut off from the others, would call the position out of range.
    """
    consumer = ScriptedConsumer()
    consumer.cluster.epochs[A0] = 4
    consumer.session.assign(consumer.now, [A0])
    consumer.session.seek(consumer.now, A0, 9, leader_epoch=5)
    described = consumer.described
    for _ in range(20):  # the broker that is asked does not know the new leader either
        consumer.advance(0.3)
        assert not consumer.asks(FetchRequest)
        assert not consumer.asks(OffsetForLeaderEpochRequest)
    assert described < consumer.described <= described + 20
    consumer.cluster.epochs[A0] = 5
    (request, _) = consumer.fetch()
    assert asked(request) == {(A, 0): 9}
    assert request.topics[0].partitions[0].current_leader_epoch == 5
    assert consumer.told() == []


def test_a_position_of_a_later_epoch_is_used_in_the_end() -> None:
    """Nobody has such an epoch: the log was restored from a copy, say."""
    consumer = ScriptedConsumer()
    consumer.cluster.epochs[A0] = 4
    consumer.session.assign(consumer.now, [A0])
    consumer.session.seek(consumer.now, A0, 9, leader_epoch=5)
    began = consumer.now
    while not consumer.asks(FetchRequest):
        consumer.advance(1)
    assert asked(consumer.fetch()[0]) == {(A, 0): 9}
    assert 30 < consumer.now - began < 120


# Topics


def test_a_topic_that_was_made_anew_is_read_from_its_beginning() -> None:
    consumer = ScriptedConsumer("latest")
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 5)))
    _, flight = consumer.fetch()
    consumer.cluster.topic_ids["a"] = b"A" * 16
    told = FetchableTopicResponse(topic_id=A, partitions=[data(0, error=ErrorCode.UNKNOWN_TOPIC_ID)])
    consumer.answer(flight, FetchResponse(session_id=7, responses=[told]))
    assert timestamps(consumer.listed({A0: 0})) == [EARLIEST]
    assert consumer.told() == [PositionReset(A0, 0, 0)]
    assert consumer.take() == [], "what was ahead was the old topic's"
    request, _ = consumer.fetch()
    assert (request.session_epoch, asked(request)) == (0, {(b"A" * 16, 0): 0})


def test_without_a_policy_a_topic_that_was_made_anew_is_raised() -> None:
    consumer = ScriptedConsumer("none")
    consumer.reading(A0, offset=5)
    _, flight = consumer.fetch()
    consumer.cluster.topic_ids["a"] = b"A" * 16
    consumer.answer(flight, ConnectionLost("cut"))
    for _ in range(2):
        consumer.advance(5.0)
        with pytest.raises(LogTruncation, match="created again"):
            consumer.take()
    request, flight = consumer.fetch()
    assert asked(request) == {(A, 0): 5}, "asked before the other topic was known of"
    consumer.answer(flight, FetchResponse(session_id=7))
    assert not consumer.asks(FetchRequest), "offset 5 of the other topic is another record"
    consumer.session.seek(consumer.now, A0, 0)
    assert asked(consumer.fetch()[0]) == {(b"A" * 16, 0): 0}


def test_a_missing_topic_is_asked_for_again_and_again_but_ever_more_slowly() -> None:
    consumer = ScriptedConsumer()
    del consumer.cluster.leaders[A0], consumer.cluster.leaders[A1]
    consumer.session.assign(consumer.now, {A0: 0})
    for _ in range(60):
        consumer.advance(0.1)
    assert 5 <= consumer.described <= 14
    consumer.cluster.leaders[A0] = 1
    consumer.advance(2.0)
    assert consumer.asks(FetchRequest)


def test_a_topic_that_may_not_be_read_is_raised_once() -> None:
    consumer = ScriptedConsumer()
    consumer.cluster.topic_errors["a"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    consumer.session.assign(consumer.now, {A0: 0})
    consumer.turn()
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        consumer.take()
    consumer.advance(3.0)
    assert consumer.take() == []
    consumer.cluster.topic_errors.clear()
    consumer.advance(3.0)
    assert consumer.asks(FetchRequest)


def test_topics_are_looked_at_anew_when_what_we_know_is_old() -> None:
    consumer = ScriptedConsumer(metadata_age_s=60.0)
    consumer.reading(A0)
    consumer.fetch()
    described = consumer.described
    consumer.advance(59.0)
    assert consumer.described == described
    consumer.advance(2.0)
    assert consumer.described == described + 1


# The policy's spelling


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("earliest", Reset(ResetKind.EARLIEST)),
        ("Latest", Reset(ResetKind.LATEST)),
        ("none", Reset(ResetKind.NONE)),
        ("by_duration:P1D", Reset(ResetKind.BY_DURATION, 86_400_000)),
        ("by_duration:P1DT2H3M4.5S", Reset(ResetKind.BY_DURATION, 93_784_500)),
    ],
)
def test_policies(text: str, reset: Reset) -> None:
    assert parse_reset(text) == reset


@pytest.mark.parametrize(
    "text", ["sometime", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1D"]
)
def test_policies_that_are_none(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"auto\.offset\.reset"):
        parse_reset(text)
