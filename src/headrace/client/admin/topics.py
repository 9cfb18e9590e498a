"""Topics: create, delete, describe and list them, and add partitions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.base.ids import id_from_text, id_text
from headrace.client.admin.configs import config_text
from headrace.client.admin.operation import (
    ANY,
    CONTROLLER,
    CREATION_S,
    Ask,
    Operation,
    Outcome,
    Sent,
    as_list,
    ask,
    ask_all,
    ask_one,
    failed,
    settled,
)
from headrace.client.cluster import TopicPartition
from headrace.client.errors import BadResponse, InvalidInput, KafkaError, UnsupportedByBroker
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

NOBODY = -1


class PartitionDescription(NamedTuple):
    """A partition and the broker ids of its replicas.

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
        """All partitions of the topic.

        >>> admin.describe_topic("orders").all_partitions()[0]
        TopicPartition(topic='orders', partition=0)
        """
        return [TopicPartition(self.name, one.partition) for one in self.partitions]


def list_topics(*, internal: bool = True) -> Operation[list[TopicDescription]]:
    """All topics by name, with or without internal topics.

    >>> "orders" in [topic.name for topic in admin.list_topics(internal=False)]
    True
    """
    topics = yield from ask_one(
        "listing topics", ANY, lambda _: metadata_request(None), lambda answer: answer.topics
    )
    described = [_described(told.name, told, told.partitions) for told in topics if not told.error_code]
    return sorted(topic for topic in described if internal or not topic.is_internal)


def describe_topic(name: str) -> Operation[TopicDescription]:
    """The description of one topic; raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist.

    >>> [partition.isr for partition in admin.describe_topic("orders").partitions]
    [[1], [1], [1]]
    """
    return (yield from describe_topics([name]))[name]


def describe_topics(
    names: str | Iterable[str] = (), *, ids: Iterable[str] = ()
) -> Operation[dict[str, TopicDescription]]:
    """The descriptions of topics by name, or by id if you named them by id.

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
            raise BadResponse("the broker's DescribeTopicPartitions responses repeat the same page")
        cursor = page.next_cursor
        left = [name for name in left if name >= cursor.topic_name]
    missing = BadResponse("the broker's response lacks a topic of the request")
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

    targets = dict.fromkeys(names, ANY)
    question = Ask("describing topics", targets, lambda wanted, _: metadata_request(wanted), read)
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
        raise InvalidInput(f"{text!r} is not a topic id") from error


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


BROKERS_CHOICE = -1


class NewTopic(NamedTuple):
    """A topic to create; the broker's settings are the defaults.

    >>> NewTopic("orders", partitions=6, configs={"retention.ms": 86_400_000}).partitions
    6
    """

    name: str
    partitions: int = BROKERS_CHOICE
    replication_factor: int = BROKERS_CHOICE
    assignments: Sequence[Sequence[int]] = ()  # of each partition the brokers, the preferred leader first
    configs: Mapping[str, object] = {}


class CreatedTopic(NamedTuple):
    """A topic as the broker created it.

    >>> admin.create_topics([NewTopic("created", partitions=2)])["created"].partitions
    2
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    configs: dict[str, str | None]


# --- orders ----------------------------------------------------------------------------------------------


def create_topic(
    name: str,
    *,
    partitions: int = BROKERS_CHOICE,
    replication_factor: int = BROKERS_CHOICE,
    assignments: Sequence[Sequence[int]] = (),
    configs: Mapping[str, object] | None = None,
    validate_only: bool = False,
) -> Operation[CreatedTopic]:
    """Creates a topic and returns when a broker lists it; with `validate_only` it only checks the request.

    >>> admin.create_topic("payments", partitions=3, configs={"retention.ms": 60_000}).replication_factor
    1
    """
    topic = NewTopic(name, partitions, replication_factor, assignments, configs or {})
    return (yield from create_topics([topic], validate_only=validate_only))[name]


