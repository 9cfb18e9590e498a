"""New certificates without a restart: the files of TLS listeners are looked at every few seconds.

A changed file is loaded into a new context, which connections that come later use; those that are open stay.
A file that cannot be used leaves the old context in place, and is tried again when it changes once more.
"""

import asyncio
import os
from collections.abc import Mapping

from headrace.server.connection_limits import Connections
from headrace.server.listeners import CannotListen
from headrace.server.logs import Log
from headrace.server.tls import TlsListener
from headrace.server.tls_context import tls_context

PERIOD_S = 5.0

Seen = tuple[tuple[int, int, int] | None, ...]  # of each file: inode, size, time of its last change


class CertificateFiles:
    """Of all listeners."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: Mapping[str, TlsListener],
        connections: Connections,
        log: Log,
    ) -> None:
        self._loop = loop
        self._listeners = listeners
        self._connections = connections
        self._log = log
        self._seen = {name: _look_at(listener) for name, listener in listeners.items()}
        self._timer = loop.call_later(PERIOD_S, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(PERIOD_S, self._look)
        for name, listener in self._listeners.items():
            if _look_at(listener) != self._seen[name]:
                self._load(name, listener)

    def reload(self) -> None:
        """All of them, changed or not."""
        for name, listener in self._listeners.items():
            self._load(name, listener)

    def _load(self, name: str, listener: TlsListener) -> None:
        # before it is read: what is written meanwhile counts as another change
        self._seen[name] = _look_at(listener)
        try:
            listener.context = tls_context(listener.settings)
        except CannotListen as error:
            self._connections.reloads_failed += 1
            self._log.error("certificates_not_loaded", listener=name, reason=str(error))
        else:
            self._log.info("certificates_loaded", listener=name)

    def stop(self) -> None:
        self._timer.cancel()


def _look_at(listener: TlsListener) -> Seen:
    settings = listener.settings
    return tuple(_facts(path) for path in (settings.keystore, settings.truststore) if path is not None)


def _facts(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
