"""Quotas of clients: what is counted, what the answer tells, and until when the connection is muted, in the
ordinary way and on the fast paths.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest

from harness.node_groups import SETTINGS, find
from harness.second_replica import add_second, second_fetches
from headrace.base.time import Instant, Now
from headrace.machines.security.rates import DEFAULT_WINDOWS, Rate
from headrace.node.connection import Connection
from headrace.node.effects import Mute
from headrace.node.parked_fetches import ParkedFastFetch
from headrace.node.quotas import ClientMeters
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.records.builder import build_batch
from headrace.simulator.frames import request_bytes
from headrace.simulator.manual_host import ManualHost

BATCH = build_batch([(1_700_000_000_000, None, b"v" * 895, ())])  # so that a request has 1,000 bytes
CLIENT_ID = "test"  # of all requests of a ManualHost
PRODUCE_VERSION, FETCH_VERSION, COMMIT_VERSION = 9, 12, 9
WINDOWS_S = 10  # whole windows over which a rate is measured: eleven, and one of them is the current one


def alter(host: ManualHost, key: str, value: float | None, **entity: str | None) -> None:
    """Sets or removes a quota; None as a name is the default."""
    parts = [
        EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()
    ]
    op = OpData(key=key, value=value or 0.0, remove=value is None)
    (result,) = host.ask(AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=[op])]), 1).entries
    assert result.error_code == 0, result


class Client:
    """One connection that sends the same kind of request again and again."""

    def __init__(self, kind: str, **settings: str) -> None:
        self.kind = kind
        self.host = ManualHost(SETTINGS | {key.replace("_", "."): value for key, value in settings.items()})
        self.host.create_topic("t")
        find(self.host, "g")
        self.connection = self.host.connect()
        self.session_id, self.epoch, self.offset = 0, 0, 0
        self.host.ask(self.host.produce_request("t", BATCH), PRODUCE_VERSION)
        self.host.effects.clear()

    def request(self, **more: Any) -> tuple[Any, int]:
        match self.kind:
            case "produce":
                return self.host.produce_request("t", BATCH, **{"acks": 1, **more}), PRODUCE_VERSION
            case "commit":
                self.offset += 1
                partition = OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=self.offset, committed_metadata=""
                )
                topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
                commit = OffsetCommitRequest(
                    group_id="g", generation_id_or_member_epoch=-1, topics=[topic], **more
                )
                return commit, COMMIT_VERSION
            case "metadata":
                return MetadataRequest(topics=None), 9
        offset = more.pop("offset", 0)
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
        epoch = self.epoch if self.kind == "session" else -1
        fetch = FetchRequest(
            session_id=self.session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000, **more},
        )
        return fetch, FETCH_VERSION

    def ask(self, **more: Any) -> Any:
        answer = self.host.ask(*self.request(**more), self.connection)
        self.note(answer)
        return answer

    def note(self, answer: Any) -> None:
        if self.kind == "session" and answer is not None:
            self.session_id = answer.session_id
            self.epoch = self.epoch + 1 if self.session_id else 0

    def learn(self, **more: Any) -> None:
        """Puts this kind of request on its fast path."""
        for _ in range(3):
            self.ask(**more)
        assert (self.connection.fast_path is not None) == (self.kind != "metadata")

    def frame_bytes(self) -> int:
        request, version = self.request()
        return len(request_bytes(type(request).KEY, version, 1, CLIENT_ID, request))

    def mutes(self) -> list[Instant]:
        """Until when this connection was muted, each time since the last question."""
        found = [
            e.until for e in self.host.effects if isinstance(e, Mute) and e.connection is self.connection
        ]
        self.host.effects.clear()
        return found


KEYS = {
    "produce": "producer_byte_rate",
    "fetch": "consumer_byte_rate",
    "session": "consumer_byte_rate",
    "commit": "request_percentage",
    "metadata": "request_percentage",
}
WAYS = [pytest.param(False, id="ordinary"), pytest.param(True, id="fast")]


def over(host: ManualHost, seconds: float) -> Instant:
    return Instant(host.clock.mono + seconds)


# --- producers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_fast", WAYS)
def test_a_producer_above_its_rate_is_told_and_muted_from_its_answer_on(is_fast: bool) -> None:
    """The bytes of whole requests count; what makes ten seconds of the rate is free."""
    client = Client("produce")
    if is_fast:
        client.learn()
    host, size = client.host, client.frame_bytes()
    alter(host, "producer_byte_rate", size / WINDOWS_S, client_id=CLIENT_ID)
    assert client.ask().throttle_time_ms == 0
    assert client.mutes() == []
    for number in (1, 2, 3):  # each is as much as ten seconds allow
        if not is_fast:
            client.connection.fast_path = None
        answer = client.ask()
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms == number * WINDOWS_S * 1000
        assert client.mutes() == [over(host, number * WINDOWS_S)]
    assert host.partitions("t")[0].high_watermark == 5 + 3 * is_fast, "what was sent is taken"


@pytest.mark.parametrize("is_fast", WAYS)
def test_a_steady_producer_is_throttled_by_what_it_sent_in_the_last_windows(is_fast: bool) -> None:
    client = Client("produce")
    alter(client.host, "producer_byte_rate", 400, user=None)
    told = []
    for _ in range(12):
        if not is_fast:
            client.connection.fast_path = None
        told.append(client.ask().throttle_time_ms)
        client.host.advance(0.25)
    size = client.frame_bytes()
    used = 0
    for at, throttle_ms in enumerate(told):
        used += size
        elapsed = WINDOWS_S + at * 0.25 % 1
        assert throttle_ms == pytest.approx(max(0, (used / 400 - elapsed) * 1000), abs=1)
    assert told[-1] > 0


def test_a_producer_that_wants_no_answer_is_muted_too() -> None:
    client = Client("produce")
    alter(client.host, "producer_byte_rate", client.frame_bytes() / WINDOWS_S, client_id=CLIENT_ID)
    for expected in (0, 10, 20):
        assert client.ask(acks=0) is None
        assert client.mutes() == ([over(client.host, expected)] if expected else [])


@pytest.mark.parametrize("kind", ["produce", "commit"])
@pytest.mark.parametrize("is_fast", WAYS)
@pytest.mark.parametrize("is_late", [False, True])
def test_an_answer_that_waits_for_followers(kind: str, is_fast: bool, is_late: bool) -> None:
    """The bytes count when they come. What the answer tells, and the mute, are of the moment of the answer,
    also if that is an error.
    """
    client = Client(kind)
    acks = {"acks": -1} if kind == "produce" else {}
    client.learn(**acks)
    host, connection, began = client.host, client.connection, client.host.clock.mono
    alter(host, "producer_byte_rate", 100, client_id=CLIENT_ID)
    alter(host, "request_percentage", 1, client_id=CLIENT_ID)
    if not is_fast:
        connection.fast_path = None
    written = host.partitions("t" if kind == "produce" else "__consumer_offsets")
    (partition,) = [one for one in written if one.log is not None and one.high_watermark]
    add_second(host, partition)
    end = partition.high_watermark + 2
    for _ in range(2):
        host.send(connection, *client.request(**acks))
    meters = host.node.quotas.of(host.clock.now(), connection, CLIENT_ID)
    assert meters is not None
    assert meters.produce is not None
    assert meters.produce.measure(host.clock.now().mono) == (2_000 if kind == "produce" else 0) / WINDOWS_S
    meters.spent(0.2, host.clock.now())  # and a tenth of a second in ten is allowed
    host.advance(0.5)
    assert client.mutes() == []
    if is_late:
        host.advance(10)
    else:
        second_fetches(host, partition, end)
    answers = [host.receive(connection) for _ in range(2)]
    for answer in answers:
        results = (
            answer.responses[0].partition_responses if kind == "produce" else answer.topics[0].partitions
        )
        assert bool(results[0].error_code) == is_late
    if kind == "produce":
        waited, told = (1.0, 10_000) if is_late else (0.5, 9_500)
    else:
        waited, told = (5.0, 1_000) if is_late else (0.5, 1_000)
    assert [answer.throttle_time_ms for answer in answers] == [told] * 2
    assert connection.muted_until == pytest.approx(began + waited + told / 1000)


def test_a_mute_is_not_made_shorter_by_a_later_answer() -> None:
    """A long poll that is answered while its connection is muted."""
    client = Client("fetch")
    host, connection = client.host, client.connection
    host.send(connection, *client.request(offset=1, max_wait_ms=500, min_bytes=100_000))
    alter(host, "producer_byte_rate", 1, client_id=CLIENT_ID)
    host.send(connection, host.produce_request("t", BATCH, acks=1), PRODUCE_VERSION)
    (until,) = client.mutes()
    alter(host, "request_percentage", 1, client_id=CLIENT_ID)
    (now,) = client.mutes()  # a change of quotas lets everybody go on
    assert now == host.clock.mono
    host.send(connection, host.produce_request("t", BATCH, acks=1), PRODUCE_VERSION)
    (again,) = client.mutes()
    assert again > until
    meters = connection.meters
    assert meters is not None
    meters.spent(1.0, host.clock.now())
    host.advance(0.6)
    answers = [host.receive(connection) for _ in range(3)]
    assert answers[0].throttle_time_ms == 1000, "at most a window, for request_percentage"
    assert client.mutes() == []
    assert connection.muted_until == again


# --- consumers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fetch", "session"])
@pytest.mark.parametrize("is_fast", WAYS)
def test_a_throttled_fetch_is_empty_and_is_not_counted(kind: str, is_fast: bool) -> None:
    client = Client(kind)
    client.learn()
    host = client.host
    size = len(client.ask().responses[0].partitions[0].records)
    if not is_fast:
        client.connection.fast_path = None
    alter(host, "consumer_byte_rate", 2 * size // WINDOWS_S, client_id=CLIENT_ID)
    assert len(client.ask().responses) == 1
    for _ in range(3):
        if not is_fast:
            client.connection.fast_path = None
        answer = client.ask()
        assert (answer.error_code, answer.responses) == (0, [])
        assert answer.session_id == client.session_id
        told = answer.throttle_time_ms
        assert 0 < told < 2_000, "the answers are a little larger than their records"
        assert client.connection.muted_until == over(host, told / 1000)
    host.advance(told / 1000)
    answer = client.ask()
    assert answer.throttle_time_ms == 0
    assert len(answer.responses) == 1


@pytest.mark.parametrize("kind", ["fetch", "session"])
@pytest.mark.parametrize("is_fast", WAYS)
def test_a_fetch_returns_what_fits(kind: str, is_fast: bool) -> None:
    """An answer that does not fit is refused as a whole: what is left would be lost, and who asks for more
    than the windows allow would never get anything.
    """
    client = Client(kind)
    host = client.host
    for _ in range(19):
        host.ask(host.produce_request("t", BATCH), PRODUCE_VERSION)
    client.learn()
    alter(host, "consumer_byte_rate", len(BATCH), client_id=CLIENT_ID)  # ten at once, and a little less
    sizes = []
    while True:
        if not is_fast:
            client.connection.fast_path = None
        answer = client.ask()
        if answer.throttle_time_ms:
            break
        (data,) = answer.responses[0].partitions
        sizes.append(len(data.records) // len(BATCH))
    assert sizes == [5, 2, 1, 1]
    assert answer.responses == []
    assert 0 < answer.throttle_time_ms < 1000, "until one fits"


@pytest.mark.parametrize("is_fast", WAYS)
def test_a_fetch_that_waited_is_muted_from_its_answer_on(is_fast: bool) -> None:
    """Counted from its arrival, the mute would be over before it began."""
    client = Client("fetch")
    client.learn(max_wait_ms=20_000)
    host, connection = client.host, client.connection
    if not is_fast:
        connection.fast_path = None
    alter(host, "consumer_byte_rate", 10, client_id=CLIENT_ID)
    host.send(connection, *client.request(offset=1, max_wait_ms=20_000))
    assert isinstance(connection.pending[0].parked, ParkedFastFetch) == is_fast
    host.advance(15)
    host.ask(host.produce_request("t", BATCH), PRODUCE_VERSION)
    answer = host.receive(connection)
    assert answer.responses == []
    assert answer.throttle_time_ms > 50_000
    assert client.mutes() == [over(host, answer.throttle_time_ms / 1000)]


def test_a_session_that_a_throttled_fetch_would_begin_is_not_begun() -> None:
    client = Client("session")
    alter(client.host, "consumer_byte_rate", 1, client_id=CLIENT_ID)
    answer = client.ask()
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    assert answer.throttle_time_ms > 0
    assert len(client.host.node.broker.fetch_sessions) == 0


def test_a_session_tells_later_what_a_throttled_answer_left_out() -> None:
    client = Client("session")
    client.learn()
    host = client.host
    alter(host, "consumer_byte_rate", 1, client_id=CLIENT_ID)
    assert client.ask().responses == []
    alter(host, "consumer_byte_rate", None, client_id=CLIENT_ID)
    (data,) = client.ask().responses[0].partitions
    assert data.records


# --- time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KEYS))
@pytest.mark.parametrize("is_fast", WAYS)
def test_the_next_answer_pays_for_the_time_of_the_loop(kind: str, is_fast: bool) -> None:
    client = Client(kind)
    if is_fast:
        client.learn()
    host = client.host
    alter(host, "request_percentage", 5, user=None)
    assert client.ask().throttle_time_ms == 0
    meters = client.connection.meters
    assert meters is not None
    meters.spent(0.51, host.clock.now())  # of half a second in ten
    if not is_fast:
        client.connection.fast_path = None
    answer = client.ask()
    assert answer.throttle_time_ms == 200
    assert client.mutes() == [over(host, 0.2)]
    if kind in ("fetch", "session"):
        assert answer.responses == []


# --- changes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KEYS))
def test_a_changed_quota_counts_for_the_next_request_of_an_open_connection(kind: str) -> None:
    client = Client(kind)
    client.learn()
    host, key = client.host, KEYS[kind]

    def throttled() -> bool:
        meters = host.node.quotas.of(host.clock.now(), client.connection, CLIENT_ID)
        if meters is not None:
            meters.spent(0.01, host.clock.now())
        return bool(client.ask().throttle_time_ms)

    assert not throttled()
    for value, is_throttled in ((0.01, True), (1e6, False), (0.01, True), (None, False)):
        alter(host, key, value and max(value, 1 if "byte" in key else 0), client_id=CLIENT_ID)
        assert [throttled(), throttled()] == [is_throttled] * 2
    alter(host, key, 1 if "byte" in key else 0.01, user="somebody")
    assert not throttled()
    assert host.node.quotas.version is not None
    alter(host, key, None, user="somebody")
    assert host.node.quotas.version is None, "nobody has a quota: nobody is looked up"


def test_a_changed_quota_lets_those_go_on_that_are_muted() -> None:
    """Who was muted for days by a mistake of the operator need not connect again."""
    client = Client("produce")
    host = client.host
    alter(host, "producer_byte_rate", 1, client_id=CLIENT_ID)
    client.ask()
    (until,) = client.mutes()
    assert until > over(host, 500)
    alter(host, "producer_byte_rate", 1_000_000, client_id=CLIENT_ID)
    assert client.mutes() == [over(host, 0)]
    assert client.ask().throttle_time_ms == 0


def test_of_a_mute_of_a_closed_connection_nothing_is_kept() -> None:
    """Its records may be committed after it has gone."""
    client = Client("produce")
    host = client.host
    alter(host, "producer_byte_rate", 1, client_id=CLIENT_ID)
    client.ask()
    host.node.disconnected(host.clock.now(), client.connection)
    host.node.waiting.mute(host.clock.now(), client.connection, 1_000_000)
    host.effects.clear()
    alter(host, "producer_byte_rate", 2, client_id=CLIENT_ID)
    assert client.mutes() == []


def test_quotas_are_there_after_a_restart() -> None:
    client = Client("produce")
    alter(client.host, "producer_byte_rate", 1, client_id=CLIENT_ID)
    client.host.restart()
    client.connection = client.host.connect()
    assert client.ask().throttle_time_ms > 0


# --- whom they hold for -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "is_throttled"),
    [
        ({"user": "ada", "client_id": CLIENT_ID}, True),
        ({"user": "ada", "client_id": None}, True),
        ({"user": "ada"}, True),
        ({"user": None, "client_id": CLIENT_ID}, True),
        ({"user": None, "client_id": None}, True),
        ({"user": None}, True),
        ({"client_id": CLIENT_ID}, True),
        ({"client_id": None}, True),
        ({"user": "User:ada"}, False),
        ({"user": "bob"}, False),
        ({"user": "ada", "client_id": "other"}, False),
        ({"client_id": "other"}, False),
    ],
)
def test_kafkas_eight_levels(entity: dict[str, str | None], is_throttled: bool) -> None:
    client = Client("produce")
    client.connection.principal = "User:ada"
    alter(client.host, "producer_byte_rate", 1, **entity)
    assert bool(client.ask().throttle_time_ms) == is_throttled


def test_clients_inside_the_process_have_no_quotas() -> None:
    client = Client("produce")
    alter(client.host, "producer_byte_rate", 1, client_id=None)
    own = Connection(99, listener="PLAINTEXT", address="", principal="Node:itself", is_own=True)
    client.host.answers[99], client.host.asked[99] = deque(), deque()
    client.host.node.connected(client.host.clock.now(), own)
    assert client.host.ask(*client.request(), own).throttle_time_ms == 0
    assert client.ask().throttle_time_ms > 0


def test_windows_are_settings() -> None:
    client = Client("produce", quota_window_num="3", quota_window_size_seconds="2")
    size = client.frame_bytes()
    alter(client.host, "producer_byte_rate", size / 4, client_id=CLIENT_ID)
    assert [client.ask().throttle_time_ms for _ in range(2)] == [0, 4_000]


def test_who_was_throttled_is_counted() -> None:
    client = Client("produce")
    throttled = client.host.node.quotas.throttled
    alter(client.host, "producer_byte_rate", client.frame_bytes() / WINDOWS_S, client_id=CLIENT_ID)
    for _ in range(3):
        client.ask()
    assert (throttled["produce"].times, throttled["produce"].ms) == (2, 30_000)
    assert throttled["fetch"].times == throttled["request"].times == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_short_way_counts_as_the_long_one_does(seed: int) -> None:
    """A fast path asks whether both rates are far from their bounds, and only else for the throttle time."""
    rng = Random(seed)
    quotas = ManualHost(SETTINGS).node.quotas

    def meters() -> ClientMeters:
        rates = [Rate(100.0, DEFAULT_WINDOWS) for _ in range(3)]
        return ClientMeters(
            rates[0], None if seed % 4 == 1 else rates[1], None if seed % 4 == 2 else rates[2]
        )

    long, short = meters(), meters()
    short_ways = 0
    mono = 0.0
    for _ in range(500):
        mono += rng.choice((0.0, 0.01, 0.1, 0.4, 3.0))
        now, size = Now(mono, 0), rng.choice((1, 10, 100))
        told = quotas.produced(now, long, size)
        if short.takes(short.produce, size, now.mono):
            short_ways += 1
            assert told == 0
        else:
            assert quotas.produced(now, short, size) == told
        spent = rng.choice((0.0, 0.01, 0.5))
        long.spent(spent, now)
        short.spent(spent, now)
        for mine, its in ((long.produce, short.produce), (long.request, short.request)):
            assert (mine is None) == (its is None)
            if mine is not None and its is not None:
                assert (mine.total, mine.last, mine.ends) == (its.total, its.last, its.ends)
    assert short_ways