def create_topics(
    topics: Iterable[NewTopic | str], *, validate_only: bool = False
) -> Operation[dict[str, CreatedTopic]]:
    """Creates topics in one request; returns them by name.

    >>> sorted(admin.create_topics(["clicks", NewTopic("views", partitions=4)]))
    ['clicks', 'views']
    """
    wanted = {topic.name: topic for topic in (NewTopic(t) if isinstance(t, str) else t for t in topics)}

    def make(names: list[str], timeout_ms: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in names],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )

    def read(answer: Any, _: Sent[str]) -> Outcome[str, CreatedTopic]:
        return {
            told.name: failed(told.error_code, told.error_message, subject=f"topic {told.name!r}")
            or _created(told)
            for told in answer.topics
        }

    question = Ask("creating topics", dict.fromkeys(wanted, CONTROLLER), make, read)
    outcome = yield from ask(question)
    made = {name: told for name, told in outcome.items() if isinstance(told, CreatedTopic)}
    if not validate_only:
        yield from _until_told(dict.fromkeys(made, 1))
    return settled(outcome)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        # whoever places the replicas has said how many there are
        num_partitions=BROKERS_CHOICE if topic.assignments else topic.partitions,
        replication_factor=BROKERS_CHOICE if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(topic.assignments)
        ],
        configs=[
            CreatableTopicConfig(name=key, value=config_text(value)) for key, value in topic.configs.items()
        ],
    )


def _created(told: Any) -> CreatedTopic:
    return CreatedTopic(
        told.name,
        id_text(told.topic_id),
        told.num_partitions,
        told.replication_factor,
        {one.name: one.value for one in told.configs or ()},
    )


def delete_topic(name: str) -> Operation[None]:
    """Deletes a topic and all its records.

    >>> created = admin.create_topic("obsolete")
    >>> admin.delete_topic("obsolete")
    """
    yield from delete_topics([name])


def delete_topics(names: str | Iterable[str] = (), *, ids: Iterable[str] = ()) -> Operation[None]:
    """Deletes topics and all their records, by name or by id; an id never means a newer topic of the same
    name.

    >>> created = admin.create_topics(["tmp-a", "tmp-b"])
    >>> admin.delete_topics(["tmp-a"], ids=[created["tmp-b"].topic_id])
    """
    wanted: dict[str, DeleteTopicState] = {name: DeleteTopicState(name=name) for name in as_list(names)}
    by_id = {text: DeleteTopicState(name=None, topic_id=topic_id_from(text)) for text in as_list(ids)}
    texts = {state.topic_id: text for text, state in by_id.items()}
    wanted |= by_id

    def make(subjects: list[str], timeout_ms: int) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(
            topics=[wanted[subject] for subject in subjects],
            topic_names=[] if by_id else subjects,
            timeout_ms=timeout_ms,
        )

    def read(answer: Any, _: Sent[str]) -> Outcome[str, bool]:
        outcome: Outcome[str, bool] = {}
        for told in answer.responses:
            subject = texts.get(told.topic_id) or told.name
            error = failed(told.error_code, told.error_message, subject=f"topic {subject!r}")
            outcome[subject] = error or True
        return outcome

    yield from ask_all(Ask("deleting topics", dict.fromkeys(wanted, CONTROLLER), make, read))


def create_partitions(
    totals: Mapping[str, int],
    *,
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    validate_only: bool = False,
) -> Operation[None]:
    """Raises the number of partitions of topics to the given totals.

    `assignments` has, for a topic, the brokers of each new partition. Afterwards records with keys may go to
    other partitions than before.

    >>> created = admin.create_topic("growing", partitions=1)
    >>> admin.create_partitions({"growing": 4})
    >>> len(admin.describe_topic("growing").partitions)
    4
    """

    def make(names: list[str], timeout_ms: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=totals[name], assignments=placed(name))
                for name in names
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )

    def placed(name: str) -> list[CreatePartitionsAssignment] | None:
        if assignments is None or name not in assignments:
            return None
        return [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments[name]]

    def read(answer: Any, _: Sent[str]) -> Outcome[str, bool]:
        return {
            told.name: failed(told.error_code, told.error_message, subject=f"topic {told.name!r}") or True
            for told in answer.results
        }

    outcome = yield from ask(Ask("adding partitions", dict.fromkeys(totals, CONTROLLER), make, read))
    if not validate_only:
        yield from _until_told({name: totals[name] for name, told in outcome.items() if told is True})
    settled(outcome)


def _until_told(counts: Mapping[str, int]) -> Operation[None]:
    """Waits until a broker lists so many partitions, a moment after the controller."""

    def read(answer: MetadataResponse, _: Sent[str]) -> Outcome[str, bool]:
        there = {topic.name: len(topic.partitions) for topic in answer.topics if not topic.error_code}
        return {
            name: True
            if there.get(name, 0) >= count
            else KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject=f"topic {name!r}")
            for name, count in counts.items()
        }

    def make(names: list[str], _: int) -> MetadataRequest:
        return metadata_request(names)

    targets = dict.fromkeys(counts, ANY)
    yield from ask_all(Ask("waiting for topics", targets, make, read, unknown_s=CREATION_S))
