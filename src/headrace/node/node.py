"""One broker as a value: frames and the time go in, answers and effects come out.

A node never waits. What cannot be answered at once is parked; what takes long is ordered as a job; what has
to happen later is on the one heap of deadlines. Whoever drives a node calls one of `handle`, `completed`,
`wake`, then carries out `take_effects()`, then sets one timer to `deadline()`.
"""

from collections.abc import Callable
from typing import Any, cast

from headrace.base.dice import Dice
from headrace.base.limits import FRAME_WITHOUT_RECORDS_BYTES_MAX, LONG_FRAME_BYTES, PARKED_REQUESTS_MAX
from headrace.base.time import Instant, Now
from headrace.machines.metadata.image import Endpoint
from headrace.node import commit_lane, express
from headrace.node.authorization import Authorizer, Operation, Resource
from headrace.node.connection import Connection, Pending
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.deadlines import Deadlines
from headrace.node.effects import Answer, Close, Effect, Halt, Mute, Parts, Proceed, Report, Run
from headrace.node.fetch_sessions import FetchSessions
from headrace.node.group_commit import GroupCommit
from headrace.node.housekeeping import Housekeeping
from headrace.node.long_frames import LongFrame, LongFrames
from headrace.node.metadata_log import MetadataLog
from headrace.node.metrics import Metrics
from headrace.node.parking import Parked, Waitable, Waiter
from headrace.node.partitions import Partitions
from headrace.node.producer_ids import ProducerIds
from headrace.node.queued_answers import QueuedAnswers
from headrace.node.quotas import Quotas
from headrace.node.request import Request
from headrace.node.routes import OFFSET_COMMIT, PRODUCE, Routes
from headrace.node.settings import Settings
from headrace.node.sliced_reply import Slicing, Spliced
from headrace.protocol.compiler import Codec
from headrace.protocol.errors import ProtocolError
from headrace.protocol.framing import decode_request_header, response_frame
from headrace.protocol.parts import total_size
from headrace.storage.disk import Disk
from headrace.storage.jobs import Job

_API_VERSIONS = 18

Completion = Callable[[Now, Any], None]


