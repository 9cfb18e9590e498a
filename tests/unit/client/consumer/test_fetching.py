"""Reading ahead: which fetches leave, what their answers mean, and what is never asked for or handed out."""

from __future__ import annotations

import pytest

from harness.scripted_consumer import A0, A1, B0, ScriptedConsumer, asked, data, forgotten, offsets, rows
from headrace.client.consumer.fetcher import ANSWERS_AHEAD
from headrace.client.errors import BadResponse, ConnectionLost, KafkaError, UnsupportedByBroker
from headrace.client.session import FETCH
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
    consumer = ScriptedConsumer()
    consumer.reading(A0, A1)
    request, flight = consumer.fetch()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == {(A, 0): 0, (A, 1): 0}
    assert flight.lane == FETCH, "a long poll holds up nobody else"
    consumer.bring(flight, data(0, rows(0, 3)), data(1))
    request, flight = consumer.fetch()
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert asked(request) == {(A, 0): 3}, "partition 1 is where it was"
    consumer.bring(flight)
    request, _ = consumer.fetch()
    assert (request.session_epoch, asked(request), forgotten(request)) == (2, {}, [])


def test_a_paused_partition_is_taken_out_of_the_session_and_comes_back() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0, A1)
    _, flight = consumer.fetch()
    consumer.session.pause([A0])
    consumer.bring(flight, data(0), data(1))
    request, flight = consumer.fetch()
    assert forgotten(request) == [(A, 0)]
    consumer.session.resume([A0])
    consumer.bring(flight)
    request, _ = consumer.fetch()
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
    consumer = ScriptedConsumer()
    consumer.reading(A0, A1)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3)), data(1))
    _, flight = consumer.fetch()
    consumer.answer(flight, FetchResponse(error_code=code))
    assert not consumer.asks(FetchRequest), "not in a tight loop"
    request, _ = consumer.fetch()
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert asked(request) == {(A, 0): 3, (A, 1): 0}
    assert not consumer.session.has_error


def test_after_a_lost_answer_the_session_is_not_trusted() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3)))
    _, flight = consumer.fetch()
    described = consumer.described
    consumer.answer(flight, ConnectionLost("cut"))
    request, _ = consumer.fetch()
    assert (request.session_id, request.session_epoch, asked(request)) == (7, 0, {(A, 0): 3})
    assert consumer.described > described, "perhaps the leader has moved"


def test_a_broker_without_sessions_is_asked_in_full() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0, A1)
    for _ in range(3):
        request, flight = consumer.fetch()
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert len(asked(request)) == 2
        consumer.bring(flight, session=0)


def test_topics_without_ids_are_named() -> None:
    consumer = ScriptedConsumer()
    consumer.cluster.topic_ids["a"] = bytes(16)
    consumer.reading(A0)
    _, flight = consumer.fetch()
    assert flight.version_max == 12


def test_brokers_are_told_that_a_consumer_closes() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight)
    consumer.fetch()
    closing = consumer.session.close(consumer.now)
    request, last = consumer.fetch()
    assert (request.session_id, request.session_epoch, last.lane) == (7, -1, "")
    assert not closing.is_done
    consumer.answer(last, FetchResponse())
    assert closing.is_done
    assert closing.error is None


# Who is asked, and for how much


def test_each_broker_is_asked_for_its_own() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0, B0)
    first, to_first = consumer.fetch()
    second, to_second = consumer.fetch()
    assert (asked(first), asked(second)) == ({(A, 0): 0}, {(B, 0): 0})
    assert (str(to_first.to), str(to_second.to)) == ("broker1:9092", "broker2:9092")
    assert not consumer.asks(FetchRequest), "one at a time"


def test_a_partition_with_enough_ahead_is_not_asked_for() -> None:
    batch = rows(0, 10)
    consumer = ScriptedConsumer(partition_bytes_max=len(batch) // ANSWERS_AHEAD)
    consumer.reading(A0, A1)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, batch), data(1))
    request, flight = consumer.fetch()
    assert forgotten(request) == [(A, 0)]
    consumer.bring(flight)
    assert consumer.take(9) == offsets(0, 9)
    consumer.fetch()
    assert not consumer.session.needs_turn, "nothing has changed for the brokers"
    assert consumer.take(9) == offsets(9, 1)
    assert consumer.session.needs_turn


