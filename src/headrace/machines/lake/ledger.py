"""The ledger of a lake table: which offsets of each partition the table holds.

The table keeps it itself, and every commit of a copy moves it: the rows and the ledger change together or not
at all. Invariant: of each partition the table holds exactly the offsets [start, next).

    append     [next, e)   only while the ledger's next is the range's start;  next := e
    backfill   [s, start)  only while the ledger's start is the range's end;   start := s

So a range that is copied twice, by two owners, after a lost answer or a lost checkpoint, is added once.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple


class Held(NamedTuple):
    """The offsets [start, next) of one partition, which the table holds."""

    start: int
    next: int


Ledger = Mapping[int, Held]  # partition → what the table holds; a partition that is missing has nothing


class Span(NamedTuple):
    """The offsets [start, end) of one partition."""

    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end - 1} of partition {self.partition}"


class Verdict(Enum):
    FITS = "the range continues what the table holds"
    HELD = "the table holds the whole range already"
    STALE = "the table has moved on: the range must be planned again"


def judge(span: Span, ledger: Ledger) -> Verdict:
    """Whether a commit may add this range."""
    held = ledger.get(span.partition)
    if held is None:
        return Verdict.FITS
    if held.start <= span.start and span.end <= held.next:
        return Verdict.HELD
    if span.start == held.next or span.end == held.start:
        return Verdict.FITS
    return Verdict.STALE


def judge_all(spans: Iterable[Span], ledger: Ledger) -> Verdict:
    """Whether one commit may add these ranges together; those of a partition touch each other."""
    verdicts = {judge(whole, ledger) for whole in join(spans)}
    if verdicts <= {Verdict.FITS}:
        return Verdict.FITS
    return Verdict.HELD if verdicts == {Verdict.HELD} else Verdict.STALE


def advance(ledger: Ledger, spans: Iterable[Span]) -> dict[int, Held]:
    """Return the entries that a commit of these ranges changes."""
    changed: dict[int, Held] = {}
    for span in join(spans):
        assert judge(span, ledger) is Verdict.FITS, span
        assert span.partition not in changed, "ranges of one partition touch each other"
        held = ledger.get(span.partition)
        if held is None:
            changed[span.partition] = Held(span.start, span.end)
        elif span.start == held.next:
            changed[span.partition] = Held(held.start, span.end)
        else:
            changed[span.partition] = Held(span.start, held.next)
    return changed


def join(spans: Iterable[Span]) -> list[Span]:
    """Return the same offsets with ranges that touch each other joined."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and joined[-1].partition == span.partition and joined[-1].end == span.start:
            joined[-1] = Span(span.partition, joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def uncovered(ledger: Ledger, other: Ledger, spans: Iterable[Span]) -> list[Span]:
    """Return what has to be added for a ledger to cover another one and these ranges as well.

    Ranges of one partition that the ledger has in their middle come out as two.
    """
    wanted: dict[int, Held] = dict(other)
    for span in spans:
        held = wanted.get(span.partition, Held(span.start, span.end))
        wanted[span.partition] = Held(min(held.start, span.start), max(held.next, span.end))
    found = []
    for partition, (start, end) in sorted(wanted.items()):
        own = ledger.get(partition)
        if own is None:
            found.append(Span(partition, start, end))
            continue
        if end > own.next:
            found.append(Span(partition, own.next, end))
        if start < own.start:
            found.append(Span(partition, start, own.start))
    return found


# --- names in the table ----------------------------------------------------------------------------------


def next_key(topic_id: str, partition: int) -> str:
    """The application id whose version is the partition's next offset."""
    return f"headrace/{topic_id}/{partition}/next"


def start_key(topic_id: str, partition: int) -> str:
    """The application id whose version is the first offset that the table holds."""
    return f"headrace/{topic_id}/{partition}/start"


def partitions_key(topic_id: str) -> str:
    """The application id whose version is one more than the highest partition in the ledger."""
    return f"headrace/{topic_id}/partitions"


def rows_key(topic_id: str) -> str:
    """The application id whose version is the number of rows; of a table with upserts."""
    return f"headrace/{topic_id}/rows"


def hash_key(topic_id: str) -> str:
    """The application id whose version is the hash of all rows; of a table with upserts."""
    return f"headrace/{topic_id}/hash"
