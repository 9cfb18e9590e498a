"""New certificates without a restart: the files of TLS listeners, and those for connections to other nodes,
are looked at every few seconds, and so are the settings that name them.

A changed file is loaded into a new context, which connections that come later use; those that are open stay.
It is loaded when it has not changed for a moment: somebody may still write it, and a part of a chain of
certificates can be loaded, too. A file that cannot be used leaves the old context in place, and is tried
again when it changes once more, also if other settings have named it.
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

# So long a file that has changed must stay as it is.
SETTLED_S = 1.0

Seen = tuple[tuple[int, int, int] | None, ...]  # of each file: inode, size, time of its last change
ReadTls = Callable[[], TlsSettings | None]  # InvalidConfig: the settings are wrong


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
        self._seen = {name: _look_at(listener.settings) for name, listener in listeners.items()}
        self._changing: dict[str, Seen] = {}  # what was seen of files that were not loaded yet
        # Settings that could not be used, by those whose they are: how they are read, and what was seen of
        # their files.
        self._unusable: dict[str, tuple[ReadTls, Seen]] = {}
        self._timer = loop.call_later(PERIOD_S, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(PERIOD_S, self._look)
        self._look_at_settings()
        for name, (read, seen) in list(self._unusable.items()):
            if _look_at(read()) != seen:
                self.use(name, read)
        for name, listener in self._listeners.items():
            found = _look_at(listener.settings)
            if found == self._seen[name]:
                self._changing.pop(name, None)
            elif found == self._changing.get(name):
                self._load(name, listener)
            else:
                self._changing[name] = found
        if self._changing:
            self._timer.cancel()
            self._timer = self._loop.call_later(SETTLED_S, self._look)

    def reload(self) -> None:
        """All of them, changed or not."""
        for name, listener in self._listeners.items():
            self._load(name, listener)

    def _load(self, name: str, listener: Loaded) -> None:
        # before it is read: what is written meanwhile counts as another change
        self._seen[name] = _look_at(listener.settings)
        self._changing.pop(name, None)
        try:
            listener.load()
        except (CannotListen, OSError) as error:  # the latter: no room for a file of a moment
            self._not_loaded(name, error)
        else:
            self._log.info("certificates_loaded", listener=name)

    def use(self, name: str, read: ReadTls) -> None:
        """The settings of this listener, or of this way, may have changed; `read` reads them."""
        listener = self._listeners[name]
        self._unusable.pop(name, None)
        seen: Seen | None = None
        try:
            settings = read()
            if settings == listener.settings:
                return
            seen = _look_at(settings)
            listener.use(settings)
        except (CannotListen, InvalidConfig, OSError) as error:
            if seen is not None:
                self._unusable[name] = read, seen
            self._not_loaded(name, error)
        else:
            self._seen[name] = seen  # from before it was read
            self._log.info("certificates_loaded", listener=name)

    def _not_loaded(self, name: str, error: Exception) -> None:
        self._connections.reloads_failed += 1
        self._log.error("certificates_not_loaded", listener=name, reason=str(error))

    def stop(self) -> None:
        self._timer.cancel()


def _look_at(settings: TlsSettings | None) -> Seen:
    if settings is None:
        return ()
    return tuple(_facts(path) for path in (settings.keystore, settings.truststore) if path is not None)


def _facts(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
