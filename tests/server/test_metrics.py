"""The Prometheus page: its numbers, its format, and its limits."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.machines.http.connection import HEAD_BYTES_MAX
from headrace.node.metrics import ApiMetrics, Metrics
from headrace.server import http as http_module
from headrace.server import metrics as metrics_module
from headrace.server.http import CONNECTIONS_MAX
from headrace.server.listeners import CannotListen
from headrace.server.logs import Log
from headrace.server.metrics import Text
from headrace.server.process import Process
from server.fake_node import ECHO, RunningServer, running_server, settings

Run = Callable[[Coroutine[Any, Any, None]], None]


async def get(server: RunningServer, head: bytes) -> tuple[bytes, bytes]:
    assert server.process.http is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", server.process.http.ports[0])
    writer.write(head)
    try:
        status, _, body = (await reader.read()).partition(b"\r\n\r\n")
    except ConnectionError:
        return b"", b""
    finally:
        writer.close()
    return status, body


def test_what_is_counted(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path, headrace_metrics_port=0) as server:
            client = await server.client()
            assert await client.ask(ECHO, 1, b"hello") == b"hello"
            gc.collect()
            status, body = await get(server, b"GET /metrics HTTP/1.0\r\n\r\n")
            assert status.startswith(b"HTTP/1.1 200 OK\r\n")
            families = {family.name: family for family in text_string_to_metric_families(body.decode())}
            assert families["headrace_connections"].samples[0].value == 1
            assert families["headrace_received_bytes"].samples[0].value == 17
            assert families["headrace_sent_bytes"].samples[0].value == 13
            assert families["headrace_event_loop_lag_seconds"].type == "histogram"
            assert "headrace_gc_collections" in families
            paused = {s.labels["generation"]: s.value for s in families["headrace_gc_seconds"].samples}
            assert paused["2"] > 0

    run(story())


def test_only_this_machine_reaches_it_unless_told(run: Run, tmp_path: Path) -> None:
    """It shares its port with the schema registry, which asks for no password."""

    async def story() -> None:
        async with running_server(
            tmp_path / "a", listeners="PLAINTEXT://0.0.0.0:0", headrace_metrics_port=0
        ) as server:
            assert "address=http://127.0.0.1:" in "".join(server.logged("metrics"))
        async with running_server(
            tmp_path / "b", headrace_metrics_host="0.0.0.0", headrace_metrics_port=0
        ) as server:
            assert "address=http://0.0.0.0:" in "".join(server.logged("metrics"))

    run(story())


def test_a_taken_port_is_said_before_the_node_is_opened(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path / "a", headrace_metrics_port=0) as server:
            assert server.process.http is not None
            (port,) = server.process.http.ports

            def make_node(around: Any) -> Any:
                raise AssertionError("it must not be opened")

            texts = settings(tmp_path / "b", headrace_metrics_port=port)
            second = Process(texts, log=Log("error"), make_node=make_node)
            with pytest.raises(CannotListen, match=rf"127.0.0.1:{port}: .* headrace.metrics.port"):
                await second.start()

    run(story())


def test_the_nodes_own_numbers(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path, headrace_metrics_port=0) as server:
            node: Any = server.node
            node.metrics = Metrics()
            node.metrics.apis[ECHO] = ApiMetrics()
            node.metrics.apis[ECHO].requests = 3
            node.log_sizes = lambda: [('a"b', 0, 1234)]
            server.process.driver.handle = metrics_module.timed(node.handle, node.metrics)
            client = await server.client()
            await client.ask(ECHO, 1)
            _, body = await get(server, b"GET /metrics HTTP/1.0\r\n\r\n")
            families = {family.name: family for family in text_string_to_metric_families(body.decode())}
            (sample,) = families["headrace_requests"].samples
            assert (sample.labels, sample.value) == ({"api": "Produce"}, 3)
            seconds = {s.name: s.value for s in families["headrace_request_seconds"].samples}
            assert seconds["headrace_request_seconds_count"] == 1
            (size,) = families["headrace_log_bytes"].samples
            assert (size.labels, size.value) == ({"topic": 'a"b', "partition": "0"}, 1234)

    run(story())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /elsewhere HTTP/1.0\r\n\r\n", b"404"),
        (b"GET /../metrics HTTP/1.0\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.0\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"PUT /config HTTP/1.0\r\nContent-Length: 9999999\r\n\r\n", b"413"),
        (b"PUT /config HTTP/1.0\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_other_requests(run: Run, tmp_path: Path, head: bytes, status: bytes) -> None:
    async def story() -> None:
        async with running_server(tmp_path, headrace_metrics_port=0) as server:
            first, body = await get(server, head)
            assert first.split()[1] == status
            assert len(body) < 100

    run(story())


def test_a_head_without_end_is_cut_off(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path, headrace_metrics_port=0) as server:
            head, _ = await get(server, b"GET /" + b"x" * 3 * HEAD_BYTES_MAX)
            assert head.startswith(b"HTTP/1.1 431 ")

    run(story())


def test_silent_scrapers_are_cut_off(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "REQUEST_S_MAX", 0.05)

    async def story() -> None:
        async with running_server(tmp_path, headrace_metrics_port=0) as server:
            asked = [get(server, b"GET ") for _ in range(CONNECTIONS_MAX + 5)]
            assert await asyncio.gather(*asked) == [(b"", b"")] * (CONNECTIONS_MAX + 5)
            status, _ = await get(server, b"GET /metrics HTTP/1.0\r\n\r\n")
            assert status.startswith(b"HTTP/1.1 200")

    run(story())


def test_the_text_format() -> None:
    text = Text()
    text.one("a_total", "counter", "Help.", 3)
    text.head("b", "gauge", "More.")
    text.value("b", 0.5, name='q"\\\n')
    text.head("h", "histogram", "Most.")
    text.histogram("h", (0.1, 1.0), [1, 2, 3], 9.5)
    assert str(text) == (
        "# HELP a_total Help.\n# TYPE a_total counter\na_total 3\n"
        '# HELP b More.\n# TYPE b gauge\nb{name="q\\"\\\\\\n"} 0.5\n'
        "# HELP h Most.\n# TYPE h histogram\n"
        'h_bucket{le="0.1"} 1\nh_bucket{le="1"} 3\nh_bucket{le="+Inf"} 6\nh_sum 9.5\nh_count 6\n'
    )
