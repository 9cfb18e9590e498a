"""Which ranges of a topic are copied into its lake table next, and which records the table will never have.

Numbers in, ranges out. A step copies at most `offsets_max` offsets of each partition, so that a commit comes
within a bounded time, and the work that a kill loses is bounded.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.machines.lake.ledger import Held, Ledger, Span


class Log(NamedTuple):
    """The readable offsets [start, end) of one partition of the topic."""

    start: int
    end: int


class Plan(NamedTuple):
    spans: list[Span]  # to copy
    lost: list[Span]  # deleted from the topic before they were copied
    truncated: list[Span]  # in the table, but behind the end of the topic: its log was cut

    @property
    def is_empty(self) -> bool:
        return not self.spans and not self.lost and not self.truncated


def plan_append(
    ledger: Ledger, logs: Mapping[int, Log], until: Mapping[int, int], *, offsets_max: int, from_end: bool
) -> Plan:
    """Plan the offsets behind those that the table holds, of the partitions in `until` and up to there.

    A partition of which the table holds nothing begins at its first record or, with `from_end`, at its end;
    such a partition gets an empty range, which sets its start in the ledger.
    """
    spans, lost, truncated = [], [], []
    for partition, log in sorted(logs.items()):
        if partition not in until:
            continue
        end = max(log.start, min(log.end, until[partition]))
        held = ledger.get(partition)
        if held is None:
            first = end if from_end else log.start
            spans.append(Span(partition, first, min(end, first + offsets_max)))
            continue
        first = held.next
        if first > log.end:
            truncated.append(Span(partition, log.end, first))
        if first < log.start:
            lost.append(Span(partition, first, log.start))
            first = log.start
        if first < end:
            spans.append(Span(partition, first, min(end, first + offsets_max)))
    return Plan(spans, lost, truncated)


def plan_backfill(
    ledger: Ledger, logs: Mapping[int, Log], *, offsets_max: int, down_to: int | None = None
) -> Plan:
    """Plan the offsets before those that the table holds, latest first.

    The order keeps the table's offsets of a partition one range at every moment.
    """
    spans = []
    for partition, held in sorted(ledger.items()):
        log = logs.get(partition)
        if log is None:
            continue
        first = max(log.start, down_to or 0)
        end = min(held.start, log.end)
        if first < end == held.start:
            spans.append(Span(partition, max(first, end - offsets_max), end))
    return Plan(spans, [], [])


def behind(ledger: Ledger, logs: Mapping[int, Log]) -> dict[int, int]:
    """Return how many offsets of each partition the table still has to get."""
    return {
        partition: max(0, log.end - max(ledger.get(partition, Held(0, log.start)).next, log.start))
        for partition, log in sorted(logs.items())
    }
