"""How an admin operation is written: an `Ask` says what to send, for which subjects, to which broker.

An operation is a generator that yields an `Ask` for what it wants to know and returns its result. It has no
sockets, no clock and no retries: `Execution` gives every subject of an `Ask` its own answer or its own error,
however many brokers, look-ups and tries that takes.

    def delete_topics(names: list[str]) -> Operation[None]:
        yield from ask_all(Ask("deleting topics", dict.fromkeys(names, CONTROLLER), make, read))
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from headrace.client.cluster import TopicPartition
from headrace.client.coordinator import CoordinatorKind
from headrace.client.errors import ClientError, InvalidInput, KafkaError, PartlyFailed
from headrace.client.network.connection import Question

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


# --- of whom ---------------------------------------------------------------------------------------------


class Somewhere(Enum):
    ANY = "any broker"
    CONTROLLER = "the controller"


ANY: Final = Somewhere.ANY
CONTROLLER: Final = Somewhere.CONTROLLER


class OfBroker(NamedTuple):
    broker_id: int


class LeaderOf(NamedTuple):
    partition: TopicPartition


class CoordinatorOf(NamedTuple):
    kind: CoordinatorKind
    key: str

    def __str__(self) -> str:
        return f"{self.kind.noun} {self.key!r}"


class NoSuchBroker(InvalidInput):
    """The cluster does not have this broker, or does not have it any more."""


Target = Somewhere | OfBroker | LeaderOf | CoordinatorOf


# --- what ------------------------------------------------------------------------------------------------


class Sent(NamedTuple, Generic[K]):
    """The part of an Ask that one request carried."""

    subjects: list[K]
    broker_id: int | None  # who was asked; None: whoever was there


@dataclass(slots=True, frozen=True)
class Ask(Generic[K, V]):
    """The same question about each subject, sent together to those who share a target.

    `make` gets the subjects of one request and how long it may take; `read` gives each of them its value or
    its error. An error that may pass is asked again about, unless its code is `final`. Topics that nobody
    knows are asked for again for `unknown_s` only, since most of them never were.
    """

    what: str  # completes "timed out while …"
    targets: Mapping[K, Target]
    make: Callable[[list[K], int], Question]  # subjects, timeout_ms
    read: Callable[[Any, Sent[K]], Mapping[K, V | ClientError]]
    final: frozenset[int] = frozenset()
    unknown_s: float = 0.0
    version_max: int | None = None
    is_alone: bool = False  # a request carries one subject


class Draw(NamedTuple):
    """So many random bytes, please."""

    size: int


Operation: TypeAlias = Generator[Ask[Any, Any] | Draw, Any, T]
Outcome: TypeAlias = dict[K, V | ClientError]

# Brokers hear of a new topic one after the other: a moment for those who lead its partitions.
HEARSAY_S = 0.5
# How long it may take until a broker lists a topic that was just created.
CREATION_S = 5.0


def ask(question: Ask[K, V]) -> Operation[Outcome[K, V]]:
    """Every subject with its value or its error."""
    outcome: Outcome[K, V] = yield question
    return outcome


def ask_all(question: Ask[K, V]) -> Operation[dict[K, V]]:
    """Every subject with its value; the errors, if there are any, are raised."""
    return settled((yield from ask(question)))


_IT: Final = "it"


def ask_one(
    what: str,
    target: Target,
    make: Callable[[int], Question],
    read: Callable[[Any], V],
    *,
    final: frozenset[int] = frozenset(),
    version_max: int | None = None,
) -> Operation[V]:
    """One question with one answer; `read` raises what the answer says went wrong."""
    question: Ask[Literal["it"], V] = Ask(
        what,
        {_IT: target},
        lambda _, timeout_ms: make(timeout_ms),
        lambda answer, _: {_IT: read(answer)},
        final=final,
        version_max=version_max,
    )
    return (yield from ask_all(question))[_IT]


def draw(size: int) -> Operation[bytes]:
    drawn: bytes = yield Draw(size)
    return drawn


# --- answers ---------------------------------------------------------------------------------------------


class Told(IntEnum):
    """Numbers with names that a broker tells; the UNKNOWN of a subclass stands for what came after us."""

    @classmethod
    def _missing_(cls, value: object) -> "Told":
        return cls(0)


def settled(outcome: Mapping[K, V | ClientError]) -> dict[K, V]:
    """The values, when there are no errors.

    One subject's error is raised as it is, and so is one that came instead of all answers; several of them
    are raised as one PartlyFailed.
    """
    values: dict[K, V] = {}
    failures: dict[K, ClientError] = {}
    for subject, value in outcome.items():
        if isinstance(value, ClientError):
            failures[subject] = value
        else:
            values[subject] = value
    if not failures:
        return values
    first, *others = failures.values()
    if not values and all(other is first for other in others):
        raise first
    raise PartlyFailed(failures, values)


def failed(code: int, message: str | None = None, *, subject: str) -> KafkaError | None:
    """The error that a code in an answer stands for, if it stands for one."""
    return KafkaError(code, message, subject=subject) if code else None


def check(code: int, message: str | None = None, *, subject: str) -> None:
    if code:
        raise KafkaError(code, message, subject=subject)


# --- partitions by topic, as most requests want them -----------------------------------------------------


# What is said of each partition: a pair of a name and a number will do for a TopicPartition.
ByPartition: TypeAlias = Mapping[TopicPartition, V] | Mapping[tuple[str, int], V]


def as_partition(at: tuple[str, int]) -> TopicPartition:
    return TopicPartition(*at)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for at in partitions:
        found.setdefault(at.topic, []).append(at)
    return found


def by_partition(
    topics: Iterable[Any], value: Callable[[Any], V], *, subject: str = ""
) -> Outcome[TopicPartition, V]:
    """The result of each partition in an answer: its value, or the error that its code stands for."""
    outcome: Outcome[TopicPartition, V] = {}
    for topic in topics:
        for told in topic.partitions:
            at = TopicPartition(topic.name, told.partition_index)
            message = getattr(told, "error_message", None)
            error = failed(told.error_code, message, subject=f"{subject}partition {at}")
            outcome[at] = error or value(told)
    return outcome


def as_list(names: str | Iterable[str]) -> list[str]:
    """Without repetitions; one name may stand for a list of it."""
    return [names] if isinstance(names, str) else list(dict.fromkeys(names))
