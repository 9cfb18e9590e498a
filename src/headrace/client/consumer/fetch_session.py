"""Fetch sessions (KIP-227), client side: a request lists only what changed since the last one.

    none --a full fetch is answered with an id--> open --the broker forgot it--> none
                                                   |---an answer is lost or refused: the next fetch is full
                                                       and ends it---> none or open again

A broker that gives no session answers full fetches with id 0, which is all the same to everybody else.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.base.ids import NO_TOPIC_ID
from headrace.client.cluster import TopicPartition
from headrace.client.settings.consumer import ConsumerSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = (1 << 31) - 1

NAMES_ONLY_VERSION = 12  # the last that names topics instead of giving their ids


class Wanted(NamedTuple):
    """What is asked of a partition."""

    topic_id: bytes
    fetch_offset: int
    leader_epoch: int


class FetchSession:
    """Invariant: while `epoch` is not initial, the broker fetches exactly what `_known` says, if it answers
    the next request well.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._settings = settings
        self._known: Mapping[TopicPartition, Wanted] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request lists everything."""
        return self.epoch == INITIAL_EPOCH

    def request(self, wanted: Mapping[TopicPartition, Wanted], bytes_max: int) -> FetchRequest:
        """Asks for these, and for nothing else any more."""
        known = self._known
        if any(at in known and known[at].topic_id != each.topic_id for at, each in wanted.items()):
            self.restart()  # a topic was created again; the broker remembers the old one by the same name
        forgotten: list[ForgottenTopic] = []
        news = wanted
        if not self.is_full:
            news = {at: each for at, each in wanted.items() if known.get(at) != each}
            forgotten = _forgotten(known, wanted)
        request = self._request(bytes_max)
        request.topics = self._topics(news)
        request.forgotten_topics_data = forgotten
        self._known = wanted
        return request

    def _request(self, bytes_max: int) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self._settings.fetch_wait_max_ms,
            min_bytes=self._settings.fetch_bytes_min,
            max_bytes=bytes_max,
            isolation_level=self._settings.isolation,
            session_id=self.id,
            session_epoch=self.epoch,
        )

    def _topics(self, news: Mapping[TopicPartition, Wanted]) -> list[FetchTopic]:
        topics: dict[str, FetchTopic] = {}
        for at, each in news.items():
            topic = topics.get(at.topic)
            if topic is None:
                topic = topics[at.topic] = FetchTopic(topic=at.topic, topic_id=each.topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=at.partition,
                    current_leader_epoch=each.leader_epoch,
                    fetch_offset=each.fetch_offset,
                    partition_max_bytes=self._settings.partition_bytes_max,
                )
            )
        return list(topics.values())

    def final_request(self) -> FetchRequest | None:
        """Tells the broker that it may forget us; None: it knows of nothing."""
        if self.id == NO_SESSION:
            return None
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=self.id, session_epoch=FINAL_EPOCH, max_bytes=0
        )
        self.forget()
        return request

    def answered(self, answer: FetchResponse) -> None:
        if answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.forget()
        elif answer.error_code:
            self.restart()
        elif answer.session_id == NO_SESSION:
            self.forget()  # given none, or no longer
        else:
            self.id = answer.session_id
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def restart(self) -> None:
        """We no longer know what the broker remembers: the next fetch is a full one, and ends the session."""
        self.epoch = INITIAL_EPOCH
        self._known = {}

    def forget(self) -> None:
        self.id = NO_SESSION
        self.restart()


def _forgotten(
    known: Mapping[TopicPartition, Wanted], wanted: Mapping[TopicPartition, Wanted]
) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for at, each in known.items():
        if at not in wanted:
            topic = topics.setdefault(at.topic, ForgottenTopic(topic=at.topic, topic_id=each.topic_id))
            topic.partitions.append(at.partition)
    return list(topics.values())


def version_max(wanted: Mapping[TopicPartition, Wanted]) -> int | None:
    """Of a request for these: a topic without an id can only be named."""
    has_ids = all(each.topic_id != NO_TOPIC_ID for each in wanted.values())
    return None if has_ids else NAMES_ONLY_VERSION
