"""The metadata cache: which request leaves when, what subscribers hear, and what an answer may not undo."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import BadResponse, ClientError, ConnectionLost, KafkaError
from headrace.client.metadata import UNKNOWN_ID_RETRY_S, Lookup, Metadata, Refusals, Update
from headrace.client.session import Outgoing, RequestQueue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

AGE_S = 300.0
FIRST_S, LAST_S = 0.1, 1.0
ORDERS = TopicPartition("orders", 0)


def topic_id(name: str, life: int = 0) -> bytes:
    return f"{name}{life}".encode().ljust(16, b"-")


def described(
    name: str, *leaders: int, epoch: int = 0, life: int = 0, error: int = 0
) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponseTopic(
        name=name, topic_id=topic_id(name, life), partitions=partitions, error_code=error
    )


def answer(*topics: MetadataResponseTopic) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=broker, host=f"b{broker}", port=9092) for broker in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=list(topics))


class Listener:
    """A subscriber that writes down what it hears."""

    def __init__(self, *wanted: str) -> None:
        self.wanted = set(wanted)
        self.leaderless: set[str] = set()  # topics of which it misses a leader
        self.heard: list[tuple[set[str], dict[str, int], bool] | ClientError] = []

    def wanted_topics(self) -> Collection[str]:
        return self.wanted

    def metadata_updated(self, now: Instant, update: Update) -> Iterable[str]:
        codes = {topic: error.code for topic, error in update.errors.items()}
        self.heard.append((set(update.topics), codes, update.is_complete))
        return self.leaderless

    def metadata_failed(self, now: Instant, error: ClientError) -> None:
        self.heard.append(error)


class MetadataCache:
    def __init__(self, *subscribers: Listener, **options: Any) -> None:
        self.now = Instant(10.0)
        self.request_queue = RequestQueue()
        self.metadata = Metadata(
            self.request_queue,
            random.Random(3),
            request_timeout_s=30.0,
            max_age_s=AGE_S,
            retry_first_s=FIRST_S,
            retry_last_s=LAST_S,
            **options,
        )
        for subscriber in subscribers:
            self.metadata.subscribe(subscriber)
            for topic in sorted(subscriber.wanted):
                self.metadata.want(topic)
        self._under_way: Outgoing | None = None

    @property
    def cluster(self) -> Cluster:
        return self.metadata.cluster

    def asked(self) -> list[str] | str | None:
        """The topics of the request that leaves now: their names, "all", or None if nothing leaves."""
        self.metadata.advance(self.now)
        posted = self.request_queue.take()
        if not posted:
            return None
        (self._under_way,) = posted
        assert self._under_way.to is None, "any broker knows"
        request = self._under_way.question
        assert isinstance(request, MetadataRequest)
        if request.topics is None:
            return "all"
        return [topic.name or f"id {topic.topic_id.decode()}" for topic in request.topics]

    @property
    def creates_topics(self) -> bool:
        assert self._under_way is not None
        request = self._under_way.question
        assert isinstance(request, MetadataRequest)
        return request.allow_auto_topic_creation

    def reply(self, told: MetadataResponse | ClientError) -> None:
        assert self._under_way is not None
        self.request_queue.answered(self.now, self._under_way.ticket, told)

    def wait(self) -> float:
        """Until the cache wants to be asked again; how long that was."""
        before, self.now = self.now, self.metadata.deadline()
        assert self.now < NEVER
        return self.now - before


def within(pause_s: float, wanted_s: float) -> bool:
    return 0.8 * wanted_s <= pause_s <= 1.2 * wanted_s


class TestRequests:
    def test_nobody_wants_anything(self) -> None:
        cache = MetadataCache(Listener())
        assert cache.asked() is None
        assert cache.metadata.deadline() == NEVER

    def test_the_interests_of_all_subscribers_travel_together(self) -> None:
        cache = MetadataCache(Listener("b", "a"), Listener("c", "a"))
        assert cache.asked() == ["a", "b", "c"]

    def test_one_request_is_under_way_at_a_time(self) -> None:
        listener = Listener("a")
        cache = MetadataCache(listener)
        assert cache.asked() == ["a"]
        listener.wanted.add("b")
        cache.metadata.want("b")
        assert cache.asked() is None
        assert cache.metadata.deadline() == NEVER
        cache.reply(answer(described("a", 1)))
        assert cache.asked() is None, "brokers are not asked in a tight loop"
        cache.wait()
        assert cache.asked() == ["b"]

    def test_what_nobody_wants_any_more_is_not_asked_for(self) -> None:
        listener = Listener("a", "b")
        cache = MetadataCache(listener)
        listener.wanted.remove("a")
        assert cache.asked() == ["b"]

    def test_only_what_is_stale_is_asked_for_again(self) -> None:
        cache = MetadataCache(Listener("a", "b"))
        cache.asked()
        cache.reply(answer(described("a", 1), described("b", 1)))
        cache.cluster.mark_stale("b")
        assert cache.asked() is None
        assert within(cache.wait(), FIRST_S)
        assert cache.asked() == ["b"]

    def test_a_topic_that_is_new_need_not_wait(self) -> None:
        listener = Listener("a")
        cache = MetadataCache(listener)
        cache.asked()
        cache.reply(answer(described("a", 1)))
        listener.wanted.add("b")
        cache.metadata.want("b")
        assert cache.asked() == ["b"]

    def test_a_topic_that_is_known_and_fresh_is_not_asked_for(self) -> None:
        cache = MetadataCache(Listener("a"))
        cache.asked()
        cache.reply(answer(described("a", 1)))
        cache.metadata.want("a")
        cache.now = Instant(cache.now + 10)
        assert cache.asked() is None

    def test_all_that_is_wanted_is_asked_for_when_something_is_too_old(self) -> None:
        listener = Listener("a", "b")
        cache = MetadataCache(listener)
        cache.asked()
        cache.reply(answer(described("a", 1), described("b", 1)))
        cache.now = Instant(cache.now + 100)
        cache.cluster.mark_stale("a")
        assert cache.asked() == ["a"]
        cache.reply(answer(described("a", 1)))
        assert cache.wait() == AGE_S - 100, "b is as old as before"
        assert cache.asked() == ["a", "b"]

    def test_a_topic_that_is_wanted_again_after_long_is_asked_for(self) -> None:
        listener = Listener("a")
        cache = MetadataCache(listener)
        cache.asked()
        cache.reply(answer(described("a", 1)))
        listener.wanted.clear()
        cache.now = Instant(cache.now + AGE_S)
        assert cache.asked() is None
        listener.wanted.add("a")
        cache.metadata.want("a")
        assert cache.asked() == ["a"]

    @pytest.mark.parametrize("may_create", [True, False])
    def test_topics_are_created_only_where_that_is_allowed(self, may_create: bool) -> None:
        cache = MetadataCache(Listener("a"), creates_topics=may_create)
        cache.asked()
        assert cache.creates_topics == may_create

    def test_no_other_request_creates_topics(self) -> None:
        cache = MetadataCache(creates_topics=True)
        cache.metadata.want_all(True)
        assert cache.asked() == "all"
        assert not cache.creates_topics
        cache.reply(answer())
        cache.metadata.want_ids([topic_id("a")])
        cache.wait()
        assert cache.asked() == ["id a0--------------"]
        assert not cache.creates_topics


class TestAllTopics:
    def test_the_list_of_all_serves_those_who_want_some(self) -> None:
        cache = MetadataCache(Listener("a"))
        cache.metadata.want_all(True)
        assert cache.asked() == "all"
        cache.reply(answer(described("a", 1), described("b", 1)))
        assert cache.metadata.has_all
        assert set(cache.cluster.topics) == {"a", "b"}
        cache.now = Instant(cache.now + 10)
        assert cache.asked() is None

    def test_a_wanted_topic_that_the_list_leaves_out_is_asked_for_by_name(self) -> None:
        cache = MetadataCache(Listener("a"))
        cache.metadata.want_all(True)
        cache.asked()
        cache.reply(answer(described("b", 1)))
        assert cache.metadata.is_told(["a"])
        cache.wait()
        assert cache.asked() == ["a"]

    def test_a_topic_that_is_stale_is_asked_for_alone(self) -> None:
        cache = MetadataCache(Listener("a"))
        cache.metadata.want_all(True)
        cache.asked()
        cache.reply(answer(described("a", 1), described("b", 1)))
        cache.cluster.mark_stale("a")
        cache.wait()
        assert cache.asked() == ["a"]

    def test_the_list_is_refreshed_when_it_is_too_old(self) -> None:
        cache = MetadataCache(Listener("a"))
        cache.metadata.want_all(True)
        cache.asked()
        cache.reply(answer(described("a", 1), described("b", 1)))
        cache.now = Instant(cache.now + 100)
        cache.cluster.mark_stale("a")
        cache.asked()
        cache.reply(answer(described("a", 1)))
        assert cache.wait() == AGE_S - 100
        assert cache.asked() == "all"
        cache.reply(answer(described("a", 1)))
        assert set(cache.cluster.topics) == {"a"}

    def test_whoever_stops_to_want_all_is_served_no_longer(self) -> None:
        cache = MetadataCache()
        cache.metadata.want_all(True)
        cache.asked()
        cache.reply(answer())
        cache.metadata.want_all(False)
        cache.now = Instant(cache.now + 2 * AGE_S)
        assert cache.asked() is None


class TestIds:
    def test_an_id_that_nobody_knows_is_asked_for_now_and_then(self) -> None:
        cache = MetadataCache()
        cache.metadata.want_ids([topic_id("a")])
        assert cache.asked() == ["id a0--------------"]
        cache.reply(answer(MetadataResponseTopic(name=None, error_code=ErrorCode.UNKNOWN_TOPIC_ID)))
        assert cache.wait() == UNKNOWN_ID_RETRY_S
        assert cache.asked() == ["id a0--------------"]
        cache.reply(answer(described("a", 1)))
        assert cache.metadata.deadline() == NEVER
        assert cache.cluster.names_by_id == {topic_id("a"): "a"}

    def test_names_go_first(self) -> None:
        cache = MetadataCache(Listener("b"))
        cache.metadata.want_ids([topic_id("a")])
        assert cache.asked() == ["b"]
        cache.reply(answer(described("b", 1)))
        cache.wait()
        assert cache.asked() == ["id a0--------------"]


class TestAnswers:
    def test_every_subscriber_hears_of_every_answer(self) -> None:
        one, two = Listener("a", "gone"), Listener("b")
        cache = MetadataCache(one, two)
        cache.asked()
        unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        cache.reply(answer(described("a", 1), described("b", 2), described("gone", error=unknown)))
        assert one.heard == two.heard == [({"a", "b", "gone"}, {"gone": unknown}, False)]
        assert cache.metadata.lookups["a"] == Lookup(cache.now)
        assert cache.metadata.is_told(["a", "b", "gone"])
        assert not cache.metadata.is_told(["a", "other"])

    def test_a_missing_topic_is_asked_for_more_and_more_slowly(self) -> None:
        cache = MetadataCache(Listener("gone", "lost"))
        pauses = []
        for _ in range(6):
            assert cache.asked() == ["gone", "lost"], "together"
            cache.reply(
                answer(
                    described("gone", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    described("lost", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                )
            )
            pauses.append(cache.wait())
        expected = (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)
        assert all(map(within, pauses, expected)), pauses

    def test_a_missing_topic_does_not_slow_down_the_others(self) -> None:
        cache = MetadataCache(Listener("a", "gone"))
        cache.asked()
        missing = described("gone", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        cache.reply(answer(described("a", 1), missing))
        for _ in range(5):
            cache.wait()
            assert cache.asked() == ["gone"]
            cache.reply(answer(missing))
        cache.cluster.mark_stale("a")
        assert within(cache.wait(), FIRST_S)
        assert cache.asked() == ["a"]

    def test_a_topic_that_appears_is_retried_from_the_start_next_time(self) -> None:
        cache = MetadataCache(Listener("a"))
        cache.asked()
        for _ in range(3):
            cache.reply(answer(described("a", error=ErrorCode.LEADER_NOT_AVAILABLE)))
            cache.wait()
            cache.asked()
        cache.reply(answer(described("a", 1)))
        cache.cluster.mark_stale("a")
        cache.wait()
        cache.asked()
        cache.reply(answer(described("a", error=ErrorCode.LEADER_NOT_AVAILABLE)))
        assert within(cache.wait(), FIRST_S)

    def test_a_topic_without_a_leader_is_asked_for_again(self) -> None:
        listener = Listener("a")
        listener.leaderless = {"a"}
        cache = MetadataCache(listener)
        cache.asked()
        cache.reply(answer(described("a", -1)))
        assert within(cache.wait(), FIRST_S)
        assert cache.asked() == ["a"]
        listener.leaderless = set()
        cache.reply(answer(described("a", 1)))
        assert cache.cluster.stale == set()

    def test_a_topic_that_the_broker_leaves_out_is_asked_for_again(self) -> None:
        cache = MetadataCache(Listener("a"))
        cache.asked()
        cache.reply(answer())
        assert within(cache.wait(), FIRST_S)
        assert cache.asked() == ["a"]


class TestFailures:
    def test_the_pause_after_failed_requests_grows_for_all(self) -> None:
        listener = Listener("a")
        cache = MetadataCache(listener)
        pauses = []
        for _ in range(6):
            assert cache.asked() == ["a"]
            cache.reply(ConnectionLost("gone"))
            assert cache.asked() is None
            pauses.append(cache.wait())
        assert all(map(within, pauses, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0))), pauses
        assert len(listener.heard) == 6
        assert isinstance(cache.metadata.error, ConnectionLost)
        assert cache.metadata.lookups["a"].error is cache.metadata.error
        assert not cache.metadata.is_told(["a"])

    def test_an_answer_ends_the_failure(self) -> None:
        cache = MetadataCache(Listener("a"))
        cache.asked()
        cache.reply(ConnectionLost("gone"))
        cache.wait()
        cache.asked()
        cache.reply(answer(described("a", 1)))
        assert cache.metadata.error is None
        cache.cluster.mark_stale("a")
        assert within(cache.wait(), FIRST_S)

    def test_an_answer_that_cannot_be_is_a_failure(self) -> None:
        listener = Listener("a")
        cache = MetadataCache(listener)
        cache.asked()
        broken = described("a", 1, 1)
        broken.partitions[1].partition_index = 7
        cache.reply(answer(broken))
        (error,) = listener.heard
        assert isinstance(error, BadResponse)
        cache.wait()
        assert cache.asked() == ["a"]


class TestLookups:
    def test_a_topic_is_looked_up_once_and_not_kept_fresh(self) -> None:
        cache = MetadataCache()
        cache.metadata.look_up("a")
        cache.metadata.look_up("a")
        assert cache.asked() == ["a"]
        cache.metadata.look_up("a")
        cache.reply(answer(described("a", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        lookup = cache.metadata.lookups["a"]
        assert lookup.asked_at == cache.now
        assert isinstance(lookup.error, KafkaError)
        cache.now = Instant(cache.now + 2 * AGE_S)
        assert cache.asked() is None

    def test_a_look_up_need_not_wait_for_the_pause_of_another(self) -> None:
        cache = MetadataCache()
        for topic in ("a", "b"):
            cache.metadata.look_up(topic)
            assert cache.asked() == [topic]
            cache.reply(ConnectionLost("gone"))
            assert cache.metadata.lookups[topic].error is cache.metadata.error

    def test_brokers_alone(self) -> None:
        cache = MetadataCache()
        cache.metadata.look_up_brokers()
        assert cache.asked() == []
        cache.reply(answer())
        assert cache.metadata.brokers == Lookup(cache.now)
        assert set(cache.cluster.brokers) == {1, 2}

    def test_what_is_under_way_tells_of_the_brokers_too(self) -> None:
        cache = MetadataCache(Listener("a"))
        cache.asked()
        cache.metadata.look_up_brokers()
        cache.reply(answer(described("a", 1)))
        cache.now = Instant(cache.now + 10)
        assert cache.asked() is None


class TestLeaders:
    """What a broker says that lags behind the others."""

    def told(self, *topics: MetadataResponseTopic) -> Cluster:
        cluster = Cluster()
        for topic in topics:
            cluster.update(answer(topic))
        return cluster

    def test_an_older_leader_epoch_changes_nothing(self) -> None:
        cluster = self.told(described("orders", 2, epoch=5), described("orders", 1, epoch=4))
        assert (cluster.leader_of(ORDERS), cluster.leader_epoch_of(ORDERS)) == (2, 5)

    def test_a_hint_is_not_taken_back_either(self) -> None:
        cluster = self.told(described("orders", 1, epoch=4))
        assert cluster.hint(ORDERS, 2, 5, {})
        cluster.update(answer(described("orders", 1, epoch=4)))
        assert (cluster.leader_of(ORDERS), cluster.leader_epoch_of(ORDERS)) == (2, 5)

    def test_an_equal_epoch_may_lose_its_leader(self) -> None:
        cluster = self.told(described("orders", 2, epoch=5), described("orders", -1, epoch=5))
        assert cluster.leader_of(ORDERS) is None

    def test_a_topic_that_was_created_again_begins_its_epochs_again(self) -> None:
        cluster = self.told(described("orders", 2, epoch=5), described("orders", 1, epoch=0, life=1))
        assert (cluster.leader_of(ORDERS), cluster.leader_epoch_of(ORDERS)) == (1, 0)
        assert cluster.names_by_id == {topic_id("orders", 1): "orders"}

    def test_a_broker_that_counts_no_epochs_is_believed(self) -> None:
        cluster = self.told(described("orders", 2, epoch=5), described("orders", 1, epoch=-1))
        assert (cluster.leader_of(ORDERS), cluster.leader_epoch_of(ORDERS)) == (1, -1)

    def test_new_partitions_are_taken_from_whoever_knows_them(self) -> None:
        cluster = self.told(described("orders", 2, epoch=5), described("orders", 1, 1, epoch=4))
        assert [partition.leader for partition in cluster.topics["orders"].partitions] == [2, 1]

    def test_a_topic_whose_leader_is_missing_is_not_forgotten(self) -> None:
        cluster = self.told(
            described("orders", 2, epoch=5), described("orders", error=ErrorCode.LEADER_NOT_AVAILABLE)
        )
        assert cluster.leader_of(ORDERS) == 2
        cluster.update(answer(described("orders", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        assert "orders" not in cluster.topics


def test_an_error_that_does_not_pass_is_reported_once_until_the_topic_can_be_read() -> None:
    refusals = Refusals()
    refused = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, subject="topic 'a'")
    passing = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, subject="topic 'b'")
    update = Update({"a", "b"}, {"a": refused, "b": passing}, False)
    assert refusals.new(update, {"b"}) == {}
    assert refusals.new(update, {"a", "b"}) == {"a": refused}
    assert refusals.new(update, {"a", "b"}) == {}
    assert refusals.new(Update({"a"}, {}, False), {"a", "b"}) == {}
    assert refusals.new(update, {"a", "b"}) == {"a": refused}
