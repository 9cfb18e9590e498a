"""Listeners of the compiled network core: accept connections, and pass them to the core.

An installation with compiled modules has the core on Linux. Elsewhere, and if the setting
`headrace.network.core` is false, asyncio's server and transports do the same.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.server.connection import Channel

if TYPE_CHECKING:
    from headrace.server._core import Core as Core
    from headrace.server.connection_limits import Connections
    from headrace.server.driver import Driver
    from headrace.server.tls import TlsTransport


# The process has no descriptor or memory for another connection: these may be free again a moment later.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
RETRY_S = 1.0


def make_core(loop: asyncio.AbstractEventLoop, connections: "Connections", driver: "Driver") -> "Core | None":
    """None: this installation has none."""
    try:
        from headrace.server._core import Core
    except ImportError:
        return None
    core = Core(loop, connections, driver)
    connections.gatherers.append(core)
    return core


class CoreListener:
    """A listening socket."""

    __slots__ = ("_core", "_loop", "_make_channel", "_retry", "_socket")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        core: "Core",
        bound: socket.socket,
        make_channel: "Callable[[], Channel | TlsTransport]",
        backlog: int,
    ) -> None:
        self._loop = loop
        self._core = core
        self._socket = bound
        self._make_channel = make_channel
        self._retry: asyncio.TimerHandle | None = None
        bound.listen(backlog)
        self._listen()

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """One in a turn of the loop. If there were many, clients that connect faster than they can be served
        would be ahead of all others, in any number.
        """
        try:
            accepted, _address = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            self._loop.call_exception_handler(
                {"message": "a connection cannot be accepted", "exception": error}
            )
            self._loop.remove_reader(self._socket)
            self._retry = self._loop.call_later(RETRY_S, self._listen)
            return
        accepted.setblocking(False)
        self._core.adopt(accepted, self._make_channel())

    def close(self) -> None:
        """Accepts no more; connections stay."""
        if self._retry is not None:
            self._retry.cancel()
        elif self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
        self._socket.close()
