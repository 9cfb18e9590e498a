"""Parked requests, and the order in which the answers of a connection leave.

A parked request waits for the high watermark, an fsync, new records, or a committed metadata change. The
`Waitable` for which it waits (a partition, a directory's flush, the metadata log) wakes it, and so does its
deadline. Then it is asked for its reply; None means "not yet". A `Waiter` that is not a request is woken in
the same way, and has no reply. An answer that is ready before those of earlier requests is queued behind
them.
"""

from typing import Any

from headrace.base.limits import PARKED_REQUESTS_MAX, QUEUED_ANSWER_BYTES_MAX
from headrace.base.time import Instant, Now
from headrace.node.connection import Connection, Pending
from headrace.node.effects import Answer, Effect, Mute, Parts
from headrace.node.ports import Deadlines, Reports
from headrace.node.quotas import Quotas
from headrace.node.routes import Request
from headrace.protocol.framing import answer_frame
from headrace.protocol.parts import total_size
from headrace.storage.disk import Span


class Waitable:
    """Something for which parked requests wait. They are woken in the order of their arrival."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}


class Waiter:
    """Something that is woken, at the end of the call, when a Waitable has changed."""

    __slots__ = ("is_awake", "is_done", "moved", "waits_for")

    def __init__(self) -> None:
        self.waits_for: list[Waitable] = []
        self.is_done = False
        self.is_awake = False  # already on the list of those to be asked
        self.moved: dict[Waitable, None] | None = None  # what it was woken by; None: it does not ask

    def woken(self, now: Now) -> None:
        """Checks again what it waits for."""
        raise AssertionError("each kind of waiter says what it does")

    def wait_for(self, waitable: Waitable) -> None:
        waitable.waiters[self] = None
        self.waits_for.append(waitable)

    def leave(self) -> None:
        """Stops waiting for everything."""
        for waitable in self.waits_for:
            waitable.waiters.pop(self, None)
        self.waits_for.clear()

    def forget(self) -> None:
        """Stops waiting permanently."""
        self.is_done = True
        self.leave()


class Parked(Waiter):
    """A request without an answer yet. Subclasses say when it is ready and what the answer is."""

    __slots__ = ("pending", "request", "waiting")

    def __init__(self, waiting: "Waiting", request: Request) -> None:
        super().__init__()
        self.waiting = waiting
        self.request = request
        self.pending: Pending | None = None  # its place among the connection's answers

    def deadline(self) -> Instant | None:
        """When it is answered at the latest; None: only by what it waits for."""
        raise AssertionError("each kind of wait says its deadline")

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        """The answer's message, or None while it must wait on. When expired there is always one."""
        raise AssertionError("each kind of wait says its reply")

    def woken(self, now: Now) -> None:
        try:
            reply = self.reply(now, is_expired=False)
            if reply is not None:
                self.waiting.answer(now, self, reply)
        except Exception:
            self.failed()
            raise

    def expired(self, now: Now) -> None:
        try:
            self.waiting.answer(now, self, self.reply(now, is_expired=True))
        except Exception:
            self.failed()
            raise

    def hand_over(self, to: "Parked") -> None:
        """Another parked request takes the place of this one."""
        self.waiting.hand_over(self, to)

    def failed(self) -> None:
        """After a bug in Headrace the request gets no answer, so the connection is closed."""
        self.waiting.give_up(self.request.connection)