def test_nothing_is_fetched_from_where_it_is_not_wanted_on() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0, A1)
    consumer.session.fetch_until(A0, 4)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3)), data(1))
    request, flight = consumer.fetch()
    assert asked(request) == {(A, 0): 3}
    consumer.bring(flight, data(0, rows(3, 3)))
    request, _ = consumer.fetch()
    assert forgotten(request) == [(A, 0)]
    consumer.session.check()


def test_all_that_is_ahead_is_bounded_and_no_answer_may_exceed_the_room_that_is_left() -> None:
    batch = rows(0, 10)
    consumer = ScriptedConsumer(fetch_bytes_max=2 * len(batch))
    consumer.reading(A0, A1)
    request, flight = consumer.fetch()
    assert request.max_bytes == 2 * len(batch)
    consumer.bring(flight, data(0, batch))
    request, flight = consumer.fetch()
    assert request.max_bytes == len(batch)
    consumer.bring(flight, data(1, batch))
    assert not consumer.asks(FetchRequest)
    assert consumer.take(10) == offsets(0, 10)
    request, _ = consumer.fetch()
    assert request.max_bytes == len(batch)


def test_what_is_paused_does_not_hold_up_the_others() -> None:
    batch = rows(0, 10)
    consumer = ScriptedConsumer(fetch_bytes_max=len(batch))
    consumer.reading(A0, A1)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, batch))
    assert not consumer.asks(FetchRequest)
    consumer.session.pause([A0])
    request, flight = consumer.fetch()
    assert forgotten(request) == [(A, 0)]
    consumer.bring(flight, data(1, rows(0, 2)))
    assert consumer.take() == offsets(0, 2, partition=1)
    consumer.session.resume([A0])
    assert consumer.take() == offsets(0, 10), "it was kept"


def test_a_full_answer_starves_nobody() -> None:
    """Without a session it is the request's order that the broker goes by."""
    consumer = ScriptedConsumer()
    consumer.reading(A0, A1)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3)), session=0)
    request, _ = consumer.fetch()
    assert list(asked(request)) == [(A, 1), (A, 0)]


def test_a_broker_that_is_overloaded_is_left_alone_for_as_long_as_it_says() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.answer(flight, FetchResponse(session_id=7, throttle_time_ms=2000))
    consumer.advance(1.9)
    assert not consumer.asks(FetchRequest)
    consumer.advance(0.2)
    assert consumer.asks(FetchRequest)


# What is handed out


def test_partitions_take_turns() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0, A1)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3)), data(1, rows(0, 3)))
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(3, 3)))
    assert consumer.take(4) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert consumer.take() == [(1, 1), (1, 2), (0, 3), (0, 4), (0, 5)]
    assert consumer.take() == []


def test_positions_move_with_what_is_handed_out_and_not_with_what_is_fetched() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 5), end=12))
    assert (consumer.session.position(A0), consumer.session.lag(A0)) == (0, 12)
    consumer.take(2)
    assert (consumer.session.position(A0), consumer.session.lag(A0)) == (2, 10)
    assert consumer.session.metrics().lag == {A0: 10}


def test_an_answer_to_an_old_question_moves_nothing() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.session.seek(consumer.now, A0, 50)
    consumer.bring(flight, data(0, rows(0, 5)))
    assert (consumer.take(), consumer.session.position(A0)) == ([], 50)
    request, _ = consumer.fetch()
    assert asked(request) == {(A, 0): 50}


def test_seeking_back_to_where_the_question_was_asked_from_does_not_revive_its_answer() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.session.seek(consumer.now, A0, 50)
    consumer.session.seek(consumer.now, A0, 0)
    consumer.bring(flight, data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert consumer.session.position(A0) == 0


def test_an_answer_for_a_partition_that_came_back_is_not_its_own() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.session.assign(consumer.now, {A1: 0})
    consumer.session.assign(consumer.now, {A0: 0})
    consumer.bring(flight, data(0, rows(0, 5)))
    assert consumer.take() == []


def test_seeking_drops_what_was_ahead() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 5)))
    assert consumer.take(2) == offsets(0, 2)
    consumer.session.seek(consumer.now, A0, 1)
    assert consumer.take() == []
    request, flight = consumer.fetch()
    consumer.bring(flight, data(0))  # it was asked before the seek
    request, flight = consumer.fetch()
    assert asked(request) == {(A, 0): 1}
    consumer.bring(flight, data(0, rows(0, 5)))
    assert consumer.take() == offsets(1, 4)


