"""A client without a socket: its answers are its own, also when it stopped waiting for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.server.loopback_client import Cut, LoopbackClient
from server.fake_node import running_server

Run = Callable[[Coroutine[Any, Any, None]], None]


def frame(correlation_id: int, cluster: str) -> list[bytes]:
    from headrace.protocol.compiler import codec
    from headrace.protocol.framing import response_frame

    body = codec(MetadataResponse, 12).encode_parts(MetadataResponse(cluster_id=cluster))
    return response_frame(correlation_id, 1, body)  # type: ignore[return-value]


def test_a_late_answer_is_nobodys(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            driver = server.process.driver
            driver.handle = lambda now, connection, view: None  # all requests are parked
            client = LoopbackClient(driver, listener="PLAINTEXT", name="test")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await client.ask(MetadataRequest(topics=[]), 12, MetadataResponse)
            second = asyncio.ensure_future(client.ask(MetadataRequest(topics=[]), 12, MetadataResponse))
            await asyncio.sleep(0)
            client.answer(frame(1, "late"))  # type: ignore[arg-type]
            assert not second.done()
            client.answer(frame(2, "mine"))  # type: ignore[arg-type]
            assert (await second).cluster_id == "mine"
            third = asyncio.ensure_future(client.ask(MetadataRequest(topics=[]), 12, MetadataResponse))
            await asyncio.sleep(0)
            client.leave()
            with pytest.raises(Cut):
                await third

    run(story())
