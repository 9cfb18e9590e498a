"""History of a run: facts in order. Judges get each fact when it happens, and the trace has a line for it."""

from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol

from headrace.simulator.world import World

TRACE_LINES_KEPT = 40  # what a failure prints of what went before


class PartitionKey(NamedTuple):
    """A partition of one topic in one life: a topic that is made again under its name is another one."""

    topic: str
    topic_id: bytes
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(slots=True)
class TopicCreationAsked:
    topic: str


@dataclass(slots=True)
class TopicCreated:
    topic: str
    topic_id: bytes
    partitions: int
    configs: dict[str, str]


@dataclass(slots=True)
class TopicDeletionAsked:
    topic: str


@dataclass(slots=True)
class TopicDeleted:
    topic: str


@dataclass(slots=True)
class TopicsListed:
    """A Metadata answer about all topics."""

    topics: dict[str, tuple[bytes, int]]  # name: id, partitions


@dataclass(slots=True)
class ConfigAsked:
    topic: str
    key: str
    value: str


@dataclass(slots=True)
class ConfigChanged:
    topic: str
    key: str
    value: str


@dataclass(slots=True)
class ConfigTold:
    topic: str
    configs: dict[str, str]


@dataclass(slots=True)
class BatchSent:
    producer: str
    partition: PartitionKey
    values: tuple[bytes, ...]
    acks: int
    is_idempotent: bool


@dataclass(slots=True)
class BatchAcked:
    """The answer left the node; whether the client ever saw it makes no difference to the promise."""

    producer: str
    partition: PartitionKey
    values: tuple[bytes, ...]
    base_offset: int
    acks: int
    durable_end: int  # what the disk held for sure when the answer left; -1: the topic is about to go


@dataclass(slots=True)
class Fetched:
    """What a fetch answer held for one partition, taken apart."""

    consumer: str
    partition: PartitionKey
    offset: int  # asked for
    records: list[tuple[int, bytes]]
    batches: list[tuple[int, int]]  # first and last offset of each
    leftover_bytes: int  # after the last whole batch
    damage: str  # what is wrong with the batch behind those, if anything
    high_watermark: int
    log_start_offset: int


@dataclass(slots=True)
class OffsetTold:
    """A ListOffsets answer."""

    partition: PartitionKey
    which: str  # "earliest" or "latest"
    offset: int


@dataclass(slots=True)
class DeletionAsked:
    partition: PartitionKey
    before_offset: int


@dataclass(slots=True)
class RecordsDeleted:
    partition: PartitionKey
    low_watermark: int


@dataclass(slots=True)
class ProducerIdGiven:
    producer: str
    producer_id: int


@dataclass(slots=True)
class TransactionBegun:
    """A copier is about to write these values, all of them or none."""

    copier: str
    number: int
    values: tuple[bytes, ...]


@dataclass(slots=True)
class EndAsked:
    """A copier is about to commit or abort for the first time; passed: partitions whose last stable offset
    lies behind records of the transaction already.
    """

    copier: str
    number: int
    passed: str


@dataclass(slots=True)
class CommitOfTransactionAsked:
    """A copier is about to commit; whatever became of its request, it may be seen from now on."""

    copier: str
    number: int


@dataclass(slots=True)
class TransactionEnded:
    """The answer to EndTxn left the node: it was committed, or aborted."""

    copier: str
    number: int
    is_commit: bool


@dataclass(slots=True)
class CommittedRead:
    """What a read_committed consumer shows its user of one fetch."""

    consumer: str
    partition: PartitionKey
    records: list[tuple[int, bytes]]
    last_stable_offset: int


@dataclass(slots=True)
class JoinAsked:
    """A member is about to join a group by one of the two protocols; nobody may hear what becomes of it."""

    group: str
    is_classic: bool


@dataclass(slots=True)
class Assigned:
    """A member was told its partitions in a generation; a static one goes by the name of its instance."""

    group: str
    member: str
    generation: int
    partitions: tuple[PartitionKey, ...]
    is_classic: bool


