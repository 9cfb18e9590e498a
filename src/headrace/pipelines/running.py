"""The runner: flows as Structured Streaming queries and batch writes, until caught up or until stopped.

The runner needs a Spark Connect session; everything it remembers is in the catalog and in the checkpoints.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines import relations
from headrace.pipelines.catalog import Catalog
from headrace.pipelines.errors import InvalidPipeline, is_from_spark, short_message
from headrace.pipelines.expectations import count_columns, dead_rows, shared_columns, written_condition
from headrace.pipelines.frames import SERVERS_OPTION, Frames, kept_rows
from headrace.pipelines.graph import MATERIALIZED, SINK, TABLE, TOPIC_FORMAT, VIEW, Flow, check
from headrace.pipelines.run_state import OBSERVED, FlowState, RunState, read_state, write_state

if TYPE_CHECKING:
    from headrace.pipelines.definitions import Definitions

log = logging.getLogger("headrace.pipelines")

POLL_S = 0.5
STATE_EVERY_S = 2.0
STOP_PATIENCE_S = 60.0  # for the micro-batch that runs when a stop is asked for

# Spark gives a source's worker ten seconds to start, and no setting changes that: on a busy computer it may
# need more. Nothing has been read then, so the query is started again, but not for ever.
WORKER_TOO_SLOW = "Python worker failed to connect back"
WORKER_RETRIES_MAX = 10


class FlowFailed(RuntimeError):
    """A flow ended with an error; the message names the flow and the reason."""

    def __init__(self, flow: str, reason: str) -> None:
        super().__init__(f"flow {flow} failed: {reason}")
        self.flow = flow


class Runner:
    """`servers` replaces the brokers that the files name, and `sink_paths` the paths of sinks: for cases."""

    def __init__(
        self,
        spark: Any,
        definitions: Definitions,
        storage: Path,
        *,
        servers: str | None = None,
        sink_paths: Path | None = None,
        pid: int = 0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        problems = check(definitions.graph)
        if problems:
            raise InvalidPipeline(problems)
        self.graph = definitions.graph
        self._catalog = Catalog(storage)
        self.frames = Frames(spark, definitions, self._catalog, servers=servers)
        self._servers = servers
        self._sink_paths = sink_paths
        self._pause = pause
        self._queries: dict[str, Any] = {}
        self._starts: dict[str, Callable[[], None]] = {}  # of each query
        self._worker_retries = 0
        self._state_written = 0.0
        try:
            flows = read_state(self._catalog.directory).flows
        except ValueError:
            flows = {}
        for one in flows.values():
            one.error = None
        self.state = RunState(self.graph.name, "once", pid, 0.0, True, flows)

    # --- runs --------------------------------------------------------------------------------------------

    def run(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Run all flows: those that are triggered once until they are caught up, the others until a stop.

        Raises FlowFailed if a flow fails; all others are then stopped, and the next run continues.
        """
        with self._catalog.lock():
            try:
                is_lasting = False
                for wave in self.graph.waves():
                    started = []
                    for flow in wave:
                        if not self.graph.reads_stream(flow):
                            self._write_batch(flow)
                        elif flow.settings.trigger.kind == "once":
                            started += self._start(flow)
                        else:
                            self._start(flow)
                            is_lasting = True
                    self._await(started, is_stopping)
                if is_lasting:
                    self.state.trigger = "until stopped"
                    self._watch(is_stopping)
            finally:
                self._stop_all()
                self.state.is_running = False
                self._write_state(is_due=True)

    def _await(self, names: list[str], is_stopping: Callable[[], bool]) -> None:
        while True:
            is_done = is_stopping() or not any(self._queries[name].isActive for name in names)
            has_restarted = self._check_queries()
            if is_done and not has_restarted:
                break
            self._pause(POLL_S)
        self._write_state(is_due=True)

    def _watch(self, is_stopping: Callable[[], bool]) -> None:
        refreshed = dict.fromkeys(self.graph.flows, time.monotonic())
        while not is_stopping():
            self._check_queries()
            for flow in self.graph.order():
                now = time.monotonic()
                is_view = self.graph.datasets[flow.target].kind == MATERIALIZED
                if is_view and now - refreshed[flow.name] >= flow.settings.refresh_s:
                    self._write_batch(flow)
                    refreshed[flow.name] = time.monotonic()
            self._pause(POLL_S)

    def _check_queries(self) -> bool:
        """Raise what ended a query; return True if one had to be started again."""
        retries = self._worker_retries
        for name, query in list(self._queries.items()):
            failed = query.exception()
            if failed is None:
                continue
            if WORKER_TOO_SLOW not in str(failed) or self._worker_retries >= WORKER_RETRIES_MAX:
                raise self._failed(name, failed) from failed
            self._worker_retries += 1
            log.warning("flow %s starts again, since Spark's Python worker was too slow to start", name)
            self._starts[name]()
        self._write_state()
        return self._worker_retries > retries

    def _failed(self, name: str, error: BaseException) -> FlowFailed:
        text = short_message(error)
        self.state.flows.setdefault(name, FlowState()).error = text
        return FlowFailed(name, text)

    def _stop_all(self) -> None:
        """Let running micro-batches end, so that the next run need not repeat them."""
        patience_s = STOP_PATIENCE_S
        for query in self._queries.values():
            running = _last_batch(query)
            while (
                query.isActive
                and query.status["isTriggerActive"]
                and _last_batch(query) == running  # else the next one has begun
                and patience_s > 0
            ):
                self._pause(POLL_S / 5)
                patience_s -= POLL_S / 5
            if query.isActive:
                query.stop()

    def _write_state(self, *, is_due: bool = False) -> None:
        now = time.time()
        if not is_due and now - self._state_written < STATE_EVERY_S:
            return
        for name, query in self._queries.items():
            progresses = [json.loads(one.json) for one in query.recentProgress]
            self.state.flows.setdefault(name, FlowState()).absorb(progresses)
        self.state.written_at = self._state_written = now
        write_state(self._catalog.directory, self.state)

    # --- streams -----------------------------------------------------------------------------------------

    def _start(self, flow: Flow) -> list[str]:
        """Start the flow's query and those for dead letters that it does not write; return their names."""
        frame = self.frames.frame(flow)
        target = self.graph.datasets[flow.target]
        options = self._sink_options(flow)
        started = [flow.name]
        if flow.expectations:
            counted = relations.observed(frame, OBSERVED, count_columns(flow.expectations))
        else:
            counted = frame
        if flow.has_dead and target.format == TOPIC_FORMAT and not _has_format(options):
            topic = options.pop("topic", None)
            written = written_condition(flow.expectations)
            kept = counted if written is None else counted.where(written)
            rows = kept.selectExpr(*shared_columns(flow.expectations, frame.columns, topic))
            options = {**_dead_options(flow), **options}
        else:
            rows = kept_rows(flow, counted)
            if flow.has_dead:
                started.append(self._start_dead(flow))
        self._begin(flow.name, flow, rows, target.format, options)
        started += [self._start_dead(one) for one in self._views_of(flow)]
        return started

    def _views_of(self, flow: Flow) -> list[Flow]:
        """Flows of views below this one whose dead letters nobody writes yet."""
        found: dict[str, Flow] = {}
        for name in self.graph.upstream(flow):
            for writer in self.graph.flows_into(name):
                if self.graph.datasets[name].kind == VIEW:
                    if writer.has_dead and f"{writer.name}.dead" not in self._queries:
                        found[writer.name] = writer
                    found.update((one.name, one) for one in self._views_of(writer))
        return list(found.values())

    def _start_dead(self, flow: Flow) -> str:
        """Dead letters of a table or a view: a query of their own."""
        options = _dead_options(flow)
        if self._servers is not None:
            options[SERVERS_OPTION] = self._servers
        name = f"{flow.name}.dead"
        rows = dead_rows(self.frames.frame(flow, name), flow.expectations)
        self._begin(name, flow, rows, TOPIC_FORMAT, options)
        return name

    def _begin(self, name: str, flow: Flow, rows: Any, format: str, options: dict[str, str]) -> None:
        writer = rows.writeStream.format(format).options(**options).queryName(name)
        writer = writer.option("checkpointLocation", str(self._catalog.checkpoint(name)))
        writer = writer.outputMode(flow.settings.output_mode)
        match flow.settings.trigger.kind:
            case "once":
                writer = writer.trigger(availableNow=True)
            case "every":
                writer = writer.trigger(
                    processingTime=f"{flow.settings.trigger.interval_s * 1000:.0f} milliseconds"
                )

        def start() -> None:
            try:
                self._queries[name] = writer.start()
            except Exception as error:
                if not is_from_spark(error):
                    raise
                raise self._failed(name, error) from error

        self._starts[name] = start
        start()

    def _sink_options(self, flow: Flow) -> dict[str, str]:
        target = self.graph.datasets[flow.target]
        options = dict(target.options)
        if target.kind == TABLE:
            options["path"] = str(self._catalog.table(target.name))
        elif target.format == TOPIC_FORMAT and self._servers is not None:
            options[SERVERS_OPTION] = self._servers
        elif target.kind == SINK and self._sink_paths is not None and "path" in options:
            options["path"] = str(self._sink_paths / target.name)
        return options

    # --- batches -----------------------------------------------------------------------------------------

    def _write_batch(self, flow: Flow) -> None:
        try:
            if flow.settings.is_once:
                self._write_once(flow)
            else:
                self._refresh(flow)
        except Exception as error:
            if not is_from_spark(error):
                raise
            raise self._failed(flow.name, error) from error

    def _write_once(self, flow: Flow) -> None:
        """A flow that runs one time; the target's ledger has its name, in case this run dies before it notes
        that the flow is done.
        """
        if self._catalog.is_done(flow.name):
            return
        rows = kept_rows(flow, self.frames.frame(flow))
        writer = rows.write.format(self.graph.datasets[flow.target].format).mode("append")
        writer = writer.options(**self._sink_options(flow))
        writer.option("txnAppId", f"{self.graph.name}/{flow.name}").option("txnVersion", "0").save()
        self._catalog.set_done(flow.name)

    def _refresh(self, flow: Flow) -> None:
        target = self.graph.datasets[flow.target]
        rows = kept_rows(flow, self.frames.frame(flow))
        path = self._catalog.next_view(target.name)
        rows.write.format(target.format).mode("append").save(str(path))
        self._catalog.switch_view(target.name)

    def table_rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a table or materialized view, for cases."""
        return [row.asDict(recursive=True) for row in self.frames.rows(name).collect()]


def _dead_options(flow: Flow) -> dict[str, str]:
    options: dict[str, str] = {}
    for one in flow.expectations:
        options.update(one.options)
    return options


def _has_format(options: dict[str, str]) -> bool:
    return any(name.lower() in ("valueformat", "keyformat") for name in options)


def _last_batch(query: Any) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(json.loads(progress.json)["batchId"])
