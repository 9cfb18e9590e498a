"""What a run has done so far, as the child reports it and `headrace jobs status` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

BATCHES_KEPT: Final = 10


@dataclass(slots=True)
class Batch:
    """One batch: which offsets of the source are in it, and where they went. Ends are exclusive."""

    source: dict[str, tuple[int, int]]  # clicks-0 → first offset and the one after the last
    target: str
    records: int
    took_ms: int
    at_ms: int


@dataclass(slots=True)
class Progress:
    """None: the job's kind does not know it."""

    records_in: int = 0
    records_out: int = 0
    skipped: int = 0  # by a filter
    dead_letters: int = 0
    rate: float = 0.0  # records a second, of the last batch
    batch_count: int = 0
    batch_ms: int | None = None
    lag_records: int | None = None
    lag_ms: int | None = None
    watermark: str | None = None
    state_rows: int | None = None
    failed_expectations: dict[str, int] = field(default_factory=dict)
    files: int | None = None
    findings: int | None = None  # what an audit or a comparison found
    summary: list[str] = field(default_factory=list)  # lines for people
    report: str | None = None  # where the whole report is
    recent: list[Batch] = field(default_factory=list)  # the last ones, the newest at the end

    def add(self, batch: Batch) -> None:
        self.batch_count += 1
        self.batch_ms = batch.took_ms
        self.rate = batch.records / max(batch.took_ms / 1000, 0.001)
        self.recent = [*self.recent, batch][-BATCHES_KEPT:]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_progress(facts: Mapping[str, Any]) -> Progress:
    """Fields that this version does not know are left out: a newer runner may have written them."""
    known = {name: facts[name] for name in Progress.__slots__ if name in facts}
    recent = [Batch(**{name: one[name] for name in Batch.__slots__}) for one in known.pop("recent", [])]
    return Progress(**known, recent=recent)
