"""Topics as brokers tell of them: ids, leaders, replicas, and which of those are in sync or gone.

Topics that are named are asked for in pages (KIP-966), since one with very many partitions does not fit into
an answer; a broker that cannot, and whoever asks for all topics or for ids, is served by Metadata.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace.base.ids import id_from_text, id_text
from headrace.client.admin.asking import (
    ANY,
    Ask,
    Operation,
    Outcome,
    Sent,
    as_list,
    ask,
    ask_one,
    failed,
    settled,
)
from headrace.client.cluster import TopicPartition
from headrace.client.errors import BadResponse, InvalidInput, UnsupportedByBroker
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

NOBODY = -1


class PartitionDescription(NamedTuple):
    """A partition and its replicas, each as a broker's id.

    >>> admin.describe_topic("orders").partitions[0].leader
    1
    """

    partition: int
    leader: int | None  # None: nobody at the moment
    leader_epoch: int
    replicas: list[int]  # the preferred leader first
    isr: list[int]  # in sync
    offline: list[int]
    eligible_leaders: list[int]  # left the ISR when it was at its minimum, and have all data (KIP-966)
    last_known_eligible_leaders: list[int]


class TopicDescription(NamedTuple):
    """A topic with its partitions.

    >>> topic = admin.describe_topic("orders")
    >>> topic.name, topic.is_internal, len(topic.partitions), topic.replication_factor
    ('orders', False, 3, 1)
    """

    name: str
    topic_id: str
    is_internal: bool
    partitions: list[PartitionDescription]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)

    def all_partitions(self) -> list[TopicPartition]:
        """Their names, for whoever asks about each of them.

        >>> admin.describe_topic("orders").all_partitions()[0]
        TopicPartition(topic='orders', partition=0)
        """
        return [TopicPartition(self.name, one.partition) for one in self.partitions]


def list_topics(*, internal: bool = True) -> Operation[list[TopicDescription]]:
    """All topics by name, with or without the broker's own.

    >>> "orders" in [topic.name for topic in admin.list_topics(internal=False)]
    True
    """
    topics = yield from ask_one(
        "listing topics", ANY, lambda _: metadata_request(None), lambda answer: answer.topics
    )
    described = [_described(told.name, told, told.partitions) for told in topics if not told.error_code]
    return sorted(topic for topic in described if internal or not topic.is_internal)


def describe_topic(name: str) -> Operation[TopicDescription]:
    """One topic; UNKNOWN_TOPIC_OR_PARTITION if there is none of this name.

    >>> [partition.isr for partition in admin.describe_topic("orders").partitions]
    [[1], [1], [1]]
    """
    return (yield from describe_topics([name]))[name]


def describe_topics(
    names: str | Iterable[str] = (), *, ids: Iterable[str] = ()
) -> Operation[dict[str, TopicDescription]]:
    """Topics by name; those that were asked for by id are keyed by that.

    >>> found = admin.describe_topics(["orders"])
    >>> again = admin.describe_topics(ids=[found["orders"].topic_id])
    >>> list(again.values()) == [found["orders"]]
    True
    """
    described = yield from _by_name(as_list(names))
    described |= yield from _by_id(as_list(ids))
    return settled(described)


# --- page by page ----------------------------------------------------------------------------------------


def _by_name(names: Sequence[str]) -> Operation[Outcome[str, TopicDescription]]:
    outcome: Outcome[str, TopicDescription] = {}
    pages: dict[str, list[Any]] = {}
    cursor: Cursor | None = None
    left = sorted(names)
    while left:
        try:
            page = yield from _page(left, cursor)
        except UnsupportedByBroker:
            return (yield from _by_metadata(names))
        for told in page.topics:
            name = told.name or ""
            error = failed(told.error_code, subject=f"topic {name!r}")
            pages.setdefault(name, []).extend(told.partitions)
            outcome[name] = error or _described(name, told, pages[name])
        if page.next_cursor is None:
            break
        after = (page.next_cursor.topic_name, page.next_cursor.partition_index)
        if cursor is not None and after <= (cursor.topic_name, cursor.partition_index):
            raise BadResponse("the broker's pages of partitions do not come to an end")
        cursor = page.next_cursor
        left = [name for name in left if name >= cursor.topic_name]
    missing = BadResponse("the broker left out a topic that was asked for")
    return {name: outcome.get(name, missing) for name in names}


def _page(names: list[str], cursor: Cursor | None) -> Operation[DescribeTopicPartitionsResponse]:
    def read(answer: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        return answer

    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], cursor=cursor
    )
    return (yield from ask_one("describing topics", ANY, lambda _: request, read))


# --- all at once -----------------------------------------------------------------------------------------


def metadata_request(names: Iterable[str] | None) -> MetadataRequest:
    """About those topics, or about all; none is created by being asked for."""
    named = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def _by_metadata(names: Iterable[str]) -> Operation[Outcome[str, TopicDescription]]:
    def read(answer: Any, _: Sent[str]) -> Outcome[str, TopicDescription]:
        return {
            told.name: failed(told.error_code, subject=f"topic {told.name!r}")
            or _described(told.name, told, told.partitions)
            for told in answer.topics
        }

    places = dict.fromkeys(names, ANY)
    question = Ask("describing topics", places, lambda wanted, _: metadata_request(wanted), read)
    return (yield from ask(question))


def _by_id(texts: Iterable[str]) -> Operation[Outcome[str, TopicDescription]]:
    ids = {text: topic_id_from(text) for text in texts}
    texts_of = {raw: text for text, raw in ids.items()}

    def make(wanted: list[str], _: int) -> MetadataRequest:
        topics = [MetadataRequestTopic(topic_id=ids[text], name=None) for text in wanted]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    def read(answer: Any, _: Sent[str]) -> Outcome[str, TopicDescription]:
        outcome: Outcome[str, TopicDescription] = {}
        for told in answer.topics:
            text = texts_of.get(told.topic_id, "")
            error = failed(told.error_code, subject=f"topic id {text!r}")
            outcome[text] = error or _described(told.name or "", told, told.partitions)
        return outcome

    return (yield from ask(Ask("describing topics", dict.fromkeys(ids, ANY), make, read)))


def topic_id_from(text: str) -> bytes:
    try:
        return id_from_text(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is no topic id") from error


def _described(name: str, told: Any, partitions: Iterable[Any]) -> TopicDescription:
    """From either kind of answer; only the paged one knows of eligible leaders."""
    return TopicDescription(
        name,
        id_text(told.topic_id),
        told.is_internal,
        [
            PartitionDescription(
                one.partition_index,
                one.leader_id if one.leader_id != NOBODY else None,
                one.leader_epoch,
                one.replica_nodes,
                one.isr_nodes,
                one.offline_replicas,
                getattr(one, "eligible_leader_replicas", None) or [],
                getattr(one, "last_known_elr", None) or [],
            )
            for one in sorted(partitions, key=lambda one: int(one.partition_index))
        ],
    )