class Waiting:
    """All parked requests, the waiters that were woken, and the answers that leave."""

    __slots__ = (
        "_deadlines",
        "_effects",
        "_muted",
        "_reports",
        "awake",
        "parked",
        "queued_answers",
        "quotas",
    )

    def __init__(self, effects: list[Effect], deadlines: Deadlines, reports: Reports, quotas: Quotas) -> None:
        self._effects = effects
        self._deadlines = deadlines
        self._reports = reports
        self.queued_answers = QueuedAnswers(reports)
        self.quotas = quotas
        self._muted: dict[Connection, None] = {}  # some of them no longer
        quotas.changed = self._unmute
        self.awake: list[Waiter] = []  # to be asked at the end of the current call
        self.parked = 0  # requests that wait now

    @property
    def has_room(self) -> bool:
        """Whether one more request may be parked."""
        return self.parked < PARKED_REQUESTS_MAX

    def wake(self, waitable: Waitable) -> None:
        """Wakes all that wait for this, at the end of the current call, so that no reply sees half of a
        change.
        """
        for waiter in waitable.waiters:
            if waiter.moved is not None:
                waiter.moved[waitable] = None
            if not waiter.is_awake:
                waiter.is_awake = True
                self.awake.append(waiter)

    def wake_one(self, waiter: Waiter) -> None:
        """Wakes one, at the end of the current call."""
        if not waiter.is_awake:
            waiter.is_awake = True
            self.awake.append(waiter)

    def ask_awake(self, now: Now) -> None:
        while self.awake:
            awake, self.awake = iter(self.awake), []
            try:
                for waiter in awake:
                    waiter.is_awake = False
                    if not waiter.is_done:
                        waiter.woken(now)
            except BaseException:  # the others have not been asked yet: they are, in the next call
                self.awake[:0] = awake
                raise

    # --- parked requests ---------------------------------------------------------------------------------

    def park(self, parked: Parked) -> None:
        self.park_on(parked.request.connection, parked)

    def park_on(self, connection: Connection, parked: Parked) -> None:
        """The same for one that has no request."""
        self.park_finished(parked, connection)
        at = parked.deadline()
        if at is not None:
            self._deadlines.add(at, parked)

    def answer(self, now: Now, parked: Parked, reply: Any) -> None:
        """A parked request has its reply. It leaves now, or behind the answers of earlier requests."""
        self._unpark(parked)
        pending = parked.pending
        if pending is None or parked.request.connection.is_closed:
            return
        parked.request.route.metrics.observe(now.mono - parked.request.now.mono)
        request = parked.request
        if self.quotas.version is not None:
            self.throttle(now, request, reply)
        parts: Parts = answer_frame(request.route.response, request.correlation_id, reply)
        self._leave(pending, parts)

    def park_finished(self, parked: Parked, connection: Connection) -> None:
        """Park a request whose answer is finished and waits for one fact: it has no entry in the heap of
        deadlines, and ends with `send`.
        """
        self.parked += 1
        pending = parked.pending = Pending(connection)
        pending.parked = parked
        connection.pending.append(pending)

    def send(self, parked: Parked, parts: Parts) -> None:
        """The answer of a request that was parked with `park_finished`."""
        self._unpark(parked)
        pending = parked.pending
        if pending is not None and not pending.connection.is_closed:
            self._leave(pending, parts)

    def _leave(self, pending: Pending, parts: Parts) -> None:
        """The answer leaves now, or behind the answers of earlier requests."""
        pending.parked = None
        pending.parts = parts
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

    def hand_over(self, parked: Parked, to: Parked) -> None:
        """Another waits instead, in the same place among the answers of the connection."""
        pending = parked.pending
        assert pending is not None
        pending.parked, to.pending = to, pending
        parked.forget()
        if parked.deadline() is not None:
            self._deadlines.cancelled()
        at = to.deadline()
        if at is not None:
            self._deadlines.add(at, to)

    def forget(self, connection: Connection) -> None:
        """The connection is closed: its parked requests go with it."""
        self._muted.pop(connection, None)
        self.queued_answers.forget(connection)
        for pending in connection.pending:
            if pending.parked is not None:
                self._unpark(pending.parked)
                pending.parked = None
        connection.pending.clear()

    def give_up(self, connection: Connection, reason: str = "internal error") -> None:
        """One of its requests will never be answered: it met a mistake of ours, or another reason."""
        self._reports.close(connection, reason)

    def _unpark(self, parked: Parked) -> None:
        if not parked.is_done:
            self.parked -= 1
            parked.forget()
            if parked.deadline() is not None:
                self._deadlines.cancelled()

    # --- answers -----------------------------------------------------------------------------------------

    def in_turn(self, connection: Connection, parts: Parts) -> Parts | None:
        """An answer on a connection whose earlier requests may have been answered in this same call. None:
        it leaves among the effects, behind those.
        """
        if connection.pending:
            self.queue_behind(connection, parts)
        else:  # the handler settled them all: their answers are effects, and this one follows them
            self._effects.append(Answer(connection, parts))
        return None

    def queue_behind(self, connection: Connection, parts: Parts) -> None:
        """An answer that is known but has to wait for those of earlier requests."""
        pending = Pending(connection)
        pending.parts = parts
        pending.is_done = True
        connection.pending.append(pending)
        self.queued_answers.add(pending)

    # --- throttled clients ---------------------------------------------------------------------------------

    def throttle(self, now: Now, request: Request, reply: Any) -> None:
        """Puts the throttle time of the client into its reply, and mutes the client for so long from now."""
        told_ms = getattr(reply, "throttle_time_ms", None)  # None: logins, and a few others, cannot tell it
        throttle_ms = self.quotas.throttle_ms(now, request, told_ms or 0)
        if throttle_ms:
            if told_ms is not None:
                reply.throttle_time_ms = throttle_ms
            self.mute(now, request.connection, throttle_ms)

    def mute(self, now: Now, connection: Connection, throttle_ms: int) -> None:
        """Has nothing read from the connection for so long, counted from its answer."""
        until = now.after_ms(throttle_ms)
        if connection.is_closed or self.quotas.is_exempt(connection):
            return
        if until > connection.muted_until:
            connection.muted_until = until
            self._muted[connection] = None
            self._effects.append(Mute(connection, until))

    def _unmute(self, now: Now) -> None:
        """The quotas have changed: the next request of each client is measured with the new ones."""
        muted, self._muted = self._muted, {}
        for connection in muted:
            if connection.muted_until > now.mono:
                connection.muted_until = now.mono
                self._effects.append(Mute(connection, now.mono))


