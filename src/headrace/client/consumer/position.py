"""State of one partition that is read: the position, and how far it was fetched ahead.

    UNKNOWN --the group has committed one--> CHECKING or READY
            --it has not, or there is no group--> RESETTING
    RESETTING --ListOffsets answered--> READY
    READY --its leader changed--> CHECKING --the leader has what we read--> READY
                                           --it has not--> READY where they part, or RESETTING
          --out of range--> RESETTING
    any --sought--> CHECKING, READY or RESETTING

An error that only the application can mend waits in `error` until everything before it was handed out.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from headrace.base.ids import NO_TOPIC_ID
from headrace.base.randomness import Randomness
from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError
from headrace.client.membership.events import (
    Assigned,
    AutoCommitFailed,
    CommittedOffset,
    Lost,
    PolledTooLate,
    Revoked,
)
from headrace.client.settings.consumer import ConsumerSettings, Reset
from headrace.records.fetched import Fetched

NO_EPOCH = -1
NO_OFFSET = -1


class PositionPhase(Enum):
    UNKNOWN = auto()
    RESETTING = auto()
    CHECKING = auto()
    READY = auto()


class Position:
    """Invariant: `chunks` have, without gaps, the records from `offset` to `fetch_offset`."""

    __slots__ = (
        "at",
        "chunks",
        "epoch",
        "error",
        "failures",
        "fetch_end",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "is_asked",
        "is_in_turn",
        "is_leaving",
        "is_paused",
        "is_spoilt",
        "last_stable_offset",
        "leader_epoch",
        "offset",
        "phase",
        "reset",
        "reset_reason",
        "retry_at",
        "round",
        "size",
        "topic_id",
    )

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.phase = PositionPhase.UNKNOWN
        self.offset: int | None = None  # of the next record to hand out
        self.epoch = NO_EPOCH  # the leader's, under which the record before `offset` was written
        self.fetch_offset = NO_OFFSET  # where the next fetch begins
        self.fetch_end: int | None = None  # nothing from here on is wanted; None: there is no end
        self.fetch_epoch = NO_EPOCH
        self.leader_epoch = NO_EPOCH  # of the leader that is known to have what lies before `fetch_offset`
        self.topic_id: bytes = NO_TOPIC_ID  # of the topic in which the position was found
        self.high_watermark = NO_OFFSET  # as far as we were told
        self.last_stable_offset = NO_OFFSET
        self.chunks: deque[Fetched] = deque()  # kept by the backlog
        self.size = 0  # of the chunks
        self.is_in_turn = False
        self.is_paused = False
        self.is_leaving = False  # the application is giving it up
        self.is_spoilt = False  # asking on makes no sense before the chunks are handed out
        self.is_asked = False  # a question about the position itself is under way
        self.round = 0  # answers to questions of an earlier round come too late
        self.reset: Reset | None = None  # where to begin, while RESETTING
        self.reset_reason = ""  # none: the application asked for it
        self.error: ClientError | None = None  # to be raised to the application
        self.retry_at = Instant(0.0)
        self.failures = 0

    @property
    def has_topic_id(self) -> bool:
        return self.topic_id != NO_TOPIC_ID

    @property
    def is_idle(self) -> bool:
        """Whether something may be asked about it, as far as its own state goes."""
        return not self.is_asked and not self.is_leaving and self.error is None

    def can_be_fetched(self, ahead_bytes_max: int) -> bool:
        return (
            self.phase is PositionPhase.READY
            and not self.is_paused
            and not self.is_leaving
            and not self.is_spoilt
            and self.error is None
            and self.size < ahead_bytes_max
            and (self.fetch_end is None or self.fetch_offset < self.fetch_end)
        )

    def move(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Sets the position; nothing is fetched ahead of it (the buffered records were dropped)."""
        self._begin_round(PositionPhase.READY if epoch == NO_EPOCH else PositionPhase.CHECKING)
        self.offset = self.fetch_offset = offset
        self.epoch = self.fetch_epoch = epoch
        self.leader_epoch = NO_EPOCH

    def begin_reset(self, reset: Reset, reason: str) -> None:
        self._begin_round(PositionPhase.RESETTING)
        self.reset = reset
        self.reset_reason = reason

    def rewind(self) -> None:
        """Forgets how far we had fetched."""
        assert self.offset is not None
        self.move(self.offset, self.epoch)

    def _begin_round(self, phase: PositionPhase) -> None:
        assert not self.chunks, "what was fetched belongs to the last round"
        self.round += 1
        self.phase = phase
        self.is_asked = False
        self.is_spoilt = False
        self.error = None
        self.reset = None
        self.settled()

    def settled(self) -> None:
        """The last question was answered as it should be."""
        self.retry_at = Instant(0.0)
        self.failures = 0

    def postpone(self, now: Instant, settings: ConsumerSettings, rng: Randomness) -> None:
        """The last question failed: the next one waits, longer after each failure."""
        self.retry_at = Instant(now + settings.backoff(self.failures, rng))
        self.failures += 1

    @property
    def is_known(self) -> bool:
        return self.offset is not None and self.phase in (PositionPhase.READY, PositionPhase.CHECKING)

    def committable(self) -> CommittedOffset | None:
        """How far the application has read."""
        if self.offset is None or not self.is_known:
            return None
        return CommittedOffset(self.offset, self.epoch)

    def check(self) -> None:
        assert self.size == sum(chunk.size for chunk in self.chunks)
        assert self.phase in (PositionPhase.READY, PositionPhase.CHECKING) or not self.chunks
        if self.phase is PositionPhase.READY:
            assert self.offset is not None
            assert 0 <= self.offset <= self.fetch_offset
        if self.chunks:
            assert self.chunks[0].next_offset == self.offset
            assert self.chunks[-1].end_offset == self.fetch_offset


@dataclass(slots=True, frozen=True)
class PositionReset:
    """A position was not usable, and was reset as auto.offset.reset says."""

    at: TopicPartition
    before: int | None  # None: there was none
    after: int
    reason: str = field(default="", compare=False)


@dataclass(slots=True, frozen=True)
class LogTruncated:
    """Records that were read are no longer in the log: another leader has others in their place (KIP-320).

    Reading continues at the first offset that differs.
    """

    at: TopicPartition
    before: int
    after: int


PositionEvent = PositionReset | LogTruncated
ConsumerEvent = Assigned | Revoked | Lost | PolledTooLate | AutoCommitFailed | PositionEvent
