"""One process as a pure state machine: frames and the time go in, answers and effects come out.

A node consists of its roles, broker and controller, and of what every process has: connections, routes,
requests that wait, deadlines, jobs, reports. It never blocks. A request that cannot be answered at once is
parked; slow work is a job; later work is an entry in the one heap of deadlines. The driver calls one of
`handle`, `completed`, `answered` and `wake`, then carries out `take_effects()`, then sets one timer to
`deadline()`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.base.limits import FORWARDED_BYTES_MAX
from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.node.authorization import Access
from headrace.node.broker import Broker
from headrace.node.client_logins import ClientLogins
from headrace.node.common_handlers import CommonHandlers
from headrace.node.connection import Connection
from headrace.node.controller import Controller
from headrace.node.controller_channel import ControllerChannel
from headrace.node.effects import Answer, Effect, Mute, Parts
from headrace.node.log_directories import LogDirectories, find_metadata_log_dir
from headrace.node.long_frames import LongFrame, LongFrames
from headrace.node.metadata_log import MetadataLog
from headrace.node.metrics import Metrics
from headrace.node.peers import Peers, Unanswered
from headrace.node.ports import Deadlines, Every, Jobs, Lifecycle, Once, Ports, Reports
from headrace.node.quotas import Quotas
from headrace.node.routes import Request, Route, Routes
from headrace.node.settings import LiveSettings, Settings
from headrace.node.token_requests import CHANGES, TokenRequests, check_interval_ms, secret_key
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.api import BOTH, BROKER, ApiKey
from headrace.protocol.errors import ProtocolError
from headrace.protocol.framing import answer_frame, decode_request_header
from headrace.storage.disk import Disk

if TYPE_CHECKING:
    from headrace.node.cluster_metrics import ClusterMetrics
    from headrace.node.http_clients import HttpClients

# The mechanism of a login by TLS, in the audit log.
CERTIFICATE = "certificate"

# How often a process without a broker writes how far its metadata log is flushed.
CHECKPOINT_INTERVAL_MS = 5_000
# they may set certificates for this broker
SETTINGS_CHANGES = frozenset((ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS))


class Node:
    def __init__(
        self, settings: Settings, disks: dict[str, Disk], rng: Randomness, boot_id: str, now: Now
    ) -> None:
        """Opens the directories and replays the metadata; ready once its first decisions are durable."""
        self.id = settings.node_id
        self._effects: list[Effect] = []
        self._live = LiveSettings(settings.but(metadata_log_dir=find_metadata_log_dir(settings, disks)))
        self.lifecycle = Lifecycle()
        self.deadlines = Deadlines()
        self.jobs = Jobs(self._effects)
        self.reports = Reports(self._effects, self.lifecycle)
        self.quotas = Quotas(self._live)
        self.waiting = Waiting(self._effects, self.deadlines, self.reports, self.quotas)
        self.peers = Peers(self.id, self._effects, self.deadlines)
        self.access = Access()
        if settings.has_audit_log:
            from headrace.node.audit import Audit

            tells_allowed = settings.headrace_audit_log_level == "debug"
            self.access.audit = Audit(self._effects, self.deadlines, tells_allowed=tells_allowed)
        self.metrics = Metrics()
        self.deadline: Callable[[], Instant | None] = self.deadlines.next  # asked after each call
        self.long_frames = LongFrames(self.deadlines, self.reports, self._serve_later)
        self.routes = Routes(self.metrics, settings.controller_listener_names)
        ports = Ports(self.deadlines, self.jobs, self.reports, self.lifecycle, self.waiting, self.peers)
        current = self._live.current
        self.directories = LogDirectories(current, disks, rng, boot_id, now, ports, self.metrics)
        metadata = MetadataLog(self._live, self.directories, rng, ports, now)
        self._guard(metadata, now)
        self.quotas.load(metadata.image.security.quotas)
        metadata.followers.append(self.quotas)
        self.controller = Controller(self._live, self.directories, metadata, self.access, rng, ports)
        self._is_controller = "controller" in settings.process_roles
        if self._is_controller:
            metadata.role = self.controller
        self._broker: Broker | None = None
        if "broker" in settings.process_roles:
            decide = self.controller.decide if self._is_controller else None
            self._channel = ControllerChannel(self._live, metadata, ports, decide)
            self._broker = Broker(
                self._live,
                self.directories,
                metadata,
                self._channel,
                self.access,
                rng,
                ports,
                self.metrics,
                now,
            )
        self._token_requests = TokenRequests(settings)
        self.client_logins = ClientLogins(self._live, metadata, self.access, rng, ports, self.metrics, now)
        self.logins = self.client_logins.sasl
        self._serve_apis()
        self._start(now)

    def _guard(self, metadata: MetadataLog, now: Now) -> None:
        """Has everything allowed by rules, if the settings say so."""
        settings = self.settings.authorizer
        if settings is None:
            return
        from headrace.node.standard_authorizer import StandardAuthorizer

        authorizer = StandardAuthorizer(self.access, settings)
        authorizer.load(metadata.image.security.rules)
        metadata.followers.append(authorizer)
        if metadata.is_caught_up:
            authorizer.caught_up(now)
        else:
            metadata.caught_up.append(authorizer.caught_up)

    def _serve_apis(self) -> None:
        CommonHandlers(self.routes, self.controller.metadata).register()
        self.controller.serve(self.routes, BOTH if self._is_controller else BROKER)
        self.metrics.ask_parked = lambda: self.waiting.parked
        self.metrics.ask_damages = lambda: self.reports.damages
        self.metrics.throttled = self.quotas.throttled
        if self._broker is not None:
            append_queues = self._broker.append_queues
            self.metrics.ask_held = lambda: append_queues.held.count
            self._broker.serve(self.routes)
            self.routes.forward(self._forward)

    def _forward(
        self,
        now: Now,
        connection: Connection,
        frame: memoryview,
        route: Route,
        correlation_id: int,
        client_id: str | None,
    ) -> Parked | None:
        """A request that only the active controller answers; None: that is in this process."""
        if self._channel.is_local:
            return None
        if route.api_key in CHANGES and not self._token_requests.allows(connection):
            return None  # and its handler says so: the controller does not know how the client came
        if route.api_key in SETTINGS_CHANGES and self._refuses_own(now, connection, frame, route, client_id):
            return None  # and its handler says so: nobody else can try this broker's files
        from headrace.node.forwarding import Forwarding

        forwarding = Forwarding(self._channel, self.waiting)
        return forwarding.forward(now, connection, frame, route, correlation_id, client_id)

    def _refuses_own(
        self, now: Now, connection: Connection, frame: memoryview, route: Route, client_id: str | None
    ) -> bool:
        """Whether it sets certificates for this broker that it cannot use."""
        _, version, correlation_id, _, position = decode_request_header(frame)
        body = route.decode(frame, position)
        request = Request(now, connection, route, version, correlation_id, client_id, body, size=len(frame))
        return self.controller.refusal_of_own(request) is not None

    @property
    def http_clients(self) -> "HttpClients":
        return self.client_logins.http

    def _start(self, now: Now) -> None:
        metadata = self.controller.metadata
        if self._broker is None:
            metadata.start(now)
            Every(self.deadlines, CHECKPOINT_INTERVAL_MS, self.directories.checkpoint).start(now)
        else:
            self.controller.follow(self._broker.registration, self._broker.lifecycle.poke)
            metadata.start(now)
            self._broker.start(now)
        texts = self.settings.texts
        if self._is_controller and secret_key(texts) is not None:
            remove = self.controller.remove_expired_tokens
            Every(self.deadlines, check_interval_ms(texts), remove).start(now)

    # --- what the driver calls -------------------------------------------------------------------------

    @property
    def broker(self) -> Broker:
        """The broker role, of a process that has it."""
        assert self._broker is not None, "process.roles has no broker"
        return self._broker

    def try_certificates_by(self, check: Callable[[Settings], None]) -> None:
        """`check` raises InvalidConfig at settings whose certificates the server could not use."""
        self._live.check_files = check

    @property
    def settings(self) -> Settings:
        return self._live.current

    @property
    def is_ready(self) -> bool:
        """Whether clients may come: the broker is unfenced; a controller alone knows who leads."""
        if self._broker is not None:
            return self._broker.lifecycle.is_ready
        return self.controller.is_ready

    @property
    def is_stopping(self) -> bool:
        """No more requests are accepted."""
        return self.lifecycle.is_stopping

    @property
    def is_stopped(self) -> bool:
        return self.lifecycle.is_stopped

    @property
    def is_halted(self) -> bool:
        return self.lifecycle.is_halted

    def log_sizes(self) -> list[tuple[str, int, int]]:
        """Topic, partition and bytes of every open log, for metrics."""
        return self._broker.log_sizes() if self._broker is not None else []

    def cluster_metrics(self) -> "ClusterMetrics":
        """The quorum, the cluster and the replicas of this broker, in numbers."""
        from headrace.node.cluster_metrics import ClusterMetrics, quorum_numbers

        metadata = self.controller.metadata
        return ClusterMetrics(
            quorum_numbers(metadata.quorum, metadata.end_offset),
            self._is_controller and metadata.is_active,
            self.controller.numbers() if self._is_controller else None,
            self._broker.numbers() if self._broker is not None else None,
        )

    def connected(self, now: Now, connection: Connection) -> None:
        self.metrics.connections += 1
        if connection.is_own:
            return
        self._slow_down(now, connection)
        if self.logins is not None:
            self.logins.meet(connection)

    def shown_certificate(self, now: Now, connection: Connection, principal: str) -> None:
        """A client's certificate says who it is."""
        connection.principal = principal
        if self.access.audit is not None and connection.login is None:  # on a SASL listener it is to come
            self.access.audit.login(now, connection, CERTIFICATE)

    def refused_handshake(self, now: Now, connection: Connection, reason: str) -> None:
        """On a listener that asks for certificates."""
        if self.access.audit is not None:
            self.access.audit.login_refused(now, connection, CERTIFICATE, "", reason)

    def _slow_down(self, now: Now, connection: Connection) -> None:
        """If there are too many new connections, nothing is read from this one for a while. One whose
        address has made too many is closed afterwards.
        """
        refused_ms = self.quotas.refused_ms(now, connection)
        delayed_ms = refused_ms or self.quotas.delayed_ms(now, connection)
        if not delayed_ms:
            return
        until = connection.muted_until = now.after_ms(delayed_ms)
        self._effects.append(Mute(connection, until))
        if refused_ms:
            Once(self.deadlines, until, lambda now: self._refuse(connection))

    def _refuse(self, connection: Connection) -> None:
        if not connection.is_closed:
            reason = "its address makes more connections than its quota connection_creation_rate allows"
            self.reports.close(connection, reason)

    def disconnected(self, now: Now, connection: Connection) -> None:
        """Its parked requests go with it; appended records stay. Cycles are cut: the garbage collector runs
        too rarely for them.
        """
        self.metrics.connections -= 1
        connection.is_closed = True
        connection.fast_path = None
        if connection.login is not None:
            connection.login.forget()
        self.waiting.forget(connection)
        if connection.peer is not None:
            self.controller.disconnected(now, connection.peer)

    def handle(self, now: Now, connection: Connection, frame: memoryview) -> Parts | None:
        """Serve one frame (without its size prefix). None: no answer, or not yet.

        What it returns is sent before the effects of the same call are carried out.
        """
        if self.lifecycle.is_stopping:
            self._turn_away(connection)
            return None
        waiting = self.waiting
        path = connection.fast_path
        while path is not None:
            if not connection.pending or path.may_queue:
                parts = path.serve(now, frame)
                if parts is not None:
                    if waiting.awake:
                        waiting.ask_awake(now)
                    return parts or None  # none at all: the answer leaves later
            path = path.next
        try:
            api_key, version, correlation_id, client_id, position = decode_request_header(frame)
            listener = connection.listener
            route = self.routes.known((listener, api_key, version)) or self.routes.find(
                listener, api_key, version
            )
            if route is None:
                self._unsupported(connection, api_key, version, correlation_id)
                return None
            if route.forward is not None and len(frame) <= FORWARDED_BYTES_MAX:
                parked = route.forward(now, connection, frame, route, correlation_id, client_id)
                if parked is not None:
                    waiting.park(parked)
                    return None
            if len(frame) > route.decoded_at_once_max and self._takes_long(
                now, connection, frame, route, correlation_id, client_id, position
            ):
                return None
            body = route.decode(frame, position)
        except ProtocolError as fault:
            self.reports.close(connection, str(fault))
            return None
        request = Request(now, connection, route, version, correlation_id, client_id, body, size=len(frame))
        parts = self._serve(request)
        if request.is_usual and route.learn is not None:
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

    def answered(self, now: Now, ticket: int, answer: memoryview | Unanswered) -> bool:
        """The frame of another node's response, or why there is none. True: the node keeps its memory."""
        if self.lifecycle.is_stopped:
            return False
        try:
            return self.peers.answered(now, ticket, answer)
        finally:
            self._settle(now)

    def wake(self, now: Now) -> None:
        try:
            self.deadlines.fire(now)
        finally:
            self._settle(now)

    def take_effects(self) -> list[Effect]:
        effects = self._effects
        if not effects:
            return []  # never the list itself, which the ports fill
        taken = effects[:]
        effects.clear()
        return taken

    def shutdown(self, now: Now) -> None:
        """Stops in stages; `is_stopped` says when all are done.

        1. The other nodes of a cluster take over what this one leads; meanwhile it serves as before.
        2. No more requests are accepted, and no more housekeeping is started.
        3. Accepted requests are finished: batches in their append queues and long frames reach their logs.
        4. Everything is flushed, and the requests that waited for that are answered.
        5. Checkpoint jobs that are running end: none may write older offsets over the last ones.
        6. Logs are closed, and refuse appends; then checkpoints and the markers of a clean stop are written.

        Each call of the node checks whether the next stage can begin.
        """
        if not self.lifecycle.is_leaving:
            self.lifecycle.is_leaving = True
            self._settle(now)

    # --- inside ------------------------------------------------------------------------------------------

    def _serve(self, request: Request) -> Parts | None:
        route = request.route
        route.metrics.requests += 1
        connection = request.connection
        had_pending = bool(connection.pending)
        waiting = self.waiting
        has_quotas = self.quotas.version is not None
        if has_quotas:
            self.quotas.arrived(request)
        reply = route.handle(request)
        if isinstance(reply, Parked):
            waiting.park(reply)
            return None
        if has_quotas:
            waiting.throttle(request.now, request, reply)  # also a producer that gets no answer
        if reply is None:
            return None
        parts: Parts = answer_frame(route.response, request.correlation_id, reply)
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
                f"API {route.api_key}: the request has {len(frame)} bytes, more than the limit of "
                f"{route.frame_bytes_max} for requests without records",
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
        """Refuses a request during the shutdown. Answers to earlier requests of its connection are still
        sent.
        """
        if not connection.pending:
            self.reports.close(connection, "the node is shutting down")

    def _settle(self, now: Now) -> None:
        if self.lifecycle.is_stopped or self.lifecycle.is_halted:
            return
        if self.waiting.awake:
            self.waiting.ask_awake(now)
        if self.lifecycle.is_leaving:
            self._go_on_stopping(now)

    def _go_on_stopping(self, now: Now) -> None:
        """Does the stages of `shutdown` that are possible now. It is called after each call of the node, when
        the requests that the call woke are answered.
        """
        if not self.lifecycle.is_stopping:
            if self._broker is not None and not self._broker.has_left(now):
                return
            if not self.controller.has_left(now):
                return
            self.lifecycle.is_stopping = True
        if not self.long_frames.is_empty or (self._broker is not None and not self._broker.is_drained(now)):
            return
        if not self.controller.metadata.is_flushed or self.directories.is_writing_checkpoints:
            return
        if self.access.audit is not None:
            self.access.audit.end_period(now)
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

        self.waiting.in_turn(connection, answer_frame(route.response, correlation_id, unsupported()))
