"""Driver of a node: calls it, and carries out its effects with asyncio.

After each call of the node the driver carries out its effects in order, and sets one timer to its next
deadline. All of this happens in the event loop's thread; jobs and slow reads report back to it.
"""

import asyncio
import os
import sys
import traceback
from collections.abc import Callable
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from headrace.base.time import Instant, Now
from headrace.node.connection import Connection
from headrace.node.effects import (
    Answer,
    Close,
    Effect,
    Fetch,
    Halt,
    Hangup,
    LoseAudit,
    Mute,
    Parts,
    Proceed,
    Report,
    Run,
    Send,
    WriteAudit,
)
from headrace.node.peers import Unanswered
from headrace.node.settings import Settings
from headrace.server.connection_limits import Connections
from headrace.server.disk import RealFile
from headrace.server.jobs import Finished, Jobs, Threads
from headrace.server.loopback_client import LoopbackClient
from headrace.server.peers import PeerConnections
from headrace.storage.disk import Disk, File
from headrace.storage.jobs import Job

if TYPE_CHECKING:
    from headrace.node.http_clients import HttpClients
    from headrace.server.audit_log import AuditLog

# Reads of files that are not in the page cache: as many as a disk's queue makes good use of.
READERS_MAX = 8

# Documents from the web: one per listener with OAUTHBEARER, now and then.
FETCHERS_MAX = 2

# A call of the node that takes longer is worth a line in the log.
SLOW_CALL_S = 0.05

# What a client can make the node report as often as it asks.
REPEATABLE = frozenset(
    (
        "batch_validation_failed",
        "coordinator_append_failed",
        "disk_full",
        "internal_topic_refused",
        "login_refused",
        "signing_keys_not_fetched",
    )
)

HALTED = 70  # the exit code of a node that could not keep its promises (EX_SOFTWARE)


class DrivenNode(Protocol):
    """What the driver needs of a node; `headrace.node.node.Node` is one."""

    def connected(self, now: Now, connection: Connection, /) -> None: ...
    def disconnected(self, now: Now, connection: Connection, /) -> None: ...
    def shown_certificate(self, now: Now, connection: Connection, principal: str, /) -> None: ...
    def refused_handshake(self, now: Now, connection: Connection, reason: str, /) -> None: ...
    def handle(self, now: Now, connection: Connection, frame: memoryview, /) -> Parts | None: ...
    def completed(self, now: Now, ticket: int, result: Any, /) -> None: ...
    def answered(self, now: Now, ticket: int, answer: memoryview | Unanswered, /) -> bool: ...
    def wake(self, now: Now, /) -> None: ...
    def deadline(self) -> Instant | None: ...
    def take_effects(self) -> list[Effect]: ...
    def shutdown(self, now: Now, /) -> None: ...
    def try_certificates_by(self, check: Callable[[Settings], None], /) -> None: ...

    @property
    def settings(self) -> Settings:
        """The current settings: dynamic settings override those of the file."""
        ...

    @property
    def http_clients(self) -> "HttpClients":
        """What clients by HTTP have to prove, and what they may do."""
        ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_stopping(self) -> bool:
        """It accepts no more requests."""
        ...

    @property
    def is_stopped(self) -> bool: ...


class JobRunner(Protocol):
    """Runs the node's jobs, those of one queue in order, and reports the end of each in the loop's thread."""

    def start(self, ticket: int, directory: str, queue: str, job: Job, /) -> None: ...
    def stop(self) -> None: ...


MakeJobs = Callable[[asyncio.AbstractEventLoop, dict[str, Disk], dict[str, str], Finished], JobRunner]


