"""The server's tests run on both loops: uvloop, and asyncio's own where uvloop does not install. On each they
run with asyncio's transports and with the compiled network core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from server import fake_node


@pytest.fixture(params=["uvloop", "asyncio", "uvloop-core", "asyncio-core"])
def run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Coroutine[Any, Any, None]], None]:
    loop, _, core = request.param.partition("-")
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    monkeypatch.setattr(fake_node, "uses_core", bool(core))

    def run_in_loop(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(story)

    return run_in_loop
