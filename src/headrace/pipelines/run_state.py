"""What a run has done so far: a file in the pipeline's storage that `headrace pipeline status` reads.

The runner writes the file again every few seconds, in one step. Counts go up with each finished micro-batch
and continue in the next run; a runner that is killed may lose the counts of its last seconds, never rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.pipelines.errors import ProjectError

FILE_NAME = "run-state.json"
OBSERVED = "headrace"  # the name under which a flow's expectations are observed
STALE_S = 30.0  # a runner that has not written for so long is gone


@dataclass(slots=True)
class FlowState:
    batch: int = -1  # the last micro-batch that is counted
    rows_in: int = 0
    rows_out: int | None = None  # None: the target does not count
    rate_in: float = 0.0  # rows a second, of the last micro-batch
    batch_ms: int = 0
    watermark: str | None = None
    state_rows: int = 0
    failed_expectations: dict[str, int] = field(default_factory=dict)
    error: str | None = None

    def absorb(self, progresses: Iterable[Mapping[str, Any]]) -> None:
        """Count the micro-batches that are new; Spark reports the recent ones again and again."""
        for progress in progresses:
            if progress["batchId"] <= self.batch:
                continue
            self.batch = progress["batchId"]
            self.rows_in += sum(source.get("numInputRows") or 0 for source in progress.get("sources", []))
            written = progress.get("sink", {}).get("numOutputRows")
            if written is not None and written >= 0:  # files report -1
                self.rows_out = (self.rows_out or 0) + written
            self.rate_in = float(progress.get("processedRowsPerSecond") or 0.0)
            self.batch_ms = int(progress.get("batchDuration") or 0)
            self.watermark = progress.get("eventTime", {}).get("watermark") or self.watermark
            self.state_rows = sum(one.get("numRowsTotal") or 0 for one in progress.get("stateOperators", []))
            for name, count in observed_counts(progress).items():
                self.failed_expectations[name] = self.failed_expectations.get(name, 0) + count


@dataclass(slots=True)
class RunState:
    pipeline: str
    trigger: str
    pid: int
    written_at: float  # seconds since 1970
    is_running: bool = True
    flows: dict[str, FlowState] = field(default_factory=dict)

    def is_alive(self, now: float) -> bool:
        return self.is_running and now - self.written_at < STALE_S


def observed_counts(progress: Mapping[str, Any]) -> dict[str, int]:
    """The counts of the expectations in one progress report."""
    found = progress.get("observedMetrics", {}).get(OBSERVED)
    if not found:
        return {}
    if "schema" in found and "values" in found:
        names = [one["name"] for one in found["schema"]["fields"]]
        found = dict(zip(names, found["values"], strict=True))
    return {name: int(count) for name, count in found.items() if name != "_rows"}


def write_state(storage: Path, state: RunState) -> None:
    storage.mkdir(parents=True, exist_ok=True)
    write_json(storage / FILE_NAME, asdict(state))


def read_state(storage: Path) -> RunState:
    try:
        read = json.loads((storage / FILE_NAME).read_text())
    except FileNotFoundError:
        raise ProjectError(f"{storage} has no run yet: `headrace pipeline run` starts one") from None
    flows = {name: FlowState(**facts) for name, facts in read.pop("flows").items()}
    return RunState(**read, flows=flows)


def write_json(file: Path, value: Any) -> None:
    """Replace the file in one step, so that no reader finds half of it."""
    new = file.with_name(file.name + ".new")
    new.write_text(json.dumps(value, indent=1))
    os.replace(new, file)


def status_rows(state: RunState) -> list[list[object]]:
    """The table of `status`, one row per flow, under STATUS_HEADINGS."""
    rows: list[list[object]] = []
    for name, flow in sorted(state.flows.items()):
        failed = ", ".join(
            f"{one} {count:,}" for one, count in sorted(flow.failed_expectations.items()) if count
        )
        batch = "-" if flow.batch < 0 else flow.batch
        rows.append(
            [
                *(name, batch, f"{flow.rows_in:,}"),
                *("-" if flow.rows_out is None else f"{flow.rows_out:,}", f"{flow.rate_in:,.0f}"),
                *(f"{flow.state_rows:,}", flow.watermark or "-", failed or "-"),
            ]
        )
    return rows


STATUS_HEADINGS = ("FLOW", "BATCH", "ROWS IN", "ROWS OUT", "ROWS/S", "STATE", "WATERMARK", "NOT MET")