@dataclass(slots=True)
class PartitionsHeld:
    """What each member of a group of the consumer protocol has or has yet to give up, by its coordinator."""

    group: str
    holders: dict[str, list[tuple[bytes, int]]]  # topic id and number


@dataclass(slots=True)
class Polled:
    """What a member of a group shows its user of one partition."""

    consumer: str
    assignment: int  # number of it
    partition: PartitionKey
    position: int  # asked for
    offsets: list[int]


@dataclass(slots=True)
class CommitAsked:
    """A member is about to commit what it holds to be its own, in a transaction or without."""

    number: int
    group: str
    member: str
    partitions: tuple[PartitionKey, ...]


@dataclass(slots=True)
class CommitAccepted:
    """The answer left the node; in a transaction the commit counts when that is committed."""

    number: int


@dataclass(slots=True)
class OffsetCommitted:
    """A group's commit was acknowledged."""

    group: str
    partition: PartitionKey
    offset: int


@dataclass(slots=True)
class OffsetNoted:
    """A group asks to commit an offset that it uses only once, whatever the partition."""

    group: str
    partition: PartitionKey
    offset: int


@dataclass(slots=True)
class CommittedOffsetTold:
    """What a group was told that it has committed; -1: nothing."""

    group: str
    partition: PartitionKey
    offset: int


@dataclass(slots=True)
class CoordinatorCompared:
    """A coordinator when its node stopped, beside one made from what the disk holds."""

    partition: str
    difference: str  # empty: they are equal


@dataclass(slots=True)
class InvariantBroken:
    """A coordinator's memory contradicts itself between two calls."""

    partition: str
    fault: str


@dataclass(slots=True)
class Copied:
    """All has healed and everything was copied: what a read_committed reader finds, and the originals."""

    originals: list[bytes]
    copies: list[bytes]


@dataclass(slots=True)
class AtRest:
    """Nobody has written for longer than a transaction may last: each partition's last stable offset and
    high watermark.
    """

    ends: dict[str, tuple[int, int]]


@dataclass(slots=True)
class AnswerLeft:
    """A frame left on a client's connection; expected_id is that of its oldest unanswered request, -1 if
    none.
    """

    client: str
    correlation_id: int
    expected_id: int


@dataclass(slots=True)
class BatchRefused:
    """The oldest unanswered batch of an idempotent producer was refused as if others before it were
    missing.
    """

    producer: str
    partition: PartitionKey
    error: str


@dataclass(slots=True)
class ForgeryAnswered:
    """The answer to a produce request that the node has to refuse left the node."""

    client: str
    topic: str
    error_code: int


@dataclass(slots=True)
class NodeStarted:
    boot_id: str
    metadata: str  # the cluster's topics, settings and ids, as replayed


@dataclass(slots=True)
class NodeStopped:
    how: str  # "cleanly", "killed", "lost"
    flushed: dict[PartitionKey, int]  # up to where each log was fsynced
    metadata: str  # as at the start, at the end


@dataclass(slots=True)
class NodeLife:
    """A node of a cluster was started, or its process has ended; of the quorum alone, what a node does."""

    node: int
    what: str


@dataclass(slots=True)
class HighWatermarkLags:
    """A partition without followers has a high watermark below what its log vouches for."""

    partition: str
    high_watermark: int
    promised_end: int


@dataclass(slots=True)
class DirectoryGivenUp:
    """The node took a log directory offline; is_broken: its disk was told to break, or was full at the
    start.
    """

    error: str
    is_broken: bool


@dataclass(slots=True)
class AdminAnswered:
    """What an admin client of a cluster was told."""

    client: str
    request: str
    error: str


@dataclass(slots=True)
class FaultStruck:
    fault: str


@dataclass(slots=True)
class Finished:
    """All has healed and all was read once more: every partition that is left, from its start to its end."""

    contents: dict[PartitionKey, list[tuple[int, bytes]]]
    starts: dict[PartitionKey, int]
    ends: dict[PartitionKey, int]


# --- what programs made of our own client tell ------------------------------------------------------------


