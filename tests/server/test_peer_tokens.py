"""Tokens with which a node logs in at others: they come from a thread, one fetch at a time, and whoever needs
one waits for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.tokens import IdentityProvider
from headrace.base.time import ManualClock
from headrace.client.errors import TokenUnavailable
from headrace.machines.security.login_tokens import RefreshRules
from headrace.node.token_logins import TokenLogin
from headrace.server import peer_tokens
from headrace.server.clock import SystemClock
from headrace.server.connection_limits import Connections
from headrace.server.logs import Log
from headrace.server.peer_tokens import PeerTokens, fetched

REFRESH = RefreshRules(0.8, 0.0, 0.0, 0.0, 10, 20)


def login(url: str, secret: str = "secret") -> TokenLogin:
    return TokenLogin(url, "node", secret, "", REFRESH)


class Story:
    def __init__(self, made: TokenLogin) -> None:
        from random import Random

        self.lines: list[str] = []
        log = Log("debug", write=self.lines.append)
        surroundings = SimpleNamespace(clock=SystemClock(), log=log)
        self.tokens = PeerTokens(made, Random(7), cast("Connections", surroundings))
        self.taken: list[str | Exception] = []

    def take(self) -> None:
        self.tokens.take(self.taken.append)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)


def play(made: TokenLogin, act: Callable[[Story], Any]) -> Story:
    story = Story(made)

    async def run() -> None:
        try:
            await asyncio.wait_for(act(story), 60)
        finally:
            story.tokens.close()

    asyncio.run(run())
    return story


def test_connections_wait_for_one_fetch_and_the_next_ones_have_it() -> None:
    async def act(story: Story) -> None:
        for _ in range(3):
            story.take()
        assert story.taken == []
        await story.until(lambda: len(story.taken) == 3)
        story.take()
        assert len(set(story.taken)) == 1
        assert len(story.taken) == 4
        assert issuer.tokens_given == 1

    with IdentityProvider() as issuer:
        play(login(f"{issuer.url}/token"), act)


def test_the_next_one_comes_before_the_first_one_ends() -> None:
    async def act(story: Story) -> None:
        story.take()
        await story.until(lambda: issuer.tokens_given >= 3)
        story.take()
        assert isinstance(story.taken[-1], str)

    with IdentityProvider() as issuer:
        issuer.lifetime_s = 2.0
        play(login(f"{issuer.url}/token"), act)


def test_the_wall_clock_is_set_beyond_the_end_of_the_token() -> None:
    """The next fetch is minutes away by the monotonic clock, and nobody waits for that."""

    async def act(story: Story) -> None:
        story.take()
        await story.until(lambda: len(story.taken) == 1)
        clock = ManualClock(wall_ms=int(time.time() * 1000))
        story.tokens._clock = clock
        clock.advance(issuer.lifetime_s + 1)
        issuer.lifetime_s *= 3
        story.take()
        await story.until(lambda: len(story.taken) == 2)
        assert isinstance(story.taken[1], str)
        assert story.taken[1] != story.taken[0]

    with IdentityProvider() as issuer:
        play(login(f"{issuer.url}/token"), act)


def test_who_gets_none_is_told_and_it_is_tried_again() -> None:
    async def act(story: Story) -> None:
        story.take()
        await story.until(lambda: bool(story.taken))
        assert isinstance(story.taken[0], TokenUnavailable)
        assert "401" in str(story.taken[0])
        assert "login_token_not_fetched" in story.lines[0]
        story.take()
        issuer.is_closed = False
        await story.until(lambda: isinstance(story.taken[-1], str))

    with IdentityProvider() as issuer:
        issuer.is_closed = True
        story = play(login(f"{issuer.url}/token", "secret"), act)
        assert "secret" not in "".join(story.lines)


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have some again a moment later."""

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def act(story: Story) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_more)
            story.take()
            assert story.taken == []
            await story.until(lambda: bool(story.taken))
        assert isinstance(story.taken[0], TokenUnavailable)
        assert "can't start new thread" in story.lines[0]
        story.take()
        await story.until(lambda: len(story.taken) == 2)
        assert isinstance(story.taken[1], str)

    with IdentityProvider() as issuer:
        play(login(f"{issuer.url}/token"), act)


def test_a_token_of_a_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token.jwt"

    async def act(story: Story) -> None:
        story.take()
        await story.until(lambda: bool(story.taken))
        assert "No such file" in str(story.taken[0])
        first = issuer.token("node", exp=issuer.said()["exp"] - issuer.lifetime_s + 3)
        file.write_text(f"{first}\n")
        while story.taken[-1] != first:
            story.take()
            await asyncio.sleep(0.01)
        second = issuer.token("node")
        file.write_text(second)
        while story.taken[-1] != second:
            story.take()
            await asyncio.sleep(0.01)

    with IdentityProvider() as issuer:
        play(login(file.as_uri()), act)


def test_a_file_that_is_no_token(tmp_path: Path) -> None:
    file = tmp_path / "token.jwt"
    file.write_text("x" * 70_000)
    with pytest.raises(ValueError, match="longer than 65536"):
        fetched(login(file.as_uri()))


def test_the_loop_closes_while_a_fetch_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody is told any more."""
    go_on, done = threading.Event(), threading.Event()

    def slowly(_: TokenLogin) -> str:
        go_on.wait()
        done.set()
        return "late"

    monkeypatch.setattr(peer_tokens, "fetched", slowly)

    async def act(story: Story) -> None:
        story.take()

    story = play(login("https://issuer.example/token"), act)
    go_on.set()
    assert done.wait(30)
    for thread in threading.enumerate():
        if thread.name == "token":
            thread.join(30)
    assert story.taken == []
