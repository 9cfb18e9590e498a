# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled network core of a node's listeners, for Linux: epoll, receive, framing and send.

It runs in the event loop's own thread: the loop calls `turn` when the core's epoll descriptor is readable. A
turn receives from every connection that has something, hands whole frames to the node where they lie, in the
receive buffer that all connections share, and sends the small answers of its batch together. A batch shares
one reading of the clock, so it is short; a turn is, too, so that timers, jobs and peers have theirs.

`CoreTransport` is what asyncio's transport is to a `Channel`. All that is not usual is the channel's own
code: frames in pieces, wrong ones, files, memory, holds. So both connections do the same, byte by byte. Of a
TLS listener it is the transport of a `TlsTransport`, which decrypts for the channel.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint32_t

import os

from headrace.server import gathered_answers

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <string.h>
    #include <time.h>
    #include <unistd.h>
    static inline long long monotonic_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    static inline void set_errno(int number) { errno = number; }
    static inline ssize_t send_pieces(int fd, struct iovec *pieces, size_t count) {
        struct msghdr message;
        memset(&message, 0, sizeof message);
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    """
    ctypedef union epoll_data_t:
        void *ptr
    ctypedef struct epoll_event "struct epoll_event":
        uint32_t events
        epoll_data_t data
    ctypedef struct iovec "struct iovec":
        void *iov_base
        size_t iov_len
    const uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP
    const int EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, EPOLL_CLOEXEC, MSG_DONTWAIT, MSG_NOSIGNAL
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event *)
    int epoll_wait(int, epoll_event *, int, int)
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)
    ssize_t send_pieces(int, iovec *, size_t)
    int close_descriptor "close"(int)
    void set_errno(int)
    int64_t monotonic_ns()

cdef enum:
    # Connections that one turn looks at; the kernel names the others in the next one.
    EVENTS = 256
    # Pieces of answers that one system call takes.
    PIECES = 64
    # After so long the other connections have their turn; the clock is read every few frames.
    CONNECTION_NS = 2_000_000
    FRAMES_BETWEEN_CLOCKS = 16
    # After so long the loop has its turn.
    TURN_NS = 4_000_000
    # So many reads that fill their buffer may follow each other.
    READS = 32
    # Larger answers do not wait for others.
    SMALL_BYTES = 16 * 1024
    # API key, version and correlation id: what every request begins with.
    FRAME_BYTES_MIN = 8
    # Why a connection is not read from: as in `outbox.py`.
    FULL = 4
    TURN = 32

cdef object _watch = None


def watch_answers(watch):
    """Tests watch the answers that do not pass `Channel.send`: called with the channel and the parts."""
    global _watch
    _watch = watch


cdef inline int32_t size_at(const char *at) noexcept:
    cdef const unsigned char *bytes = <const unsigned char *> at
    return <int32_t> (
        (<uint32_t> bytes[0] << 24) | (<uint32_t> bytes[1] << 16) | (<uint32_t> bytes[2] << 8) | bytes[3]
    )


cdef class CoreTransport:
    """One connection's socket. What waits to be sent is one queue, so that answers stay in order."""

    cdef Core _core
    cdef object _channel  # or what decrypts for it
    cdef object _connection, _handle  # None: its bytes are no frames, they are encrypted
    cdef object _socket
    cdef int _descriptor
    cdef uint32_t _watched  # the events that the kernel was asked for; 0: not even registered
    cdef bint _is_paused  # by the channel, as are the limits below
    cdef bint _is_closing  # nothing is read or taken any more
    cdef bint _is_lost  # the channel was told, or will be in the loop's next turn
    cdef bint _is_gathered  # it is among those that the core sends at the end of the batch
    cdef bint _is_blocked  # the socket is full: the kernel says when it takes more
    cdef bint _is_over  # the high limit, and the channel knows
    cdef Py_ssize_t _high, _low
    cdef list _queue
    cdef Py_ssize_t _first  # the piece of the queue that is sent next
    cdef Py_ssize_t _sent  # of that piece
    cdef Py_ssize_t _unsent  # of all

    def __cinit__(self, Core core, socket, channel):
        self._core = core
        self._channel = channel
        if not channel.decrypts:
            self._connection = channel.connection
            self._handle = channel._handle
        self._socket = socket
        self._descriptor = socket.fileno()
        self._high, self._low = 64 * 1024, 16 * 1024
        self._queue = []

    # --- what a channel asks of its transport -----------------------------------------------------------

    @property
    def gathered(self):
        return self._core

    def get_extra_info(self, name, default=None):
        if name == "socket":
            return self._socket
        if name == "peername":
            try:
                return self._socket.getpeername()
            except OSError:
                return default
        return default

    def set_write_buffer_limits(self, high=None, low=None):
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self):
        return self._unsent

    def is_closing(self):
        return self._is_closing

    def pause_reading(self):
        self._is_paused = True
        self._watch()

    def resume_reading(self):
        self._is_paused = False
        self._watch()

    def write(self, data):
        """Now, as far as the socket takes it; the rest is kept as it is, without a copy."""
        if not self._is_closing:
            self._put(data)
            self._send()

    def gather(self, bytes data):
        """The same at the end of the batch."""
        if not self._is_closing:
            self._gather(data)

    def send_gathered(self):
        """What was gathered, now."""
        if self._is_gathered:
            self._send()

    def writelines(self, parts):
        if not self._is_closing:
            for part in parts:
                self._put(part)
            self._send()

    def close(self):
        """When what waits has been sent."""
        if not self._is_closing:
            self._is_closing = True
            self._send()
            self._watch()
            if not self._unsent:
                self._lose(None)

    def abort(self):
        self._lose(None)

    # --- sending ----------------------------------------------------------------------------------------

    cdef int _put(self, data) except -1:
        cdef Py_ssize_t size = len(data)
        if size:
            self._queue.append(data)
            self._unsent += size
        return 0

    cdef int _gather(self, bytes data) except -1:
        """To be sent at the end of the batch."""
        self._queue.append(data)
        self._unsent += PyBytes_GET_SIZE(data)
        if self._unsent > self._high:
            return self._send()
        if not self._is_gathered and not self._is_blocked:
            self._is_gathered = True
            self._core._gather(self)
        return 0

    cdef int _send(self) except -1:
        """As much as the socket takes."""
        self._is_gathered = False  # the core's list names it until its next `send`
        if not self._is_blocked:
            self._drain()
        if self._unsent > self._high and not self._is_over and not self._is_lost:
            self._is_over = True
            self._channel.pause_writing()
        return 0

    cdef int _drain(self) except -1:
        cdef Py_ssize_t sent
        while self._unsent:
            if self._first + 1 == len(self._queue) and type(self._queue[self._first]) is bytes:
                data = <bytes> self._queue[self._first]
                sent = send(
                    self._descriptor,
                    PyBytes_AS_STRING(data) + self._sent,
                    PyBytes_GET_SIZE(data) - self._sent,
                    MSG_DONTWAIT | MSG_NOSIGNAL,
                )
            else:
                sent = self._send_some()
            if sent < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    self._is_blocked = True
                    self._watch()
                else:
                    self._fail(errno)
                return 0
            self._advance(sent)
        return 0

    cdef Py_ssize_t _send_some(self) except -2:
        """As many pieces as one call takes; how many bytes left, or -1 with the error in errno."""
        cdef iovec pieces[PIECES]
        cdef Py_buffer buffers[PIECES]
        cdef Py_ssize_t count = 0, sent = 0, i
        cdef int error = 0
        cdef Py_ssize_t many = min(len(self._queue) - self._first, PIECES)
        try:
            for i in range(many):
                PyObject_GetBuffer(self._queue[self._first + i], &buffers[i], PyBUF_SIMPLE)
                count += 1
                pieces[i].iov_base = buffers[i].buf
                pieces[i].iov_len = buffers[i].len
            pieces[0].iov_base = <char *> pieces[0].iov_base + self._sent
            pieces[0].iov_len -= self._sent
            sent = send_pieces(self._descriptor, pieces, count)
            error = errno
        finally:
            for i in range(count):
                PyBuffer_Release(&buffers[i])
        set_errno(error)
        return sent

    cdef int _advance(self, Py_ssize_t sent) except -1:
        """So many bytes more have left."""
        cdef Py_ssize_t left
        self._unsent -= sent
        if not self._unsent:
            self._queue.clear()
            self._first = self._sent = 0
            return 0
        while sent:
            left = len(self._queue[self._first]) - self._sent
            if sent < left:
                self._sent += sent
                return 0
            sent -= left
            self._queue[self._first] = None
            self._first += 1
            self._sent = 0
        if self._first > PIECES:
            del self._queue[: self._first]
            self._first = 0
        return 0

    cdef int _writable(self) except -1:
        """The socket takes more."""
        self._is_blocked = False
        self._drain()
        if self._is_lost:
            return 0
        self._watch()
        if self._is_over and self._unsent <= self._low:
            self._is_over = False
            self._channel.resume_writing()
        if self._is_closing and not self._unsent:
            self._lose(None)
        return 0

    # --- its registration, and its end ------------------------------------------------------------------

    cdef int _watch(self) except -1:
        """Tell the kernel what we wait for. Of a connection that waits for nothing it must not speak: it
        would report that the other side has gone over and over.
        """
        cdef epoll_event event
        cdef uint32_t wanted = 0
        cdef int change
        if not self._is_lost:
            if not self._is_paused and not self._is_closing:
                wanted = EPOLLIN
            if self._is_blocked:
                wanted |= EPOLLOUT
        if wanted == self._watched:
            return 0
        if not wanted:
            change = EPOLL_CTL_DEL
        elif self._watched:
            change = EPOLL_CTL_MOD
        else:
            change = EPOLL_CTL_ADD
        event.events = wanted
        event.data.ptr = <void *> self
        self._watched = wanted
        if epoll_ctl(self._core._epoll, change, self._descriptor, &event) < 0 and wanted:
            self._watched = 0
            self._fail(errno)  # the kernel has no memory for it, or fs.epoll.max_user_watches is reached
        return 0

    cdef int _fail(self, int error) except -1:
        return self._lose(OSError(error, os.strerror(error)))

    cdef int _lose(self, error) except -1:
        """Nothing moves from now on; the channel hears of it in the loop's next turn, as with asyncio."""
        if self._is_lost:
            return 0
        self._is_lost = self._is_closing = True
        self._is_gathered = self._is_blocked = False
        self._queue.clear()
        self._first = self._sent = self._unsent = 0
        self._watch()
        self._core._loop.call_soon(self._end, error)
        return 0

    def _end(self, error):
        channel, self._channel, self._handle = self._channel, None, None
        try:
            channel.connection_lost(error)
        finally:
            self._socket.close()
            self._core._leave(self)


