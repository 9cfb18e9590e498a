"""Reading ahead: which fetches leave, what their answers mean, and what is never asked for or handed out."""

from __future__ import annotations

import pytest

from harness.consumer_stage import A0, A1, B0, Stage, asked, data, forgotten, offsets, rows
from headrace.client.consumer.fetcher import ANSWERS_AHEAD
from headrace.client.errors import BadResponse, ConnectionLost, KafkaError, UnsupportedByBroker
from headrace.client.request_queue import FETCH
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)

A, B = b"a" * 16, b"b" * 16


# Sessions (KIP-227)


def test_the_first_fetch_lists_everything_and_the_next_only_what_is_new() -> None:
    stage = Stage()
    stage.reading(A0, A1)
    request, flight = stage.fetch()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == {(A, 0): 0, (A, 1): 0}
    assert flight.lane == FETCH, "a long poll holds up nobody else"
    stage.bring(flight, data(0, rows(0, 3)), data(1))
    request, flight = stage.fetch()
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert asked(request) == {(A, 0): 3}, "partition 1 is where it was"
    stage.bring(flight)
    request, _ = stage.fetch()
    assert (request.session_epoch, asked(request), forgotten(request)) == (2, {}, [])


def test_a_paused_partition_is_taken_out_of_the_session_and_comes_back() -> None:
    stage = Stage()
    stage.reading(A0, A1)
    _, flight = stage.fetch()
    stage.session.pause([A0])
    stage.bring(flight, data(0), data(1))
    request, flight = stage.fetch()
    assert forgotten(request) == [(A, 0)]
    stage.session.resume([A0])
    stage.bring(flight)
    request, _ = stage.fetch()
    assert (asked(request), forgotten(request)) == ({(A, 0): 0}, [])


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),  # the old one is ended by the new one
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_a_session_that_the_broker_does_not_know_begins_anew(code: ErrorCode, session_id: int) -> None:
    stage = Stage()
    stage.reading(A0, A1)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 3)), data(1))
    _, flight = stage.fetch()
    stage.answer(flight, FetchResponse(error_code=code))
    assert not stage.asks(FetchRequest), "not in a tight loop"
    request, _ = stage.fetch()
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert asked(request) == {(A, 0): 3, (A, 1): 0}
    assert not stage.session.has_error


def test_after_a_lost_answer_the_session_is_not_trusted() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 3)))
    _, flight = stage.fetch()
    described = stage.described
    stage.answer(flight, ConnectionLost("cut"))
    request, _ = stage.fetch()
    assert (request.session_id, request.session_epoch, asked(request)) == (7, 0, {(A, 0): 3})
    assert stage.described > described, "perhaps the leader has moved"


def test_a_broker_without_sessions_is_asked_in_full() -> None:
    stage = Stage()
    stage.reading(A0, A1)
    for _ in range(3):
        request, flight = stage.fetch()
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert len(asked(request)) == 2
        stage.bring(flight, session=0)


def test_topics_without_ids_are_named() -> None:
    stage = Stage()
    stage.topic_ids["a"] = bytes(16)
    stage.reading(A0)
    _, flight = stage.fetch()
    assert flight.version_max == 12


def test_brokers_are_told_that_a_consumer_closes() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight)
    stage.fetch()
    closing = stage.session.close(stage.now)
    request, last = stage.fetch()
    assert (request.session_id, request.session_epoch, last.lane) == (7, -1, "")
    assert not closing.is_done
    stage.answer(last, FetchResponse())
    assert closing.is_done
    assert closing.error is None


# Who is asked, and for how much


def test_each_broker_is_asked_for_its_own() -> None:
    stage = Stage()
    stage.reading(A0, B0)
    first, to_first = stage.fetch()
    second, to_second = stage.fetch()
    assert (asked(first), asked(second)) == ({(A, 0): 0}, {(B, 0): 0})
    assert (str(to_first.to), str(to_second.to)) == ("broker1:9092", "broker2:9092")
    assert not stage.asks(FetchRequest), "one at a time"


def test_a_partition_with_enough_ahead_is_not_asked_for() -> None:
    batch = rows(0, 10)
    stage = Stage(partition_bytes_max=len(batch) // ANSWERS_AHEAD)
    stage.reading(A0, A1)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, batch), data(1))
    request, flight = stage.fetch()
    assert forgotten(request) == [(A, 0)]
    stage.bring(flight)
    assert stage.take(9) == offsets(0, 9)
    stage.fetch()
    assert not stage.session.needs_turn, "nothing has changed for the brokers"
    assert stage.take(9) == offsets(9, 1)
    assert stage.session.needs_turn


