"""Where reading begins and goes on: resets, leader epochs, truncated logs, topics that are created again."""

from __future__ import annotations

import pytest

from harness.consumer_stage import A0, A1, WALL_MS, Stage, asked, data, offsets, rows
from headrace.client.consumer.position import LogTruncated, PositionReset
from headrace.client.errors import (
    ConnectionLost,
    InvalidInput,
    KafkaError,
    LogTruncation,
    NoOffset,
    UnsupportedByBroker,
)
from headrace.client.settings.configuration import InvalidSetting
from headrace.client.settings.consumer import Reset, ResetKind, parse_reset
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
    stage = Stage(reset)
    stage.session.assign(stage.now, [A0, A1])
    assert stage.session.position(A0) is None
    request = stage.listed({A0: 5, A1: 9})
    assert timestamps(request) == [timestamp, timestamp], "one question for both"
    fetch, _ = stage.fetch()
    assert asked(fetch) == {(A, 0): 5, (A, 1): 9}
    assert (stage.session.position(A0), stage.session.position(A1)) == (5, 9)
    assert stage.told() == [PositionReset(A0, None, 5), PositionReset(A1, None, 9)]


def test_by_duration_goes_to_the_end_where_nothing_is_that_late() -> None:
    stage = Stage("by_duration:PT1H")
    stage.session.assign(stage.now, [A0])
    stage.listed({A0: -1})
    assert timestamps(stage.listed({A0: 42})) == [LATEST]
    assert stage.session.position(A0) == 42


def test_without_a_policy_the_application_has_to_say() -> None:
    stage = Stage("none")
    stage.session.assign(stage.now, [A0])
    stage.turn()
    with pytest.raises(NoOffset, match="a-0"):
        stage.take()
    stage.advance(5.0)
    with pytest.raises(NoOffset):
        stage.session.position(A0)
    stage.session.seek(stage.now, A0, 3)
    assert stage.session.position(A0) == 3
    assert stage.take() == []
    assert asked(stage.fetch()[0]) == {(A, 0): 3}


def test_what_is_given_is_not_asked_for() -> None:
    stage = Stage()
    stage.session.assign(stage.now, {A0: 4})
    assert asked(stage.fetch()[0]) == {(A, 0): 4}
    assert not stage.asks(ListOffsetsRequest)


def test_a_position_that_is_sought_is_not_moved_by_the_answer_that_was_on_its_way() -> None:
    stage = Stage()
    stage.session.assign(stage.now, [A0])
    stage.turn()
    stage.session.seek(stage.now, A0, 7)
    stage.listed({A0: 3})
    assert stage.session.position(A0) == 7
    assert stage.told() == []


def test_listing_is_tried_again_at_another_leader() -> None:
    stage = Stage()
    stage.session.assign(stage.now, [A0])
    stage.turn()
    stage.leaders[A0] = 2
    stage.listed({}, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not stage.asks(ListOffsetsRequest)
    _, outgoing = stage.next(ListOffsetsRequest)
    assert str(outgoing.to) == "broker2:9092"


def test_seeking_to_the_ends() -> None:
    stage = Stage("none")
    stage.reading(A0, A1)
    stage.session.seek_to_end(stage.now, [A0])
    assert stage.session.position(A0) is None
    assert timestamps(stage.listed({A0: 30})) == [LATEST]
    stage.session.seek_to_beginning(stage.now)
    assert timestamps(stage.listed({A0: 2, A1: 3})) == [EARLIEST, EARLIEST]
    assert stage.session.positions().keys() == {A0, A1}
    assert (stage.session.position(A0), stage.session.position(A1)) == (2, 3)
    assert stage.told() == [], "who seeks knows it"


def test_only_what_is_assigned_has_a_position() -> None:
    stage = Stage()
    stage.reading(A0)
    for call in (
        lambda: stage.session.position(A1),
        lambda: stage.session.seek(stage.now, A1, 0),
        lambda: stage.session.pause([A1]),
        lambda: stage.session.lag(A1),
        lambda: stage.session.seek_to_end(stage.now, [A1]),
    ):
        with pytest.raises(InvalidInput, match="a-1 is not assigned"):
            call()
    with pytest.raises(InvalidInput, match="negative"):
        stage.session.seek(stage.now, A0, -1)


# Out of range


def test_out_of_range_resets() -> None:
    stage = Stage("latest")
    stage.reading(A0, offset=3)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert timestamps(stage.listed({A0: 90})) == [LATEST]
    assert stage.told() == [PositionReset(A0, 3, 90)]
    assert asked(stage.fetch()[0]) == {(A, 0): 90}


def test_out_of_range_ahead_of_the_application_waits_for_it() -> None:
    """The leader may have lost what lies behind the records that we have; those are handed out first."""
    stage = Stage("latest")
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 3)))
    _, flight = stage.fetch()
    stage.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert not stage.asks(ListOffsetsRequest)
    assert not stage.asks(FetchRequest)
    assert stage.take() == offsets(0, 3)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    stage.listed({A0: 90})
    assert stage.session.position(A0) == 90


