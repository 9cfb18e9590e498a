"""What a consumer's application has to know besides its records; the group's events come along."""

from dataclasses import dataclass, field

from headrace.client.cluster import TopicPartition
from headrace.client.membership.events import Assigned, AutoCommitFailed, Lost, PolledTooLate, Revoked


@dataclass(slots=True, frozen=True)
class PositionReset:
    """A position was not usable, and reading goes on elsewhere, as auto.offset.reset says."""

    at: TopicPartition
    before: int | None  # None: there was none
    after: int
    reason: str = field(default="", compare=False)


@dataclass(slots=True, frozen=True)
class LogTruncated:
    """Records that were read are no longer in the log: another leader has others in their place (KIP-320).

    Reading goes on where they begin to differ.
    """

    at: TopicPartition
    before: int
    after: int


PositionEvent = PositionReset | LogTruncated
ConsumerEvent = Assigned | Revoked | Lost | PolledTooLate | AutoCommitFailed | PositionEvent
