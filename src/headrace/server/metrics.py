"""Metrics in Prometheus' format: the page of `GET /metrics`.

The node and `Connections` have plain integers, which become text only at a request. A probe measures the lag
of the event loop: it is scheduled every 50 ms and records how late it is called, as a request would be.
"""

import asyncio
import gc
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from struct import Struct
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.node.metrics import LATENCY_BOUNDS, Metrics
from headrace.protocol.api import APIS, ApiKey

if TYPE_CHECKING:
    from headrace.node.cluster_metrics import ClusterMetrics
    from headrace.server.process import Process

PROBE_PERIOD_S = 0.05
LAG_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


Handle = Callable[[Now, Connection, memoryview], Parts | None]


def timed(handle: Handle, metrics: Metrics) -> Handle:
    """The same, noting how long after its arrival a request was answered. The node itself notes those
    that wait.
    """
    apis = metrics.apis
    key_at = Struct(">h").unpack_from
    monotonic = time.monotonic

    def handle_timed(now: Now, connection: Connection, frame: memoryview) -> Parts | None:
        parts = handle(now, connection, frame)
        if parts is not None:
            api = apis.get(key_at(frame)[0])
            if api is not None:
                api.observe(monotonic() - now.mono)
        return parts

    return handle_timed


class LoopLag:
    """How late the loop calls back, as a histogram; `worst_s` is the longest since it was last looked at."""

    __slots__ = ("_due", "_loop", "_timer", "buckets", "count", "total_s", "worst_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.buckets = [0] * (len(LAG_BOUNDS) + 1)
        self.count = 0
        self.total_s = 0.0
        self.worst_s = 0.0

    def start(self) -> None:
        self._due = time.monotonic() + PROBE_PERIOD_S
        self._timer = self._loop.call_later(PROBE_PERIOD_S, self._probe)

    def _probe(self) -> None:
        lag_s = max(0.0, time.monotonic() - self._due)
        self.buckets[bisect_left(LAG_BOUNDS, lag_s)] += 1
        self.count += 1
        self.total_s += lag_s
        self.worst_s = max(self.worst_s, lag_s)
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class CollectorPauses:
    """How long the garbage collector stopped everything, by generation."""

    __slots__ = ("_began", "total_s", "worst_s")

    def __init__(self) -> None:
        self._began = 0.0
        self.total_s = [0.0, 0.0, 0.0]
        self.worst_s = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        gc.callbacks.remove(self._called)

    def _called(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        pause_s = time.perf_counter() - self._began
        self.total_s[facts["generation"]] += pause_s
        self.worst_s = max(self.worst_s, pause_s)


class Text:
    """Prometheus' exposition format: a head per metric, then one line per set of labels."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: list[str] = []

    def head(self, name: str, kind: str, help: str) -> None:
        self._lines.append(f"# HELP {name} {help}\n# TYPE {name} {kind}")

    def value(self, name: str, value: float, /, **labels: object) -> None:
        self._lines.append(f"{name}{_labels(labels)} {value:.15g}")

    def one(self, name: str, kind: str, help: str, value: float) -> None:
        self.head(name, kind, help)
        self.value(name, value)

    def histogram(
        self, name: str, bounds: Iterable[float], buckets: list[int], total: float, /, **labels: object
    ) -> None:
        seen = 0
        for bound, count in zip(bounds, buckets, strict=False):  # the last bucket has no bound
            seen += count
            self.value(f"{name}_bucket", seen, **labels, le=f"{bound:g}")
        seen = sum(buckets)
        self.value(f"{name}_bucket", seen, **labels, le="+Inf")
        self.value(f"{name}_sum", total, **labels)
        self.value(f"{name}_count", seen, **labels)

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def _labels(labels: dict[str, object]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(str(value))}"' for key, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class MetricsPage:
    """What is counted, as one page."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self.lag = LoopLag(asyncio.get_running_loop())
        self.pauses = CollectorPauses()

    def start(self) -> None:
        if isinstance(metrics := getattr(self._process.node, "metrics", None), Metrics):
            self._process.driver.handle = timed(self._process.node.handle, metrics)
        self.lag.start()
        self.pauses.start()

    def stop(self) -> None:
        self.lag.stop()
        self.pauses.stop()

    def text(self) -> str:
        text = Text()
        process = self._process
        node_metrics = getattr(process.node, "metrics", None)
        if isinstance(node_metrics, Metrics):
            _node(text, node_metrics)
        log_sizes: Callable[[], Iterable[tuple[str, int, int]]] | None
        log_sizes = getattr(process.node, "log_sizes", None)
        if log_sizes is not None:
            _log_sizes(text, log_sizes())
        cluster: Callable[[], ClusterMetrics] | None = getattr(process.node, "cluster_metrics", None)
        if cluster is not None:
            from headrace.server.cluster_metrics import write_cluster

            write_cluster(text, cluster())
        _connections(text, process)
        _loop(text, self.lag)
        _collector(text, self.pauses)
        return str(text)


def _node(text: Text, metrics: Metrics) -> None:
    names = {key: APIS[ApiKey(key)].name for key in sorted(metrics.apis)}
    text.head("headrace_requests_total", "counter", "Requests handled, by API.")
    for key, name in names.items():
        text.value("headrace_requests_total", metrics.apis[key].requests, api=name)
    text.head("headrace_request_seconds", "histogram", "Time from a request's arrival to its answer, by API.")
    for key, name in names.items():
        api = metrics.apis[key]
        text.histogram("headrace_request_seconds", LATENCY_BOUNDS, api.buckets, api.seconds, api=name)
    one = text.one
    one(
        "headrace_parked_requests",
        "gauge",
        "Requests that wait, such as long polls and acks=all.",
        metrics.parked,
    )
    one(
        "headrace_held_batches",
        "gauge",
        "Batches that wait for a check before they are appended.",
        metrics.held,
    )
    one(
        "headrace_flushes_total", "counter", "Flush jobs (group commits) of log directories.", metrics.flushes
    )
    one("headrace_logins_total", "counter", "Logins on SASL listeners.", metrics.logins)
    one("headrace_logins_refused_total", "counter", "Logins that were refused.", metrics.logins_refused)
    text.head("headrace_throttled_total", "counter", "Answers and connections that were throttled, by quota.")
    for kind, throttled in metrics.throttled.items():
        text.value("headrace_throttled_total", throttled.times, quota=kind)
    text.head("headrace_throttle_seconds_total", "counter", "Throttle times told to clients, by quota.")
    for kind, throttled in metrics.throttled.items():
        text.value("headrace_throttle_seconds_total", throttled.ms / 1000, quota=kind)
    one("headrace_cleanings_total", "counter", "Passes of compaction.", metrics.cleanings)
    one(
        "headrace_stray_partitions",
        "gauge",
        "Partition directories that the metadata does not know.",
        metrics.strays,
    )
    one("headrace_damages_total", "counter", "Damaged files and batches found on disk.", metrics.damages)
    one(
        "headrace_cleaned_bytes_total",
        "counter",
        "Bytes of log that compaction has read.",
        metrics.cleaned_bytes,
    )
    one("headrace_produced_batches_total", "counter", "Record batches appended.", metrics.produced_batches)
    one(
        "headrace_produced_bytes_total",
        "counter",
        "Bytes of record batches appended.",
        metrics.produced_bytes,
    )


def _log_sizes(text: Text, sizes: Iterable[tuple[str, int, int]]) -> None:
    text.head("headrace_log_bytes", "gauge", "Size of a partition's log.")
    for topic, partition, size in sizes:
        text.value("headrace_log_bytes", size, topic=topic, partition=partition)


def _connections(text: Text, process: "Process") -> None:
    connections = process.connections
    one = text.one
    one("headrace_connections", "gauge", "Open connections.", len(connections.channels))
    one("headrace_connections_accepted_total", "counter", "Accepted connections.", connections.accepted)
    one(
        "headrace_connections_refused_total",
        "counter",
        "Connections refused because of a limit.",
        connections.refused,
    )
    one(
        "headrace_connections_idle_total",
        "counter",
        "Connections closed because they were idle.",
        connections.idle,
    )
    one(
        "headrace_frames_refused_total",
        "counter",
        "Requests refused because of their size.",
        connections.frames_refused,
    )
    one(
        "headrace_tls_handshakes_failed_total",
        "counter",
        "Connections closed because their TLS handshake failed or took too long.",
        connections.handshakes_failed,
    )
    one(
        "headrace_certificate_loads_failed_total",
        "counter",
        "New certificate files that could not be used; the old certificate stays.",
        connections.reloads_failed,
    )
    one(
        "headrace_peer_logins_failed_total",
        "counter",
        "Connections to other nodes that failed in the TLS handshake or the login.",
        connections.peer_logins_failed,
    )
    name = "headrace_certificate_expiry_seconds"
    text.head(name, "gauge", "Time until the first certificate of a listener expires; negative afterwards.")
    now_s = connections.clock.now().wall_ms / 1000
    for listener, expires_at in sorted(connections.certificates_expire().items()):
        text.value(name, expires_at - now_s, listener=listener)
    one(
        "headrace_listeners_without_tls",
        "gauge",
        "Listeners without TLS that other machines can reach.",
        connections.open_listeners,
    )
    one(
        "headrace_audit_entries_total",
        "counter",
        "Entries written to the audit log.",
        connections.audit_written,
    )
    one(
        "headrace_audit_entries_lost_total",
        "counter",
        "Entries that could not be written to the audit log.",
        connections.audit_lost,
    )
    one("headrace_received_bytes_total", "counter", "Bytes read from clients.", connections.bytes_in)
    one("headrace_sent_bytes_total", "counter", "Bytes written to clients.", connections.bytes_out)
    one(
        "headrace_request_memory_bytes",
        "gauge",
        "Memory of requests that are being received.",
        connections.memory.bytes_used,
    )


def _loop(text: Text, lag: LoopLag) -> None:
    name = "headrace_event_loop_lag_seconds"
    text.head(name, "histogram", "How late the event loop was.")
    text.histogram(name, LAG_BOUNDS, lag.buckets, lag.total_s)
    worst = "headrace_event_loop_lag_worst_seconds"
    text.one(worst, "gauge", "The longest lag since the last scrape.", lag.worst_s)
    lag.worst_s = 0.0
    text.one("headrace_cpu_seconds_total", "counter", "Processor time used.", time.process_time())


def _collector(text: Text, pauses: CollectorPauses) -> None:
    text.head("headrace_gc_collections_total", "counter", "Runs of the garbage collector, by generation.")
    for generation, facts in enumerate(gc.get_stats()):
        text.value("headrace_gc_collections_total", facts["collections"], generation=generation)
    text.head("headrace_gc_seconds_total", "counter", "Time in the garbage collector, by generation.")
    for generation, total_s in enumerate(pauses.total_s):
        text.value("headrace_gc_seconds_total", total_s, generation=generation)
    text.one(
        "headrace_gc_worst_seconds",
        "gauge",
        "Longest pause of the garbage collector since the last scrape.",
        pauses.worst_s,
    )
    pauses.worst_s = 0.0
