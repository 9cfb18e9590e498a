"""New certificates without a restart: the files of TLS listeners, and those for connections to other nodes,
are looked at every few seconds, and so are the settings that name them.

A changed file is loaded into a new context, which connections that come later use; those that are open stay.
A file that cannot be used leaves the old context in place, and is tried again when it changes once more.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.machines.configs.values import InvalidConfig
from headrace.node.listener_security import TlsSettings
from headrace.server.connection_limits import Connections
from headrace.server.listeners import CannotListen
from headrace.server.logs import Log

PERIOD_S = 5.0

Seen = tuple[tuple[int, int, int] | None, ...]  # of each file: inode, size, time of its last change


class Loaded(Protocol):
    """What was made of files: a listener, or a way to other nodes."""

    @property
    def settings(self) -> TlsSettings | None: ...

    def load(self) -> None:
        """CannotListen: a file cannot be used, and nothing has changed."""
        ...

    def use(self, settings: TlsSettings | None, /) -> None:
        """The same with other settings."""
        ...


class CertificateFiles:
    """Of all listeners, and of all ways to other nodes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: Mapping[str, Loaded],
        connections: Connections,
        log: Log,
        look_at_settings: Callable[[], None],
    ) -> None:
        """`look_at_settings` calls `use` if they have changed."""
        self._loop = loop
        self._look_at_settings = look_at_settings
        self._listeners = listeners
        self._connections = connections
        self._log = log
        self._seen = {name: _look_at(listener) for name, listener in listeners.items()}
        self._timer = loop.call_later(PERIOD_S, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(PERIOD_S, self._look)
        self._look_at_settings()
        for name, listener in self._listeners.items():
            if _look_at(listener) != self._seen[name]:
                self._load(name, listener)

    def reload(self) -> None:
        """All of them, changed or not."""
        for name, listener in self._listeners.items():
            self._load(name, listener)

    def _load(self, name: str, listener: Loaded) -> None:
        # before it is read: what is written meanwhile counts as another change
        self._seen[name] = _look_at(listener)
        try:
            listener.load()
        except (CannotListen, OSError) as error:  # the latter: no room for a file of a moment
            self._not_loaded(name, error)
        else:
            self._log.info("certificates_loaded", listener=name)

    def use(self, name: str, read: Callable[[], TlsSettings | None]) -> None:
        """The settings of this listener, or of this way, may have changed; `read` reads them."""
        listener = self._listeners[name]
        try:
            settings = read()
            if settings == listener.settings:
                return
            listener.use(settings)
        except (CannotListen, InvalidConfig, OSError) as error:
            self._not_loaded(name, error)
        else:
            self._seen[name] = _look_at(listener)
            self._log.info("certificates_loaded", listener=name)

    def _not_loaded(self, name: str, error: Exception) -> None:
        self._connections.reloads_failed += 1
        self._log.error("certificates_not_loaded", listener=name, reason=str(error))

    def stop(self) -> None:
        self._timer.cancel()


def _look_at(listener: Loaded) -> Seen:
    settings = listener.settings
    if settings is None:
        return ()
    return tuple(_facts(path) for path in (settings.keystore, settings.truststore) if path is not None)


def _facts(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
