"""Topics: made, deleted and grown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.base.ids import id_text
from headrace.client.admin.asking import (
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
    failed,
    settled,
)
from headrace.client.admin.configs import config_text
from headrace.client.admin.topic_descriptions import metadata_request, topic_id_from
from headrace.client.errors import KafkaError
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
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse

BROKERS_CHOICE = -1


class NewTopic(NamedTuple):
    """A topic to make; what is not said is left to the broker's settings.

    >>> NewTopic("orders", partitions=6, configs={"retention.ms": 86_400_000}).partitions
    6
    """

    name: str
    partitions: int = BROKERS_CHOICE
    replication_factor: int = BROKERS_CHOICE
    assignments: Sequence[Sequence[int]] = ()  # of each partition the brokers, the preferred leader first
    configs: Mapping[str, object] = {}


class CreatedTopic(NamedTuple):
    """A topic as the broker made it.

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
    """Makes a topic and returns when a broker tells of it; `validate_only` only asks whether it could be.

    >>> admin.create_topic("payments", partitions=3, configs={"retention.ms": 60_000}).replication_factor
    1
    """
    topic = NewTopic(name, partitions, replication_factor, assignments, configs or {})
    return (yield from create_topics([topic], validate_only=validate_only))[name]


def create_topics(
    topics: Iterable[NewTopic | str], *, validate_only: bool = False
) -> Operation[dict[str, CreatedTopic]]:
    """Makes topics, all in one request; what they became, by name.

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
    """Deletes topics and all their records; by name, or by id where a name may have been taken over.

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

    `assignments` says of a topic on which brokers each new partition lives. Records with keys go to other
    partitions afterwards.

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
    """Until a broker tells of so many partitions: it hears of them a moment after the controller."""

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

    places = dict.fromkeys(counts, ANY)
    yield from ask_all(Ask("waiting for topics", places, make, read, unknown_s=CREATION_S))