def test_out_of_range_without_a_policy_is_raised_each_time_it_is_tried() -> None:
    stage = Stage("none")
    stage.reading(A0, offset=3)
    for _ in range(2):
        _, flight = stage.fetch()
        stage.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
        with pytest.raises(KafkaError, match="offset 3 of partition a-0"):
            stage.take()
    assert stage.session.position(A0) == 3


# Leaders' epochs (KIP-320)


def epoch_end(stage: Stage, epoch: int, end: int, error: int = 0) -> OffsetForLeaderEpochRequest:
    request, outgoing = stage.next(OffsetForLeaderEpochRequest)
    told = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end, error_code=error)
    answer = OffsetForLeaderTopicResult(topic="a", partitions=[told])
    stage.answer(outgoing, OffsetForLeaderEpochResponse(topics=[answer]))
    return request


def read_under_epoch_0(stage: Stage, count: int, taken: int) -> None:
    """Then the leader changes."""
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, count, epoch=0)))
    assert len(stage.take(taken)) == taken if taken else True
    _, flight = stage.fetch()
    stage.leaders[A0] = 2
    stage.epochs[A0] = 4
    stage.bring(flight, data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))


def test_a_new_leader_is_asked_whether_it_has_what_we_read() -> None:
    stage = Stage()
    read_under_epoch_0(stage, 5, taken=5)
    request = epoch_end(stage, 0, 5)
    (question,) = request.topics[0].partitions
    assert (request.replica_id, question.current_leader_epoch, question.leader_epoch) == (-1, 4, 0)
    fetch, flight = stage.fetch()
    assert (asked(fetch), str(flight.to)) == ({(A, 0): 5}, "broker2:9092")
    assert fetch.topics[0].partitions[0].current_leader_epoch == 4
    assert stage.told() == []


def test_nothing_is_fetched_before_that_is_known() -> None:
    stage = Stage()
    read_under_epoch_0(stage, 5, taken=5)
    _, outgoing = stage.next(OffsetForLeaderEpochRequest)
    assert not stage.asks(FetchRequest)
    stage.answer(outgoing, ConnectionLost("cut"))
    assert not stage.asks(FetchRequest)
    epoch_end(stage, 0, 5)
    assert stage.asks(FetchRequest)


def test_reading_goes_on_where_the_logs_part() -> None:
    stage = Stage("latest")
    read_under_epoch_0(stage, 5, taken=5)
    epoch_end(stage, 0, 3)
    assert stage.told() == [LogTruncated(A0, 5, 3)]
    assert stage.session.position(A0) == 3
    epoch_end(stage, 0, 3)  # what lies before is of an earlier epoch still
    assert asked(stage.fetch()[0]) == {(A, 0): 3}


def test_without_a_policy_a_truncated_log_is_raised_until_the_application_seeks() -> None:
    stage = Stage("none")
    read_under_epoch_0(stage, 5, taken=5)
    for _ in range(2):
        epoch_end(stage, 0, 3)
        with pytest.raises(LogTruncation) as raised:
            stage.take()
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("a", 0, 3)
    stage.session.seek(stage.now, A0, 3)
    assert asked(stage.fetch()[0]) == {(A, 0): 3}


def test_a_leader_that_knows_nothing_of_our_epoch_resets() -> None:
    stage = Stage("earliest")
    read_under_epoch_0(stage, 5, taken=5)
    epoch_end(stage, -1, -1)
    stage.listed({A0: 0})
    assert stage.told() == [PositionReset(A0, 5, 0)]


def test_what_was_fetched_ahead_is_dropped_first_and_what_was_handed_out_may_still_be_there() -> None:
    stage = Stage()
    read_under_epoch_0(stage, 5, taken=2)
    epoch_end(stage, 0, 3)  # of 5
    assert stage.take() == [], "offsets 3 and 4 are others now"
    epoch_end(stage, 0, 3)  # of 2
    assert stage.told() == []
    assert asked(stage.fetch()[0]) == {(A, 0): 2}


def test_what_was_fetched_ahead_may_be_read_while_the_leader_is_asked() -> None:
    stage = Stage()
    read_under_epoch_0(stage, 5, taken=2)
    _, outgoing = stage.next(OffsetForLeaderEpochRequest)
    assert stage.take() == offsets(2, 3)
    told = EpochEndOffset(partition=0, leader_epoch=0, end_offset=5)
    answer = OffsetForLeaderTopicResult(topic="a", partitions=[told])
    stage.answer(outgoing, OffsetForLeaderEpochResponse(topics=[answer]))
    assert stage.told() == []
    assert asked(stage.fetch()[0]) == {(A, 0): 5}