cdef class Core:
    """All connections of plaintext listeners. To channels it is also where answers are gathered."""

    cdef int _epoll
    cdef object _loop, _connections, _driver, _now, _mono, _read_clock, _take_effects, _shared_view
    cdef char *_shared  # the receive buffer of all connections, of which _shared_view is the view
    cdef Py_ssize_t _shared_bytes
    cdef set _transports
    cdef list _left  # since the last turn: the kernel's list of this turn may still name them
    cdef bint _is_in_turn, _is_due
    cdef Py_ssize_t _bytes_in, _bytes_out  # not yet counted
    cdef int64_t _batch_began_ns
    cdef int64_t _batch_ns  # so long a batch takes at most, and what it answers waits
    cdef Py_ssize_t _answers_max, _answers_bytes_max
    cdef Py_ssize_t _gathered_bytes
    cdef Py_ssize_t _frame_bytes_max
    cdef list _gathered  # whose answers leave at the end of the batch; some have left already
    cdef readonly object last  # None: no answer takes another way, since a lone one need not wait here

    def __cinit__(self, loop, connections, driver):
        cdef Py_buffer buffer
        self._epoll = epoll_create1(EPOLL_CLOEXEC)
        if self._epoll < 0:
            number = errno
            raise OSError(number, os.strerror(number))
        self._loop = loop
        self._connections = connections
        self._driver = driver
        self._read_clock = connections.clock.now
        self._take_effects = driver.node.take_effects
        self._shared_view = connections.shared_view
        PyObject_GetBuffer(self._shared_view, &buffer, PyBUF_WRITABLE)
        self._shared, self._shared_bytes = <char *> buffer.buf, buffer.len
        PyBuffer_Release(&buffer)  # the view itself keeps the memory where it is
        self._batch_ns = int(gathered_answers.WAIT_S_MAX * 1e9)
        self._answers_max, self._answers_bytes_max = gathered_answers.ANSWERS_MAX, gathered_answers.BYTES_MAX
        self._transports = set()
        self._left = []
        self._gathered = []
        loop.add_reader(self._epoll, self.turn)

    def __dealloc__(self):
        if self._epoll >= 0:
            close_descriptor(self._epoll)

    def stop(self):
        """After its connections have ended."""
        if self._epoll >= 0:
            self._loop.remove_reader(self._epoll)
            close_descriptor(self._epoll)
            self._epoll = -1

    def adopt(self, socket, channel):
        """A connection that was accepted is ours, with its socket."""
        cdef CoreTransport transport = CoreTransport(self, socket, channel)
        self._transports.add(transport)
        try:
            channel.connection_made(transport)
            transport._watch()
        except Exception as error:  # a bug of ours
            self._driver.failed("core", error)
            transport._lose(error)
        return transport

    cdef int _leave(self, CoreTransport transport) except -1:
        self._transports.discard(transport)
        self._left.append(transport)
        return 0

    # --- answers that wait for the end of the batch: what `GatheredAnswers` is to other connections -----

    @property
    def waiting(self):
        """The channels of those that have answers waiting."""
        return {(<CoreTransport> one)._channel for one in self._gathered if (<CoreTransport> one)._is_gathered}

    def add(self, channel, bytes data):
        cdef CoreTransport transport = channel.transport
        if not transport._is_closing:
            transport._gather(data)

    def send_of(self, channel):
        cdef CoreTransport transport = channel.transport
        if transport._is_gathered:
            transport._send()

    def forget(self, channel):
        (<CoreTransport?> channel.transport)._is_gathered = False

    def send(self):
        """All of them, now."""
        self._send_all()

    cdef int _send_all(self) except -1:
        cdef CoreTransport transport
        cdef Py_ssize_t i = 0
        while i < len(self._gathered):  # not a loop over it: sending may have another connection closed
            transport = <CoreTransport> self._gathered[i]
            if transport._is_gathered:
                transport._send()
            i += 1
        self._gathered.clear()
        self._gathered_bytes = 0
        return 0

    cdef int _gather(self, CoreTransport transport) except -1:
        self._gathered.append(transport)
        self._gathered_bytes += transport._unsent
        if len(self._gathered) >= self._answers_max or self._gathered_bytes >= self._answers_bytes_max:
            self._send_all()
        elif not self._is_in_turn and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send_due)
        return 0

    def _send_due(self):
        self._is_due = False
        self._send_all()

    # --- the turn ---------------------------------------------------------------------------------------

    def turn(self):
        cdef epoll_event events[EVENTS]
        cdef CoreTransport transport
        cdef int i, count
        cdef int64_t began_ns, now_ns
        self._left.clear()
        count = epoll_wait(self._epoll, events, EVENTS, 0)
        if count <= 0:
            return
        self._is_in_turn = True
        try:
            self._begin_batch()
            began_ns = self._batch_began_ns
            for i in range(count):
                transport = <CoreTransport> events[i].data.ptr
                try:
                    self._look_at(transport, events[i].events)
                except Exception as error:  # a bug of ours: one connection ends, the others go on
                    self._driver.failed("core", error)
                    transport._lose(error)
                now_ns = monotonic_ns()
                if now_ns - self._batch_began_ns >= self._batch_ns:
                    self._end_batch()
                    if now_ns - began_ns >= TURN_NS:
                        break  # the kernel tells of the others again
                    self._begin_batch()
        finally:
            self._is_in_turn = False
            self._end_batch()

    cdef int _begin_batch(self) except -1:
        self._now = self._read_clock()
        self._mono = self._now.mono
        self._frame_bytes_max = self._connections.limits.frame_bytes_max
        self._batch_began_ns = monotonic_ns()
        return 0

    cdef int _end_batch(self) except -1:
        if self._bytes_in:
            self._connections.bytes_in += self._bytes_in
            self._connections.bytes_out += self._bytes_out
            self._bytes_in = self._bytes_out = 0
        if self._gathered:
            self._send_all()
        self._driver.rearm()
        return 0

    cdef int _look_at(self, CoreTransport transport, uint32_t events) except -1:
        if transport._is_blocked and events & (EPOLLOUT | EPOLLERR | EPOLLHUP):
            transport._writable()
        if events & (EPOLLIN | EPOLLERR | EPOLLHUP):
            if not transport._is_paused and not transport._is_closing:
                self._receive(transport)
        return 0

    cdef int _receive(self, CoreTransport transport) except -1:
        cdef Py_buffer buffer
        cdef Py_ssize_t count, room
        cdef int reads, error
        channel = transport._channel
        for reads in range(READS):
            if transport._handle is not None and channel._buffer is None:
                room = self._shared_bytes
                count = recv(transport._descriptor, self._shared, room, MSG_DONTWAIT)
                error = errno
                if count > 0:
                    self._bytes_in += count
                    self._serve(transport, count)
            else:
                view = channel.get_buffer(-1)
                PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
                room = buffer.len
                count = recv(transport._descriptor, buffer.buf, room, MSG_DONTWAIT)
                error = errno
                PyBuffer_Release(&buffer)
                if count > 0:
                    channel.buffer_updated(count)
                    if transport._handle is not None:
                        channel._turn_began_at = 0.0  # here `_lasts_long` sees to the others' turn
            if count == 0:
                channel.eof_received()
                transport.close()
                return 0
            if count < 0:
                if error != EAGAIN and error != EINTR:
                    transport._fail(error)
                return 0
            if count < room or transport._is_paused or transport._is_closing or self._lasts_long():
                return 0
        return 0

    cdef bint _lasts_long(self) noexcept:
        return monotonic_ns() - self._batch_began_ns > CONNECTION_NS

    cdef int _serve(self, CoreTransport transport, Py_ssize_t end) except -1:
        """Hand the whole frames at the beginning of the shared buffer to the node: the usual case. The rest
        is the channel's.
        """
        cdef const char *bytes = self._shared
        cdef Py_ssize_t start = 0, size, count = 0
        cdef int64_t began_ns = monotonic_ns()
        channel, connection, handle = transport._channel, transport._connection, transport._handle
        view, now = self._shared_view, self._now
        channel.active_at = self._mono
        while end - start >= 4:
            size = size_at(bytes + start)
            if size < FRAME_BYTES_MIN or size > self._frame_bytes_max or size > end - start - 4:
                break
            try:
                parts = handle(now, connection, view[start + 4 : start + 4 + size])
            except Exception as error:
                self._driver.failed("handle", error)
                self._driver.soon(self._driver.wake)  # what the call had begun is owed to others
                channel.close("internal error")
                return 0
            start += 4 + size
            if parts is not None:
                self._answer(transport, parts)
            elif connection.is_full:
                channel.hold(FULL)
            effects = self._take_effects()
            if effects:
                self._driver.carry_out(effects)
            if transport._is_closing:
                return 0
            if transport._is_paused:
                break
            count += 1
            if count % FRAMES_BETWEEN_CLOCKS == 0 and start < end and self._lasts_long():
                channel.hold(TURN)
                self._driver.soon(channel._take_turn)
                break
        meters = connection.meters
        if meters is not None:  # its client has quotas; the rest of the frames counts by itself
            meters.spent((monotonic_ns() - began_ns) / 1e9, now)
        if start < end:
            if transport._is_paused:
                channel.keep_rest(view, start, end)
            else:
                channel._frames(view, start, end)
        return 0

    cdef int _answer(self, CoreTransport transport, parts) except -1:
        """A whole frame, after those before it. Nothing holds the connection, since it is read from."""
        cdef Py_ssize_t size = 0
        if type(parts) is not list:
            transport._channel.send(parts)
            return 0
        for part in <list> parts:
            if type(part) is not bytes:
                transport._channel.send(parts)
                return 0
            size += PyBytes_GET_SIZE(part)
        if size > SMALL_BYTES:
            transport._channel.send(parts)
            return 0
        if _watch is not None:
            _watch(transport._channel, parts)
        self._bytes_out += size
        transport._gather(<bytes> parts[0] if len(<list> parts) == 1 else b"".join(parts))
        return 0