def test_nothing_is_fetched_from_where_it_is_not_wanted_on() -> None:
    stage = Stage()
    stage.reading(A0, A1)
    stage.session.fetch_until(A0, 4)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 3)), data(1))
    request, flight = stage.fetch()
    assert asked(request) == {(A, 0): 3}
    stage.bring(flight, data(0, rows(3, 3)))
    request, _ = stage.fetch()
    assert forgotten(request) == [(A, 0)]
    stage.session.check()


def test_all_that_is_ahead_is_bounded_and_no_answer_may_exceed_the_room_that_is_left() -> None:
    batch = rows(0, 10)
    stage = Stage(fetch_bytes_max=2 * len(batch))
    stage.reading(A0, A1)
    request, flight = stage.fetch()
    assert request.max_bytes == 2 * len(batch)
    stage.bring(flight, data(0, batch))
    request, flight = stage.fetch()
    assert request.max_bytes == len(batch)
    stage.bring(flight, data(1, batch))
    assert not stage.asks(FetchRequest)
    assert stage.take(10) == offsets(0, 10)
    request, _ = stage.fetch()
    assert request.max_bytes == len(batch)


def test_what_is_paused_does_not_hold_up_the_others() -> None:
    batch = rows(0, 10)
    stage = Stage(fetch_bytes_max=len(batch))
    stage.reading(A0, A1)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, batch))
    assert not stage.asks(FetchRequest)
    stage.session.pause([A0])
    request, flight = stage.fetch()
    assert forgotten(request) == [(A, 0)]
    stage.bring(flight, data(1, rows(0, 2)))
    assert stage.take() == offsets(0, 2, partition=1)
    stage.session.resume([A0])
    assert stage.take() == offsets(0, 10), "it was kept"


def test_a_full_answer_starves_nobody() -> None:
    """Without a session it is the request's order that the broker goes by."""
    stage = Stage()
    stage.reading(A0, A1)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 3)), session=0)
    request, _ = stage.fetch()
    assert list(asked(request)) == [(A, 1), (A, 0)]


def test_a_broker_that_is_overloaded_is_left_alone_for_as_long_as_it_says() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.answer(flight, FetchResponse(session_id=7, throttle_time_ms=2000))
    stage.advance(1.9)
    assert not stage.asks(FetchRequest)
    stage.advance(0.2)
    assert stage.asks(FetchRequest)


# What is handed out


def test_partitions_take_turns() -> None:
    stage = Stage()
    stage.reading(A0, A1)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 3)), data(1, rows(0, 3)))
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(3, 3)))
    assert stage.take(4) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert stage.take() == [(1, 1), (1, 2), (0, 3), (0, 4), (0, 5)]
    assert stage.take() == []


def test_positions_move_with_what_is_handed_out_and_not_with_what_is_fetched() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 5), end=12))
    assert (stage.session.position(A0), stage.session.lag(A0)) == (0, 12)
    stage.take(2)
    assert (stage.session.position(A0), stage.session.lag(A0)) == (2, 10)
    assert stage.session.metrics().lag == {A0: 10}


def test_an_answer_to_an_old_question_moves_nothing() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.session.seek(stage.now, A0, 50)
    stage.bring(flight, data(0, rows(0, 5)))
    assert (stage.take(), stage.session.position(A0)) == ([], 50)
    request, _ = stage.fetch()
    assert asked(request) == {(A, 0): 50}


def test_seeking_back_to_where_the_question_was_asked_from_does_not_revive_its_answer() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.session.seek(stage.now, A0, 50)
    stage.session.seek(stage.now, A0, 0)
    stage.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert stage.session.position(A0) == 0


def test_an_answer_for_a_partition_that_came_back_is_not_its_own() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.session.assign(stage.now, {A1: 0})
    stage.session.assign(stage.now, {A0: 0})
    stage.bring(flight, data(0, rows(0, 5)))
    assert stage.take() == []


def test_seeking_drops_what_was_ahead() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 5)))
    assert stage.take(2) == offsets(0, 2)
    stage.session.seek(stage.now, A0, 1)
    assert stage.take() == []
    request, flight = stage.fetch()
    stage.bring(flight, data(0))  # it was asked before the seek
    request, flight = stage.fetch()
    assert asked(request) == {(A, 0): 1}
    stage.bring(flight, data(0, rows(0, 5)))
    assert stage.take() == offsets(1, 4)