@dataclass(slots=True)
class DeliverySettled:
    """A producer told its user what became of a record that it took."""

    producer: str
    value: bytes
    why_not: str  # it was not delivered, as far as the producer knows; empty: it was


@dataclass(slots=True)
class Shown:
    """What a consumer gave its user of one partition in one call."""

    consumer: str
    stretch: int  # number of it: a seek or an assignment begins another
    partition: PartitionKey
    position: int  # that the consumer had named before
    records: list[tuple[int, bytes]]


@dataclass(slots=True)
class Handled:
    """A group's user is done with these records."""

    group: str
    partition: PartitionKey
    offsets: list[int]


@dataclass(slots=True)
class GroupCommitted:
    """The answer to a commit of a group left the node."""

    group: str
    partition: PartitionKey
    offset: int


@dataclass(slots=True)
class MemoryHeld:
    """A client holds more than ever before of what it may hold."""

    client: str
    what: str
    held_bytes: int
    bytes_max: int


@dataclass(slots=True)
class SpunIdle:
    """A client's machine wanted to be woken so often within one second."""

    client: str
    wakes: int


@dataclass(slots=True)
class ContentsKnown:
    """All that there is to show in these partitions when all is over, by a reader that is not our client."""

    contents: dict[PartitionKey, list[tuple[int, bytes]]]
    handled_by: dict[str, str]  # groups, and the topic of which their users must have handled everything


Event = (
    TopicCreationAsked
    | TopicCreated
    | TopicDeletionAsked
    | TopicDeleted
    | TopicsListed
    | ConfigAsked
    | ConfigChanged
    | ConfigTold
    | BatchSent
    | BatchAcked
    | Fetched
    | OffsetTold
    | DeletionAsked
    | RecordsDeleted
    | ProducerIdGiven
    | TransactionBegun
    | EndAsked
    | CommitOfTransactionAsked
    | TransactionEnded
    | CommittedRead
    | JoinAsked
    | Assigned
    | PartitionsHeld
    | Polled
    | CommitAsked
    | CommitAccepted
    | OffsetCommitted
    | OffsetNoted
    | CommittedOffsetTold
    | CoordinatorCompared
    | InvariantBroken
    | Copied
    | AtRest
    | AnswerLeft
    | BatchRefused
    | ForgeryAnswered
    | NodeStarted
    | NodeStopped
    | NodeLife
    | DirectoryGivenUp
    | HighWatermarkLags
    | AdminAnswered
    | FaultStruck
    | Finished
    | DeliverySettled
    | Shown
    | Handled
    | GroupCommitted
    | MemoryHeld
    | SpunIdle
    | ContentsKnown
)


class Violation(Exception):
    """A promise was broken; the text is the judge's sentence."""


class Judge(Protocol):
    @property
    def name(self) -> str: ...

    def see(self, event: Event, /) -> None:
        """Take note; raise Violation when this cannot be."""
        ...


class History:
    def __init__(self, world: World, judges: list[Judge]) -> None:
        self._world = world
        self._judges = judges
        self._digest = blake2b(digest_size=8)
        self.count = 0
        self.faults = 0
        self.last_lines: deque[str] = deque(maxlen=TRACE_LINES_KEPT)

    @property
    def digest(self) -> str:
        """Equal for equal histories."""
        return self._digest.hexdigest()

    def add(self, event: Event) -> None:
        self.count += 1
        line = ""
        if isinstance(event, FaultStruck):
            self.faults += 1
        if not isinstance(event, AnswerLeft):  # every other fact has it, too
            line = f"{self._world.mono:10.4f} {event}"
            self._digest.update(line.encode())
            self.last_lines.append(line if len(line) < 400 else line[:400] + " …")
        for judge in self._judges:
            try:
                judge.see(event)
            except Violation as violation:
                raise JudgedWrong(judge.name, str(violation), self.count, line or str(event)) from violation


class JudgedWrong(Exception):
    """The first bad event, and who says so."""

    def __init__(self, judge: str, sentence: str, number: int, event: str) -> None:
        super().__init__(f"{judge}: {sentence}")
        self.judge = judge
        self.sentence = sentence
        self.number = number
        self.event = event