def test_what_the_old_leader_still_answers_is_not_trusted() -> None:
    stage = Stage(metadata_age_s=60.0)
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 5, epoch=0)))
    assert stage.take() == offsets(0, 5)
    _, flight = stage.fetch()
    stage.leaders[A0] = 2
    stage.epochs[A0] = 4
    stage.advance(61.0)  # the topic is looked at again while the long poll waits
    stage.bring(flight, data(0, rows(5, 2, epoch=0)))
    assert stage.take() == []
    epoch_end(stage, 0, 5)
    assert asked(stage.fetch()[0]) == {(A, 0): 5}


def test_a_fenced_question_is_asked_again_when_more_is_known() -> None:
    stage = Stage()
    read_under_epoch_0(stage, 5, taken=5)
    described = stage.described
    epoch_end(stage, -1, -1, error=ErrorCode.FENCED_LEADER_EPOCH)
    assert stage.described > described
    epoch_end(stage, 0, 5)
    assert stage.asks(FetchRequest)


def test_a_broker_that_cannot_say_is_trusted() -> None:
    stage = Stage()
    read_under_epoch_0(stage, 5, taken=5)
    _, outgoing = stage.next(OffsetForLeaderEpochRequest)
    stage.answer(outgoing, UnsupportedByBroker("OffsetForLeaderEpoch"))
    assert stage.asks(FetchRequest)
    assert not stage.session.has_error


def test_within_an_epoch_nobody_is_asked() -> None:
    stage = Stage()
    stage.epochs[A0] = 4
    stage.session.assign(stage.now, [A0])
    stage.session.seek(stage.now, A0, 9, leader_epoch=4)
    assert asked(stage.fetch()[0]) == {(A, 0): 9}
    assert not stage.asks(OffsetForLeaderEpochRequest)


def test_a_position_with_an_older_epoch_is_checked_before_the_first_fetch() -> None:
    stage = Stage()
    stage.epochs[A0] = 4
    stage.session.assign(stage.now, [A0])
    stage.session.seek(stage.now, A0, 9, leader_epoch=2)
    epoch_end(stage, 2, 8)
    assert stage.told() == [LogTruncated(A0, 9, 8)]


# Topics


def test_a_topic_that_was_made_anew_is_read_from_its_beginning() -> None:
    stage = Stage("latest")
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 5)))
    _, flight = stage.fetch()
    stage.topic_ids["a"] = b"A" * 16
    told = FetchableTopicResponse(topic_id=A, partitions=[data(0, error=ErrorCode.UNKNOWN_TOPIC_ID)])
    stage.answer(flight, FetchResponse(session_id=7, responses=[told]))
    assert timestamps(stage.listed({A0: 0})) == [EARLIEST]
    assert stage.told() == [PositionReset(A0, 0, 0)]
    assert stage.take() == [], "what was ahead was the old topic's"
    request, _ = stage.fetch()
    assert (request.session_epoch, asked(request)) == (0, {(b"A" * 16, 0): 0})


def test_without_a_policy_a_topic_that_was_made_anew_is_raised() -> None:
    stage = Stage("none")
    stage.reading(A0, offset=5)
    _, flight = stage.fetch()
    stage.topic_ids["a"] = b"A" * 16
    stage.answer(flight, ConnectionLost("cut"))
    for _ in range(2):
        stage.advance(5.0)
        with pytest.raises(LogTruncation, match="created again"):
            stage.take()
    request, flight = stage.fetch()
    assert asked(request) == {(A, 0): 5}, "asked before the other topic was known of"
    stage.answer(flight, FetchResponse(session_id=7))
    assert not stage.asks(FetchRequest), "offset 5 of the other topic is another record"
    stage.session.seek(stage.now, A0, 0)
    assert asked(stage.fetch()[0]) == {(b"A" * 16, 0): 0}


def test_a_missing_topic_is_asked_for_again_and_again_but_ever_more_slowly() -> None:
    stage = Stage()
    del stage.leaders[A0], stage.leaders[A1]
    stage.session.assign(stage.now, {A0: 0})
    for _ in range(60):
        stage.advance(0.1)
    assert 5 <= stage.described <= 14
    stage.leaders[A0] = 1
    stage.advance(2.0)
    assert stage.asks(FetchRequest)


def test_a_topic_that_may_not_be_read_is_raised_once() -> None:
    stage = Stage()
    stage.topic_errors["a"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    stage.session.assign(stage.now, {A0: 0})
    stage.turn()
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        stage.take()
    stage.advance(3.0)
    assert stage.take() == []
    stage.topic_errors.clear()
    stage.advance(3.0)
    assert stage.asks(FetchRequest)


def test_topics_are_looked_at_anew_when_what_we_know_is_old() -> None:
    stage = Stage(metadata_age_s=60.0)
    stage.reading(A0)
    stage.fetch()
    described = stage.described
    stage.advance(59.0)
    assert stage.described == described
    stage.advance(2.0)
    assert stage.described == described + 1


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