class QueuedAnswers:
    """Limits on the bytes of answers that wait for the answer to an earlier request of their connection.

    A client may send a hundred requests behind a long poll, and each answer may have many megabytes. While
    too many bytes of a connection wait, the node reads nothing from it (`Connection.is_full`). When too many
    bytes of all connections wait, the node closes the connection with the most.
    """

    __slots__ = ("_connections", "_reports", "total_bytes")

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._connections: dict[Connection, None] = {}  # that have any
        self.total_bytes = 0

    def add(self, pending: Pending) -> None:
        """Its answer is known and cannot leave yet. What lies in files takes no memory."""
        assert pending.parts is not None
        size = total_size(part for part in pending.parts if type(part) is not Span)
        connection = pending.connection
        pending.queued_bytes = size
        connection.queued_bytes += size
        self._connections[connection] = None
        self.total_bytes += size
        if self.total_bytes > QUEUED_ANSWER_BYTES_MAX:
            self._close_the_largest()

    def leaves(self, pending: Pending) -> None:
        connection = pending.connection
        connection.queued_bytes -= pending.queued_bytes
        self.total_bytes -= pending.queued_bytes
        pending.queued_bytes = 0
        if not connection.queued_bytes:
            self._connections.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        """It is gone, or will be in a moment."""
        for pending in connection.pending:
            if pending.queued_bytes:
                self.leaves(pending)
                pending.parts = None

    def _close_the_largest(self) -> None:
        largest = max(self._connections, key=lambda connection: connection.queued_bytes)
        size = largest.queued_bytes
        self.forget(largest)
        largest.is_closed = True  # what it is still owed is owed to nobody
        self._reports.close(
            largest,
            f"{size} bytes of answers wait behind an unanswered request, more than on any other connection; "
            f"all connections together have more than the limit of {QUEUED_ANSWER_BYTES_MAX} bytes",
        )