class Node:
    def __init__(
        self, settings: Settings, disks: dict[str, Disk], dice: Dice, boot_id: str, now: Now
    ) -> None:
        """Opens the directories and replays the metadata; ready once the registration is durable."""
        self.settings = settings
        self.id = settings.node_id
        self.dice = dice
        self.metrics = Metrics()
        self.deadlines = Deadlines()
        self.long_frames = LongFrames(self)
        self.queued_answers = QueuedAnswers(self)
        self.slicing = Slicing(self)
        self.deadline: Callable[[], Instant | None] = self.deadlines.next  # asked after each call
        self.authorizer: Authorizer | None = None
        self.quotas: Quotas | None = None
        self.is_stopping = False
        self.is_stopped = False
        self.is_halted = False  # nothing more is promised to anybody
        self._routes = Routes(self.metrics)
        self._effects: list[Effect] = []
        self._awake: list[Waiter] = []
        self._ticket = 0
        self._jobs: dict[int, tuple[str, Completion]] = {}  # by ticket: the lane, and whoever is told
        self.fetch_sessions = FetchSessions(dice, slots=settings.max_incremental_fetch_session_cache_slots)
        self.partitions = Partitions(self, disks, boot_id, now)
        self.producer_ids = ProducerIds(self)
        self.metadata = MetadataLog.open(self, now)
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self.sinks = SinkCoordinator(self)
        self.housekeeping = Housekeeping(self, now)
        self.groups.load_all(now)
        self.transactions.load_all(now)
        self.sinks.load_all(now)

    # --- what the driver calls -------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        return self.metadata.is_ready

    def connected(self, now: Now, connection: Connection) -> None:
        self.metrics.connections += 1

    def disconnected(self, now: Now, connection: Connection) -> None:
        """Its parked requests go with it; appended records stay."""
        self.metrics.connections -= 1
        connection.is_closed = True
        self.queued_answers.forget(connection)
        for pending in connection.pending:
            if pending.parked is not None:
                self._unpark(pending.parked)
        connection.pending.clear()

    def handle(self, now: Now, connection: Connection, frame: memoryview) -> Parts | None:
        """Serve one frame (without its size prefix). None: no answer, or not yet.

        What it returns is sent before the effects of the same call are carried out.
        """
        if self.is_stopping:
            self._turn_away(connection)
            return None
        lane = connection.express
        if lane is not None and not connection.pending:
            parts = lane.serve(self, now, frame)
            if parts is not None:
                if self._awake:
                    self._ask_awake(now)
                return parts
        try:
            api_key, version, correlation_id, client_id, position = decode_request_header(frame)
            route = self._routes.find(api_key, version)
            if route is None:
                parts = self._unsupported(connection, api_key, version, correlation_id)
                return self._in_turn(connection, parts) if parts is not None else None
            if len(frame) > FRAME_WITHOUT_RECORDS_BYTES_MAX and api_key != PRODUCE:
                self.close(
                    connection,
                    f"API {api_key} with {len(frame)} bytes: too many for a request without records",
                )
                return None
            if len(frame) > LONG_FRAME_BYTES and api_key != PRODUCE and self.long_frames.has_room(len(frame)):
                rest = bytes(frame[position:])
                self.long_frames.add(now, LongFrame(connection, route, correlation_id, client_id, rest))
                return None
            body = route.decode(frame, position)
        except ProtocolError as fault:
            self.close(connection, str(fault))
            return None
        request = Request(now, connection, route, correlation_id, client_id, body)
        parts = self._serve(request)
        if parts is not None:
            if api_key == PRODUCE:
                express.learn(self, request, parts, frame, position)
            elif api_key == OFFSET_COMMIT:
                commit_lane.learn(self, request, b"".join(cast(list[bytes], parts)), frame)
        # only now: whoever is woken and answered on this connection was asked before this request
        if self._awake:
            self._ask_awake(now)
        return parts

    def serve_later(self, request: Request) -> None:
        """The same for a request that could not be handled when it came."""
        parts = self._serve(request)
        if parts is not None:
            self._effects.append(Answer(request.connection, parts))
        self.let_proceed(request.connection)

    def _serve(self, request: Request) -> Parts | None:
        request.route.metrics.requests += 1
        connection = request.connection
        had_pending = bool(connection.pending)
        reply = request.route.handle(self, request)
        if reply is None:
            return None
        if isinstance(reply, Parked):
            self._park(reply)
            return None
        parts = self._encode(request, reply)
        return self._in_turn(connection, parts) if had_pending else parts

    def _in_turn(self, connection: Connection, parts: Parts) -> Parts | None:
        """An answer on a connection whose earlier requests may have been answered in this same call."""
        if connection.pending:
            self.queue_behind(connection, parts)
        else:  # the handler settled them all: their answers are effects, and this one follows them
            self._effects.append(Answer(connection, parts))
        return None

    def completed(self, now: Now, ticket: int, result: Any) -> None:
        """A job's result, or the exception it ended with."""
        _, then = self._jobs.pop(ticket)
        if self.is_stopped:
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
            self._effects = []
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
        if not self.is_stopping:
            self.is_stopping = True
            self._settle(now)

    def stopped(self) -> None:
        self.is_stopped = True
        self.deadlines.clear()

    def _turn_away(self, connection: Connection) -> None:
        """A request of the last moment. Answers that are owed on its connection are still sent."""
        if not connection.pending:
            self.close(connection, "the node stops")

    # --- what the inside calls ---------------------------------------------------------------------------

    def run(self, directory: str, lane: str, job: Job, then: Completion) -> None:
        self._ticket += 1
        self._jobs[self._ticket] = lane, then
        self._effects.append(Run(self._ticket, directory, lane, job))

    def is_busy(self, lane: str) -> bool:
        """A job of that lane is under way, in any directory."""
        return any(name == lane for name, _ in self._jobs.values())

    def report(self, level: str, event: str, **facts: Any) -> None:
        self._effects.append(Report(level, event, facts))

    def report_damage(self, path: str, what: str) -> None:
        """Something on disk is not what was written there."""
        self.metrics.damages += 1
        self.report("error", "damaged_file", path=path, what=what)

    def halt(self, reason: str) -> None:
        self.is_halted = True
        self._effects.append(Halt(reason))

    def close(self, connection: Connection, reason: str) -> None:
        self._effects.append(Close(connection, reason))

    def let_proceed(self, connection: Connection) -> None:
        self._effects.append(Proceed(connection))

    def log_sizes(self) -> list[tuple[str, int, int]]:
        """Topic, partition and bytes of every log that is open, for whoever reports metrics."""
        return [
            (partition.topic, partition.index, partition.log.size_bytes)
            for partition in self.partitions.all()
            if partition.log is not None
        ]

    def allows(self, request: Request, operation: Operation, resource: Resource, name: str) -> bool:
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows(request.connection, operation, resource, name)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where clients of that listener reach a broker; None when it is not registered or has no such
        listener.
        """
        broker = self.metadata.image.brokers.get(broker_id)
        return broker.endpoints.get(listener) if broker is not None else None

    def commit_of(self, directory: str) -> GroupCommit:
        return self.partitions.commits[directory]

    def wake_waiters(self, waitable: Waitable) -> None:
        """Ask everybody who waits for this; at the end of the current call, so that no reply sees half a
        change.
        """
        for waiter in waitable.waiters:
            if waiter.moved is not None:
                waiter.moved[waitable] = None
            if not waiter.is_awake:
                waiter.is_awake = True
                self._awake.append(waiter)

    @property
    def has_room_to_park(self) -> bool:
        return self.metrics.parked < PARKED_REQUESTS_MAX

    def answer_parked(self, now: Now, parked: Parked, reply: Any) -> None:
        self._unpark(parked)
        pending = parked.pending
        if pending is None or parked.request.connection.is_closed:
            return
        parked.request.route.metrics.observe(now.mono - parked.request.now.mono)
        pending.parked = None
        pending.parts = self._encode(parked.request, reply)
        pending.is_done = True
        queue = pending.connection.pending
        if queue[0] is not pending:
            self.queued_answers.add(pending)
            return
        while queue and queue[0].is_done:
            ready = queue.popleft()
            if ready.queued_bytes:
                self.queued_answers.leaves(ready)
            if ready.parts is not None:
                self._effects.append(Answer(ready.connection, ready.parts))

    def queue_behind(self, connection: Connection, parts: Parts) -> None:
        """An answer that is known but has to wait for those of earlier requests."""
        pending = Pending(connection)
        pending.parts = parts
        pending.is_done = True
        connection.pending.append(pending)
        self.queued_answers.add(pending)

    # --- inside ------------------------------------------------------------------------------------------

    def _park(self, parked: Parked) -> None:
        self.metrics.parked += 1
        pending = parked.pending = Pending(parked.request.connection)
        pending.parked = parked
        parked.request.connection.pending.append(pending)
        at = parked.deadline()
        if at is not None:
            self.deadlines.add(at, parked)

    def _unpark(self, parked: Parked) -> None:
        if not parked.is_done:
            self.metrics.parked -= 1
            parked.forget()
            if parked.deadline() is not None:
                self.deadlines.cancelled()

    def _ask_awake(self, now: Now) -> None:
        while self._awake:
            awake, self._awake = iter(self._awake), []
            try:
                for waiter in awake:
                    waiter.is_awake = False
                    if not waiter.is_done:
                        waiter.woken(now)
            except BaseException:  # the others have not been asked yet: they are, in the next call
                self._awake[:0] = awake
                raise

    def _settle(self, now: Now) -> None:
        if self.is_stopped or self.is_halted:
            return
        if self._awake:
            self._ask_awake(now)
        if self.is_stopping:
            self.housekeeping.go_on_stopping(now)

    def _encode(self, request: Request, reply: Any) -> Parts:
        parts = framed(request.route.response, request.correlation_id, reply)
        if self.quotas is not None:
            parts = self._throttle(self.quotas, request, reply, parts)
        return parts

    def _throttle(self, quotas: Quotas, request: Request, reply: Any, parts: Parts) -> Parts:
        throttle_ms = quotas.throttle_ms(request, total_size(parts))
        if throttle_ms <= 0:
            return parts
        reply.throttle_time_ms = throttle_ms
        request.connection.muted_until = request.now.after_ms(throttle_ms)
        self._effects.append(Mute(request.connection, request.now.after_ms(throttle_ms)))
        return framed(request.route.response, request.correlation_id, reply)

    def _unsupported(
        self, connection: Connection, api_key: int, version: int, correlation_id: int
    ) -> Parts | None:
        if api_key != _API_VERSIONS:
            self.close(connection, f"API {api_key} v{version} is not served")
            return None
        # KIP-511: a v0 body with the error, so that the client can try again inside our range
        route = self._routes.find(_API_VERSIONS, 0)
        assert route is not None
        from headrace.node.handlers.api_versions import unsupported

        return framed(route.response, correlation_id, unsupported())


def framed(response: Codec[Any], correlation_id: int, reply: Any) -> Parts:
    # the only parts that are not bytes are the spans that a handler put in as records
    body: Any = reply.encoded() if type(reply) is Spliced else response.encode_parts(reply)
    return cast(Parts, response_frame(correlation_id, response.header_version, body))
