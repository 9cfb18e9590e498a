"""Contract of the coordinators' machines (groups, transactions, sinks): decisions, replay, deadlines.

A coordinator is a pure state machine over one partition of its internal topic. It *decides*: from the time
and a request it computes the records of the change, and the replies. Deciding never changes the state that
the log describes: the owner appends the records as one batch and *replays* each at once, and only replay
changes that state; after a restart the same records rebuild it. State that is only in memory (who waits for a
rebalance, session timers) may change while deciding. If an append fails, the owner discards the whole machine
and builds it again from the log. While the owner knows that nothing can be appended (too few replicas are in
sync), it decides with `decide_or_undo`: a decision without records counts, and one with records leaves no
trace, so that the machine lives on.

Every reply, also to a request that changes nothing, leaves once everything that it may depend on and that was
replayed before it is committed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from headrace.base.time import Instant, Now
from headrace.protocol.coordinator_records import Record

# When nothing can be appended, a timer that has something to write rings again after this time: sessions and
# timeouts are longer, and a timer that rings in vain costs little.
WRITE_AGAIN_MS = 1_000

K = TypeVar("K")
V = TypeVar("V")

# Whoever waits for an answer. Opaque to the machines: kept, and handed back in `Decision.answers`.
Ticket = Any


class Writer(NamedTuple):
    """The producer in whose transaction records are written: they are valid once the transaction commits."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Decision:
    reply: Any = None  # to whoever asked; None: it gets its answer later, or there was nobody
    # appended together, or not at all; `CompactRecords` are read like a list, and not changed
    records: list[Record] = field(default_factory=list)
    answers: list[tuple[Ticket, Any]] = field(default_factory=list)  # to those who asked earlier
    effects: list[Any] = field(default_factory=list)  # what to do once the records are committed
    writer: Writer | None = None  # the records are part of its transaction


def restore(kept: dict[K, V], key: K, value: V | None) -> None:
    """Gives the key the value that `kept.get(key)` returned before."""
    if value is None:
        kept.pop(key, None)
    else:
        kept[key] = value


class CoordinatorMachine(Protocol):
    """The contract of a machine over one partition of a coordinator's topic.

    Each kind adds its own methods, which return a `Decision` (they change something) or a plain value (they
    do not). The metadata controller works in the same way; it replays records into the cluster image
    (`machines/metadata/controller/decision.py`).
    """

    def replay(self, change: Any, writer: Writer | None = None, /) -> None:
        """A record of the log, or one that was just appended; or what the machine's own `CompactRecords` say.
        With a writer it counts once that commits.
        """
        ...

    def replay_end(self, producer_id: int, is_committed: bool, /) -> None:
        """The end marker of a transaction in this partition."""
        ...

    def loaded(self, now: Now, /) -> Decision:
        """The whole log was replayed: work that was under way continues."""
        ...

    def deadline(self) -> Instant | None:
        """The earliest moment at which `wake` has something to do."""
        ...

    def wake(self, now: Now, /, *, can_write: bool = True) -> list[Decision]:
        """What follows from the time alone. If nothing can be written, no decision has records: what would
        have some is put off, for WRITE_AGAIN_MS or until it would be looked at again anyway.
        """
        ...

    def decide_or_undo(self, key: str, decide: Callable[[], Decision], /) -> Decision:
        """Calls `decide`, which makes one decision of this machine about the key (a group id, a transactional
        id or a sink's name). If the decision has records, everything that deciding changed in memory is
        undone; the records are only returned to say so.
        """
        ...

    def abandon(self) -> list[Ticket]:
        """The machine is discarded: returns the tickets of all that wait for an answer."""
        ...

    def state(self) -> Any:
        """Everything that the log describes, for comparisons with another machine."""
        ...

    def check(self) -> None:
        """Raises if an invariant does not hold; tests and the simulator call it."""
        ...


class Caller(NamedTuple):
    """The client that asks, as far as a coordinator stores it."""

    client_id: str
    client_host: str  # as Kafka writes it: "/127.0.0.1"


class Topics(Protocol):
    """What a coordinator needs to know of the cluster's topics; always the newest committed state."""

    def partition_count(self, topic: str, /) -> int | None:
        """None: there is no such topic."""
        ...

    def id_of(self, topic: str, /) -> bytes | None: ...

    def name_of(self, topic_id: bytes, /) -> str | None: ...

    def names(self) -> list[str]:
        """The names of all topics, sorted."""
        ...

    def awaits(self, topic: str, group_id: str, /) -> bool:
        """Whether retention of the topic waits for the group."""
        ...

    @property
    def version(self) -> int:
        """Rises when a topic is created or deleted, or gets more partitions."""
        ...