def test_what_came_for_a_paused_partition_is_kept() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.session.pause([A0])
    stage.bring(flight, data(0, rows(0, 5)))
    assert stage.take() == []
    assert not stage.session.has_news
    assert stage.session.paused == {A0}
    stage.session.resume([A0])
    assert stage.take() == offsets(0, 5)


# Errors


def test_a_partition_whose_leader_moved_is_asked_for_there_with_the_brokers_hint() -> None:
    """KIP-951: no other question is needed."""
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    described = stage.described
    moved = data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    moved.current_leader = LeaderIdAndEpoch(leader_id=5, leader_epoch=3)
    stage.answer(
        flight,
        FetchResponse(
            session_id=7,
            node_endpoints=[NodeEndpoint(node_id=5, host="new", port=9)],
            responses=[FetchableTopicResponse(topic_id=A, partitions=[moved])],
        ),
    )
    request, flight = stage.fetch()
    assert (str(flight.to), stage.described) == ("new:9", described)
    assert request.topics[0].partitions[0].current_leader_epoch == 3


def test_a_moved_leader_without_a_hint_is_looked_for() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.leaders[A0] = 2
    stage.epochs[A0] = 1
    stage.bring(flight, data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    request, flight = stage.fetch()
    assert str(flight.to) == "broker2:9092"
    assert request.topics[0].partitions[0].current_leader_epoch == 1
    assert not stage.session.has_error


def test_a_lost_broker_does_not_hold_up_the_others() -> None:
    """Nobody says where its partitions went, and the rest of the topic is read on."""
    stage = Stage()
    stage.leaders[A1] = 2
    stage.reading(A0, A1)
    _, first = stage.fetch()
    _, second = stage.fetch()
    stage.describes = False
    stage.answer(first, ConnectionLost("cut"))
    for offset in range(3):
        stage.bring(second, data(1, rows(offset, 1)))
        request, second = stage.fetch()
        assert asked(request) == {(A, 1): offset + 1}
    assert stage.take() == offsets(0, 3, partition=1)


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_what_the_application_must_know_is_raised_once_it_has_had_what_came_before(code: ErrorCode) -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 3)))
    _, flight = stage.fetch()
    stage.bring(flight, data(0, error=code))
    assert stage.take(2) == offsets(0, 2)
    assert stage.take(2) == offsets(2, 1)
    with pytest.raises(KafkaError) as raised:
        stage.take()
    assert raised.value.code == code
    request, _ = stage.fetch()
    assert asked(request) == {}, "whoever reads on, reads on: the session has it where it was"


def test_an_error_of_a_partition_that_was_left_meanwhile_is_nobodys() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert stage.session.has_error
    stage.session.seek(stage.now, A0, 4)
    assert not stage.session.has_error
    assert stage.take() == []


def test_a_broker_that_cannot_be_used_at_all_is_told_of() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.answer(flight, UnsupportedByBroker("Fetch"))
    with pytest.raises(UnsupportedByBroker):
        stage.take()


def test_damaged_records_are_raised_where_they_lie_and_fetched_anew() -> None:
    damaged = bytearray(rows(3, 3))
    damaged[-1] ^= 1
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 3) + bytes(damaged)))
    assert stage.take() == offsets(0, 3)
    with pytest.raises(BadResponse, match="a-0 at offset 3"):
        stage.take()
    assert stage.session.position(A0) == 3
    _, flight = stage.fetch()
    stage.bring(flight, data(0))  # asked from behind the damage
    request, flight = stage.fetch()
    assert asked(request) == {(A, 0): 3}
    stage.bring(flight, data(0, rows(3, 3)))
    assert stage.take() == offsets(3, 3)


def test_records_that_lead_nowhere_are_an_error_and_no_endless_loop() -> None:
    stage = Stage()
    stage.reading(A0, offset=10)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, rows(0, 3)))
    with pytest.raises(BadResponse, match="do not reach offset 10"):
        stage.take()


def test_bytes_that_are_no_batch_are_an_error() -> None:
    stage = Stage()
    stage.reading(A0)
    _, flight = stage.fetch()
    stage.bring(flight, data(0, b"\xff" * 100))
    with pytest.raises(BadResponse, match="broken records"):
        stage.take()
