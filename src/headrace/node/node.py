"""One process as a value: frames and the time go in, answers and effects come out.

A node is made of roles, broker and controller, over what every process has: connections, routes, requests
that wait, deadlines, jobs, reports. It never waits. What cannot be answered at once is parked; what takes
long is ordered as a job; what has to happen later is on the one heap of deadlines. Whoever drives a node
calls one of `handle`, `completed`, `wake`, then carries out `take_effects()`, then sets one timer to
`deadline()`.
"""

from collections.abc import Callable
from typing import Any

from headrace.base.dice import Dice
from headrace.base.time import Instant, Now
from headrace.node.authorization import Access
from headrace.node.broker import Broker
from headrace.node.connection import Connection
from headrace.node.controller import Controller
from headrace.node.effects import Answer, Effect, Parts
from headrace.node.log_directories import LogDirectories, metadata_home
from headrace.node.long_frames import LongFrame, LongFrames
from headrace.node.metrics import Metrics
from headrace.node.ports import Deadlines, Every, Jobs, Lifecycle, Ports, Reports
from headrace.node.routes import Handle, Request, Route, Routes, framed
from headrace.node.settings import LiveSettings, Settings
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.api import BOTH, ApiKey
from headrace.protocol.errors import ProtocolError
from headrace.protocol.framing import decode_request_header
from headrace.storage.disk import Disk

# How often a process without a broker writes how far its metadata log is flushed.
CHECKPOINT_INTERVAL_MS = 5_000