def test_what_came_for_a_paused_partition_is_kept() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.session.pause([A0])
    consumer.bring(flight, data(0, rows(0, 5)))
    assert consumer.take() == []
    assert not consumer.session.has_news
    assert consumer.session.paused == {A0}
    consumer.session.resume([A0])
    assert consumer.take() == offsets(0, 5)


# Errors


def test_a_partition_whose_leader_moved_is_asked_for_there_with_the_brokers_hint() -> None:
    """KIP-951: no other question is needed."""
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    described = consumer.described
    moved = data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    moved.current_leader = LeaderIdAndEpoch(leader_id=5, leader_epoch=3)
    consumer.answer(
        flight,
        FetchResponse(
            session_id=7,
            node_endpoints=[NodeEndpoint(node_id=5, host="new", port=9)],
            responses=[FetchableTopicResponse(topic_id=A, partitions=[moved])],
        ),
    )
    request, flight = consumer.fetch()
    assert (str(flight.to), consumer.described) == ("new:9", described)
    assert request.topics[0].partitions[0].current_leader_epoch == 3


def test_a_moved_leader_without_a_hint_is_looked_for() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.cluster.leaders[A0] = 2
    consumer.cluster.epochs[A0] = 1
    consumer.bring(flight, data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    request, flight = consumer.fetch()
    assert str(flight.to) == "broker2:9092"
    assert request.topics[0].partitions[0].current_leader_epoch == 1
    assert not consumer.session.has_error


def test_a_lost_broker_does_not_hold_up_the_others() -> None:
    """Nobody says where its partitions went, and the rest of the topic is read on."""
    consumer = ScriptedConsumer()
    consumer.cluster.leaders[A1] = 2
    consumer.reading(A0, A1)
    _, first = consumer.fetch()
    _, second = consumer.fetch()
    consumer.cluster.describes_topics = False
    consumer.answer(first, ConnectionLost("cut"))
    for offset in range(3):
        consumer.bring(second, data(1, rows(offset, 1)))
        request, second = consumer.fetch()
        assert asked(request) == {(A, 1): offset + 1}
    assert consumer.take() == offsets(0, 3, partition=1)


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_what_the_application_must_know_is_raised_once_it_has_had_what_came_before(code: ErrorCode) -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3)))
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, error=code))
    assert consumer.take(2) == offsets(0, 2)
    assert consumer.take(2) == offsets(2, 1)
    with pytest.raises(KafkaError) as raised:
        consumer.take()
    assert raised.value.code == code
    request, _ = consumer.fetch()
    assert asked(request) == {}, "whoever reads on, reads on: the session has it where it was"


def test_an_error_of_a_partition_that_was_left_meanwhile_is_nobodys() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert consumer.session.has_error
    consumer.session.seek(consumer.now, A0, 4)
    assert not consumer.session.has_error
    assert consumer.take() == []


def test_a_broker_that_cannot_be_used_at_all_is_told_of() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.answer(flight, UnsupportedByBroker("Fetch"))
    with pytest.raises(UnsupportedByBroker):
        consumer.take()


def test_damaged_records_are_raised_where_they_lie_and_fetched_anew() -> None:
    damaged = bytearray(rows(3, 3))
    damaged[-1] ^= 1
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3) + bytes(damaged)))
    assert consumer.take() == offsets(0, 3)
    with pytest.raises(BadResponse, match="a-0 at offset 3"):
        consumer.take()
    assert consumer.session.position(A0) == 3
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0))  # asked from behind the damage
    request, flight = consumer.fetch()
    assert asked(request) == {(A, 0): 3}
    consumer.bring(flight, data(0, rows(3, 3)))
    assert consumer.take() == offsets(3, 3)


def test_records_that_lead_nowhere_are_an_error_and_no_endless_loop() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0, offset=10)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3)))
    with pytest.raises(BadResponse, match="do not reach offset 10"):
        consumer.take()


def test_bytes_that_are_no_batch_are_an_error() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, b"\xff" * 100))
    with pytest.raises(BadResponse, match="broken records"):
        consumer.take()
