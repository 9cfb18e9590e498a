"""The state and progress of jobs, as text and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from headrace.base.moments import iso_time
from headrace.base.quantities import duration_text
from headrace.jobs.progress import Batch, Progress
from headrace.jobs.state_topic import JobStatus
from headrace.machines.jobs.job import JobState

LIST_HEADINGS = ("NAME", "KIND", "SCHEDULE", "STATE", "RUN", "LAG", "RUNNER", "LAST ERROR")
ERROR_CHARACTERS_MAX = 60


def list_row(status: JobStatus) -> list[object]:
    assert status.described is not None
    state = status.described.state
    lag = None if status.progress is None else status.progress.lag_records
    error = "-" if state.error is None else state.error.message
    if len(error) > ERROR_CHARACTERS_MAX:
        error = error[: ERROR_CHARACTERS_MAX - 1] + "…"
    return [
        *(status.name, status.described.kind, status.described.schedule, state.phase, state.run),
        *("-" if lag is None else f"{lag:,}", status.owner or "nobody", error),
    ]


def status_json(status: JobStatus) -> dict[str, Any]:
    assert status.described is not None
    state, kind, schedule, _ = status.described
    progress = None if status.progress is None else status.progress.as_json()
    return {
        "name": status.name,
        "kind": kind,
        "schedule": schedule,
        "runner": status.owner,
        **asdict(state),
        "progress": None if progress is None else {"run": status.progress_run, **progress},
    }


def status_lines(status: JobStatus, now_ms: int) -> Iterator[str]:
    assert status.described is not None
    state, kind, schedule, _ = status.described
    yield f"job {status.name}: {kind}, {schedule}"
    yield f"state      {_state_text(state, now_ms)}"
    yield f"runner     {status.owner or 'nobody'}"
    if state.started_ms is not None:
        ended = f", ended {iso_time(state.ended_ms)}" if state.ended_ms is not None else ""
        yield f"run        {state.run}, started {iso_time(state.started_ms)}{ended}"
    if status.progress is not None:
        yield from _progress_lines(status.progress)
    if state.error is not None:
        yield f"error      {state.error.message}"
        if state.error.advice:
            yield f"           {state.error.advice}"


def _state_text(state: JobState, now_ms: int) -> str:
    if state.due_ms is None:
        return str(state.phase)
    left_ms = max(0, state.due_ms - now_ms) // 1000 * 1000
    return f"{state.phase}, next run in {duration_text(left_ms)} ({iso_time(state.due_ms)})"


def _progress_lines(progress: Progress) -> Iterator[str]:
    yield (
        f"records    {progress.records_in:,} read, {progress.records_out:,} written, "
        f"{progress.skipped:,} skipped, {progress.dead_letters:,} dead letters"
    )
    if progress.lag_records is not None:
        late = f", {progress.lag_ms / 1000:,.1f} s" if progress.lag_ms is not None else ""
        yield f"lag        {progress.lag_records:,} records{late}"
    if progress.batch_ms is not None:
        yield (
            f"batches    {progress.batch_count:,}, the last in {progress.batch_ms:,} ms, "
            f"{progress.rate:,.0f} records/s"
        )
    for label, value in (
        ("watermark", progress.watermark),
        ("state", None if progress.state_rows is None else f"{progress.state_rows:,} rows"),
        ("files", None if progress.files is None else f"{progress.files:,}"),
        ("findings", None if progress.findings is None else f"{progress.findings:,}"),
        ("report", progress.report),
    ):
        if value is not None:
            yield f"{label:<10} {value}"
    for name, count in sorted(progress.failed_expectations.items()):
        yield f"not met    {name}: {count:,}"
    for line in progress.summary:
        yield f"           {line}"
    for batch in progress.recent[-3:]:
        yield f"batch      {_batch_text(batch)}"


def _batch_text(batch: Batch) -> str:
    spans = ", ".join(f"{at} {first}..{end - 1}" for at, (first, end) in sorted(batch.source.items()))
    return f"{spans} -> {batch.target}"