class Node:
    def __init__(
        self, settings: Settings, disks: dict[str, Disk], dice: Dice, boot_id: str, now: Now
    ) -> None:
        """Opens the directories and replays the metadata; ready once its first decisions are durable."""
        self.id = settings.node_id
        self._effects: list[Effect] = []
        self._live = LiveSettings(settings.but(metadata_log_dir=metadata_home(settings, disks)))
        self.lifecycle = Lifecycle()
        self.deadlines = Deadlines()
        self.jobs = Jobs(self._effects)
        self.reports = Reports(self._effects, self.lifecycle)
        self.waiting = Waiting(self._effects, self.deadlines, self.reports)
        self.access = Access()
        self.metrics = Metrics()
        self.deadline: Callable[[], Instant | None] = self.deadlines.next  # asked after each call
        self.long_frames = LongFrames(self.deadlines, self.reports, self._serve_later)
        self.routes = Routes(self.metrics, settings.controller_listener_names)
        ports = Ports(self.deadlines, self.jobs, self.reports, self.lifecycle, self.waiting)
        current = self._live.current
        self.directories = LogDirectories(current, disks, dice, boot_id, now, ports, self.metrics)
        self.controller = Controller(self._live, self.directories, self.access, dice, ports, now)
        self._broker: Broker | None = None
        if "broker" in settings.process_roles:
            self._broker = Broker(
                self._live,
                self.directories,
                self.controller.metadata,
                self.controller.decisions,
                self.access,
                dice,
                ports,
                self.metrics,
                now,
            )
        self._serve_apis()
        self._start(now)

    def _serve_apis(self) -> None:
        self.routes.serve(ApiKey.API_VERSIONS, BOTH, self._api_versions)
        self.controller.serve(self.routes)
        self.metrics.ask_parked = lambda: self.waiting.parked
        self.metrics.ask_damages = lambda: self.reports.damages
        if self._broker is not None:
            gates = self._broker.gates
            self.metrics.ask_held = lambda: gates.held.count
            self._broker.serve(self.routes)

    def _api_versions(self) -> Handle:
        from headrace.node.handlers.api_versions import ApiVersions

        return ApiVersions(self.routes, self.controller.metadata).handle

    def _start(self, now: Now) -> None:
        if self._broker is None:
            self.controller.lead(now, None)
            Every(self.deadlines, CHECKPOINT_INTERVAL_MS, self.directories.checkpoint).start(now)
        else:
            self.controller.lead(now, self._broker.registration())
            self._broker.start(now)

    # --- what the driver calls -------------------------------------------------------------------------

    @property
    def broker(self) -> Broker:
        """The broker role, of a process that has it."""
        assert self._broker is not None, "process.roles has no broker"
        return self._broker

    @property
    def settings(self) -> Settings:
        return self._live.current

    @property
    def is_ready(self) -> bool:
        return self.controller.is_ready

    @property
    def is_stopped(self) -> bool:
        return self.lifecycle.is_stopped

    @property
    def is_halted(self) -> bool:
        return self.lifecycle.is_halted

    def log_sizes(self) -> list[tuple[str, int, int]]:
        """Topic, partition and bytes of every log that is open, for whoever reports metrics."""
        return self._broker.log_sizes() if self._broker is not None else []

    def connected(self, now: Now, connection: Connection) -> None:
        self.metrics.connections += 1

    def disconnected(self, now: Now, connection: Connection) -> None:
        """Its parked requests go with it; appended records stay."""
        self.metrics.connections -= 1
        connection.is_closed = True
        self.waiting.forget(connection)

    def handle(self, now: Now, connection: Connection, frame: memoryview) -> Parts | None:
        """Serve one frame (without its size prefix). None: no answer, or not yet.

        What it returns is sent before the effects of the same call are carried out.
        """
        if self.lifecycle.is_stopping:
            self._turn_away(connection)
            return None
        waiting = self.waiting
        lane = connection.express
        if lane is not None and not connection.pending:
            parts = lane.serve(now, frame)
            if parts is not None:
                if waiting.awake:
                    waiting.ask_awake(now)
                return parts
        try:
            api_key, version, correlation_id, client_id, position = decode_request_header(frame)
            route = self.routes.find(connection.listener, api_key, version)
            if route is None:
                self._unsupported(connection, api_key, version, correlation_id)
                return None
            if len(frame) > route.decoded_at_once_max and self._takes_long(
                now, connection, frame, route, correlation_id, client_id, position
            ):
                return None
            body = route.decode(frame, position)
        except ProtocolError as fault:
            self.reports.close(connection, str(fault))
            return None
        request = Request(now, connection, route, correlation_id, client_id, body)
        parts = self._serve(request)
        if parts is not None and route.learn is not None:
            route.learn(request, parts, frame, position)
        # only now: whoever is woken and answered on this connection was asked before this request
        if waiting.awake:
            waiting.ask_awake(now)
        return parts

    def completed(self, now: Now, ticket: int, result: Any) -> None:
        """A job's result, or the exception it ended with."""
        then = self.jobs.end(ticket)
        if self.lifecycle.is_stopped:
            return
        try:
            then(now, result)
        finally:
            self._settle(now)

    def wake(self, now: Now) -> None:
        try:
            self.deadlines.fire(now)
        finally:
            self._settle(now)

    def take_effects(self) -> list[Effect]:
        effects = self._effects
        if effects:
            taken = effects[:]
            effects.clear()
            return taken
        return effects

    def shutdown(self, now: Now) -> None:
        """Stop in stages; `is_stopped` tells when all are done.

        1. No request is taken any more, and no housekeeping begun.
        2. What was taken is finished: batches at their gates and long frames reach their logs.
        3. Everything is flushed, and whoever waited for that is answered.
        4. Checkpoint jobs that are under way come back: none may write older offsets over the last ones.
        5. Logs are closed, and refuse from then on; then checkpoints and clean markers are written.

        Each call of the node looks whether the next stage has come.
        """
        if not self.lifecycle.is_stopping:
            self.lifecycle.is_stopping = True
            self._settle(now)

    # --- inside ------------------------------------------------------------------------------------------

    def _serve(self, request: Request) -> Parts | None:
        route = request.route
        route.metrics.requests += 1
        connection = request.connection
        had_pending = bool(connection.pending)
        reply = route.handle(request)
        if reply is None:
            return None
        waiting = self.waiting
        if isinstance(reply, Parked):
            waiting.park(reply)
            return None
        parts = framed(route.response, request.correlation_id, reply)
        if waiting.quotas is not None:
            parts = waiting.throttled(waiting.quotas, request, reply, parts)
        return waiting.in_turn(connection, parts) if had_pending else parts

    def _takes_long(
        self,
        now: Now,
        connection: Connection,
        frame: memoryview,
        route: Route,
        correlation_id: int,
        client_id: str | None,
        position: int,
    ) -> bool:
        """Whether a long frame is refused, or decoded in slices and served later."""
        if len(frame) > route.frame_bytes_max:
            self.reports.close(
                connection,
                f"API {route.api_key} with {len(frame)} bytes: too many for a request without records",
            )
            return True
        if not self.long_frames.has_room(len(frame)):
            return False
        rest = bytes(frame[position:])
        self.long_frames.add(now, LongFrame(connection, route, correlation_id, client_id, rest))
        return True

    def _serve_later(self, request: Request) -> None:
        """Serve a request that could not be handled when it came."""
        parts = self._serve(request)
        if parts is not None:
            self._effects.append(Answer(request.connection, parts))
        self.reports.let_proceed(request.connection)

    def _turn_away(self, connection: Connection) -> None:
        """A request of the last moment. Answers that are owed on its connection are still sent."""
        if not connection.pending:
            self.reports.close(connection, "the node stops")

    def _settle(self, now: Now) -> None:
        if self.lifecycle.is_stopped or self.lifecycle.is_halted:
            return
        if self.waiting.awake:
            self.waiting.ask_awake(now)
        if self.lifecycle.is_stopping:
            self._go_on_stopping(now)

    def _go_on_stopping(self, now: Now) -> None:
        """Whatever of the stages of `shutdown` can be done now; called after each call of the node, once
        whoever was woken by it has been answered.
        """
        if not self.long_frames.is_empty or (self._broker is not None and not self._broker.is_drained(now)):
            return
        if not self.controller.is_flushed or self.directories.is_writing_checkpoints:
            return
        self.directories.close_clean()
        if not self.lifecycle.is_halted:
            self.lifecycle.is_stopped = True
            self.deadlines.clear()

    def _unsupported(self, connection: Connection, api_key: int, version: int, correlation_id: int) -> None:
        if api_key != ApiKey.API_VERSIONS:
            self.reports.close(connection, f"API {api_key} v{version} is not served")
            return
        # KIP-511: a v0 body with the error, so that the client can try again inside our range
        route = self.routes.find(connection.listener, ApiKey.API_VERSIONS, 0)
        assert route is not None
        from headrace.node.handlers.api_versions import unsupported

        self.waiting.in_turn(connection, framed(route.response, correlation_id, unsupported()))
