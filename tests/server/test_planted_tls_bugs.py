"""Bugs of TLS listeners, planted one by one: the tests that look for them find each of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from harness.certificates import Authority
from headrace.server import tls_context
from headrace.server.tls import TlsTransport
from server import test_tls
from server.test_tls import Run
from server.test_tls import authority as authority
from server.test_tls import keys as keys
from server.test_tls import stranger as stranger

Patch = pytest.MonkeyPatch

# How long a story may take whose end a bug keeps away. The same story without the bug has no limit.
HOPELESS_S = 3.0


def half_open_connections_do_not_count(patch: Patch) -> None:
    """As in asyncio's own TLS: nobody knows about a connection before its handshake has ended."""
    made, shake_hands = TlsTransport.connection_made, TlsTransport.shake_hands

    def connection_made(self: Any, transport: Any) -> None:
        channel, self._channel = self._channel, _Nobody()
        made(self, transport)
        self._channel = channel

    def shake_hands_and_tell(self: Any) -> None:
        was_open = self._is_open
        channel, self._channel = self._channel, _Nobody()
        shake_hands(self)
        self._channel = channel
        if self._is_open and not was_open:
            channel.connection_made(self)
            self._deliver()

    patch.setattr(TlsTransport, "connection_made", connection_made)
    patch.setattr(TlsTransport, "shake_hands", shake_hands_and_tell)


class _Nobody:
    """A channel that is told nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: memoryview(bytearray(1))


def handshakes_take_any_time(patch: Patch) -> None:
    patch.setattr(TlsTransport, "_handshake_took_too_long", lambda self: None)


def certificates_of_any_authority(patch: Patch) -> None:
    """A client shows one, and nobody asks who signed it."""
    context = tls_context._server_context

    def trusting(settings: Any) -> ssl.SSLContext:
        made = context(settings)
        made.verify_mode = ssl.CERT_NONE
        return made

    patch.setattr(tls_context, "_server_context", trusting)


def certificates_are_not_required(patch: Patch) -> None:
    patch.setitem(tls_context._VERIFY, "required", ssl.CERT_OPTIONAL)


def run_in_loop(limit_s: float | None) -> Run:
    def run(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(story, limit_s))

    return run


BUGS: list[tuple[Callable[[Patch], None], Callable[..., None], tuple[str, ...]]] = [
    (
        half_open_connections_do_not_count,
        test_tls.TestRefusals().test_half_open_connections_count,
        ("keys", "authority"),
    ),
    (
        handshakes_take_any_time,
        test_tls.TestRefusals().test_a_handshake_that_is_never_finished,
        ("keys", "patch"),
    ),
    (
        certificates_of_any_authority,
        test_tls.TestClientCertificates().test_one_that_is_not_trusted,
        ("keys", "authority", "stranger"),
    ),
    (
        certificates_are_not_required,
        test_tls.TestClientCertificates().test_none_where_one_is_required,
        ("keys", "authority"),
    ),
]


@pytest.mark.parametrize(
    ("plant", "look", "needs"), BUGS, ids=lambda one: getattr(one, "__name__", "") if callable(one) else ""
)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None],
    look: Callable[..., None],
    needs: tuple[str, ...],
    tmp_path: Path,
    keys: dict[str, object],
    authority: Authority,
    stranger: Authority,
    monkeypatch: Patch,
) -> None:
    given = {"keys": keys, "authority": authority, "stranger": stranger, "patch": monkeypatch}
    needed = [given[name] for name in needs]
    (tmp_path / "without").mkdir()
    look(run_in_loop(None), tmp_path / "without", *needed)
    plant(monkeypatch)
    (tmp_path / "with").mkdir()
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        look(run_in_loop(HOPELESS_S), tmp_path / "with", *needed)