class Driver:
    __slots__ = (
        "_armed_at",
        "_fetchers",
        "_halt",
        "_ids",
        "_loop",
        "_readers",
        "_timer",
        "_watches",
        "audit_log",
        "connections",
        "handle",
        "jobs",
        "loopback_clients",
        "node",
        "peers",
        "soon",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: DrivenNode,
        connections: Connections,
        disks: dict[str, Disk],
        roots: dict[str, str],
        *,
        halt: Callable[[int], Any] = os._exit,
        make_jobs: MakeJobs = Jobs,
    ) -> None:
        self._loop = loop
        self.node = node
        self.handle = node.handle  # what connections call; replaced by a timed one when that is asked for
        self.connections = connections
        self.jobs = make_jobs(loop, disks, roots, self._job_finished)
        self.peers = PeerConnections(loop, self._peer_answered)
        self._readers = Threads(loop, "read", READERS_MAX)
        self._fetchers: Threads | None = None  # threads of their own: a server that is slow holds up no disk
        self._halt = halt
        self._ids = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self.audit_log: AuditLog | None = None
        self._armed_at = float("inf")
        self.soon = loop.call_soon
        self._watches: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.loopback_clients: dict[int, LoopbackClient] = {}  # by their connections' ids

    def next_connection_id(self) -> int:
        return next(self._ids)

    def later(self, delay_s: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, act)

    # --- calls of the node ------------------------------------------------------------------------------

    def connected(self, now: Now, connection: Connection) -> None:
        self.node.connected(now, connection)
        self.settle()

    def disconnected(self, now: Now, connection: Connection) -> None:
        self.node.disconnected(now, connection)
        self.settle()

    def shown_certificate(self, connection: Connection, principal: str) -> None:
        self.node.shown_certificate(self.connections.clock.now(), connection, principal)
        self.settle()

    def refused_handshake(self, connection: Connection, reason: str) -> None:
        self.node.refused_handshake(self.connections.clock.now(), connection, reason)
        self.settle()

    def shutdown(self) -> None:
        self.node.shutdown(self.connections.clock.now())
        self.settle()

    def settle(self) -> None:
        """After a call of the node: do what it asks, and set the timer."""
        effects = self.node.take_effects()
        if effects:
            self.carry_out(effects)
        self.rearm()

    def rearm(self) -> None:
        """See that the timer fires no later than the deadline. Firing early is harmless, and moving
        it is expensive.
        """
        deadline = self.node.deadline()
        if deadline is not None and deadline < self._armed_at:
            if self._timer is not None:
                self._timer.cancel()
            self._armed_at = deadline
            # uvloop counts in milliseconds: rounded up, or it would fire just too early and spin
            delay_ms = ceil((deadline - self.connections.clock.now().mono) * 1000)
            self._timer = self._loop.call_later(max(0, delay_ms) / 1000, self._wake)
        if self._watches:
            self._look()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a call of the node, or a connection's end, has made it true."""
        if not condition():
            future = self._loop.create_future()
            self._watches.append((condition, future))
            await future

    def _look(self) -> None:
        for watch in list(self._watches):
            condition, future = watch
            if future.done():
                self._watches.remove(watch)  # whoever waited gave up
            elif condition():
                self._watches.remove(watch)
                future.set_result(None)

    def wake(self) -> None:
        """Does what is due by the current clock, because a test has moved it."""
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def _wake(self) -> None:
        self._timer = None
        self._armed_at = float("inf")
        now = self.connections.clock.now()
        try:
            self.node.wake(now)
        except Exception as error:
            self.failed("wake", error)
        self.settle()
        self._note_slow("wake", now)

    def _job_finished(self, ticket: int, result: Any) -> None:
        now = self.connections.clock.now()
        try:
            self.node.completed(now, ticket, result)
        except Exception as error:
            self.failed("completed", error)
        self.settle()
        self._note_slow(f"completed {type(result).__name__}", now)

    def _peer_answered(self, ticket: int, answer: memoryview | Unanswered) -> bool:
        """Whether the node keeps the answer."""
        now = self.connections.clock.now()
        is_kept = True  # if it fails, we do not know
        try:
            is_kept = self.node.answered(now, ticket, answer)
        except Exception as error:
            self.failed("answered", error)
        self.settle()
        self._note_slow("answered", now)
        return is_kept

    def _note_slow(self, call: str, began: Now) -> None:
        """Logs a call that blocked the event loop, because it delayed every client."""
        now = self.connections.clock.now()
        if now.mono - began.mono > SLOW_CALL_S:
            took_ms = round((now.mono - began.mono) * 1000)
            self.connections.log.sometimes(now.mono, "warning", "slow_call", call=call, took_ms=took_ms)

    def failed(self, call: str, error: Exception) -> None:
        """A bug of ours. One client's request fails alone; the log says where. A client that has found one
        can repeat it without end, and its lines must not fill the disk.
        """
        trace = "".join(traceback.format_exception(error))
        mono = self.connections.clock.now().mono
        self.connections.log.sometimes(
            mono, "error", "internal_error", call=call, error=repr(error), trace=trace
        )

    # --- effects ----------------------------------------------------------------------------------------

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            try:
                self._carry_out(effect)
            except Exception as error:  # a bug of ours: the other effects are still owed
                self.failed(type(effect).__name__, error)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Answer():
                channel = self.connections.channels.get(effect.connection.id)
                if channel is not None:
                    channel.answer(effect.parts)
                elif effect.connection.id in self.loopback_clients:  # else it has gone meanwhile
                    self.loopback_clients[effect.connection.id].answer(effect.parts)
            case Run():
                self.jobs.start(effect.ticket, effect.directory, effect.queue, effect.job)
            case Report() if effect.event in REPEATABLE:
                mono = self.connections.clock.now().mono
                self.connections.log.sometimes(mono, effect.level, effect.event, **effect.facts)
            case Report():
                self.connections.log.event(effect.level, effect.event, effect.facts)
            case WriteAudit():
                if self.audit_log is not None:
                    self.audit_log.write(effect.wall_ms, effect.entries)
            case LoseAudit():
                if self.audit_log is not None:
                    self.audit_log.lose(effect.count, effect.reason)
            case Close():
                channel = self.connections.channels.get(effect.connection.id)
                if channel is not None:
                    channel.close(effect.reason)
                elif effect.connection.id in self.loopback_clients:
                    self.loopback_clients[effect.connection.id].close(effect.reason)
            case Proceed():
                channel = self.connections.channels.get(effect.connection.id)
                if channel is not None:
                    channel.proceed()
            case Mute():
                channel = self.connections.channels.get(effect.connection.id)
                if channel is not None:
                    channel.mute(max(0.0, effect.until - self.connections.clock.now().mono))
            case Fetch():
                self._fetch(effect)
            case Send():
                self.peers.send(effect.ticket, effect.peer, effect.lane, effect.frame)
            case Hangup():
                self.peers.hang_up(effect.peer_id, effect.lane)
            case Halt():
                self.halt(effect.reason)
            case _:
                assert_never(effect)

    def halt(self, reason: str) -> None:
        """End at once and leave no clean marker: a restart must not trust what we no longer trust."""
        try:
            self.connections.send_gathered()  # they were true when they were given
            self.connections.log.error("halted", reason=reason)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            self._halt(HALTED)

    # --- slow reads -------------------------------------------------------------------------------------

    def read_in_thread(
        self, file: File, position: int, size: int, then: Callable[[bytes | OSError], None]
    ) -> None:
        """Reads a pinned file in a thread, so that waiting for the device does not block the event loop."""
        assert isinstance(file, RealFile)
        pin = file.pin()  # the connection may go and close its own while we read

        def read() -> bytes:
            try:
                return pin.read(position, size)
            finally:
                pin.close()

        self._readers.run(read, then)

    def _fetch(self, effect: Fetch) -> None:
        try:
            from headrace.server.documents import get  # urllib is not needed to start

            self._fetchers = self._fetchers or Threads(self._loop, "fetch", FETCHERS_MAX)
            self._fetchers.run(
                lambda: get(effect.url, effect.bytes_max),
                lambda result: self._job_finished(effect.ticket, result),
            )
        except Exception as error:  # no more threads or descriptors: logins wait for it, and must hear of it
            self.soon(self._job_finished, effect.ticket, error)

    def stop(self) -> None:
        if self._fetchers is not None:
            self._fetchers.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.peers.close()
        self.jobs.stop()
        self._readers.stop()
