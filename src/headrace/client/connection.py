"""One connection to one broker, as a value: requests in, bytes out; bytes in, answers out.

    new --begin--> negotiating --ApiVersions answered--> ready

From any state an error is raised when the peer breaks the rules (`BadResponse`), ends the stream
(`ConnectionLost`) or stays silent past a deadline (`TimedOut`); after that the connection is of no use. A
broker answers in the order it was asked, so answers are matched to a queue and the correlation id must
agree. No announced length is trusted: what is above the cap is refused before a byte of it is stored, and
what is no Kafka at all is named if we can tell.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from headrace.base.time import NEVER, Instant
from headrace.client.errors import BadResponse, ConnectionLost, InvalidInput, TimedOut, UnsupportedByBroker
from headrace.protocol.api import APIS, request_codec, response_codec
from headrace.protocol.errors import ErrorCode, MalformedMessage, UnencodableMessage
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.notation import Request
from headrace.protocol.parts import Part

# The largest answer that is read. A fetch asks for 50 MiB, and one batch may exceed what was asked for
# (KIP-74).
RESPONSE_BYTES_MAX = 128 * 1024 * 1024

# Small answers share one buffer and are copied out of it; a longer one is read straight into a buffer of
# its own.
SHARED_BUFFER_BYTES = 64 * 1024

_SIZE = Struct(">i")
_ERROR_CODE = Struct(">h")


class Answer(NamedTuple):
    correlation_id: int
    response: Any  # the Response that belongs to the request's type
    version: int


class ByVersion(NamedTuple):
    """A request that is said in other fields from some version on: made when the version is known."""

    kind: type[Request]
    make: Callable[[int], Request]


Question = Request | ByVersion


class _Unanswered(NamedTuple):
    correlation_id: int
    api_key: int
    version: int
    deadline: Instant


class Connection:
    """Correlation, version negotiation and framing of one connection.

    Invariant: `_unanswered` is in the order the requests went out.
    """

    def __init__(
        self, *, client_id: str, software_version: str, response_bytes_max: int = RESPONSE_BYTES_MAX
    ) -> None:
        self.client_id = client_id
        self.software_version = software_version
        self.response_bytes_max = response_bytes_max
        self.versions: dict[
            int, tuple[int, int]
        ] = {}  # API key → lowest and highest version the broker speaks
        self.is_ready = False
        self._next_correlation_id = 0
        self._unanswered: deque[_Unanswered] = deque()
        self._output: list[Part] = []
        self._shared = bytearray(SHARED_BUFFER_BYTES)
        self._start = 0  # of what is not yet understood in _shared
        self._end = 0
        self._own: bytearray | None = None  # the frame that is too long for _shared
        self._own_filled = 0
        self._has_heard = False

    # Requests out

    def begin(self, deadline: Instant) -> None:
        """Asks for the broker's versions; comes before everything else."""
        assert not self._has_heard
        assert not self._unanswered
        self._ask_versions(APIS[ApiVersionsRequest.KEY].last, deadline)

    def _ask_versions(self, version: int, deadline: Instant) -> None:
        question = ApiVersionsRequest()
        if version >= 3:
            question.client_software_name = "headrace"
            question.client_software_version = self.software_version
        self._enqueue(question, version, deadline, expects_answer=True)

    def version_for(self, request: type[Request], version_max: int | None = None) -> int:
        """The highest version that both sides speak; UnsupportedByBroker if there is none."""
        api = APIS[request.KEY]
        offered = self.versions.get(api.key)
        if offered is None:
            raise UnsupportedByBroker(api.name)
        version = min(api.last if version_max is None else min(version_max, api.last), offered[1])
        if version < max(offered[0], api.first):
            raise UnsupportedByBroker(api.name, offered)
        return version

    def send(
        self,
        question: Question,
        deadline: Instant,
        *,
        version_max: int | None = None,
        expects_answer: bool = True,
    ) -> int:
        """Queues a request and returns its correlation id; only once the connection is ready."""
        assert self.is_ready, "versions are not known yet"
        if isinstance(question, ByVersion):
            version = self.version_for(question.kind, version_max)
            request = question.make(version)
        else:
            version = self.version_for(type(question), version_max)
            request = question
        return self._enqueue(request, version, deadline, expects_answer=expects_answer)

    def _enqueue(self, request: Request, version: int, deadline: Instant, *, expects_answer: bool) -> int:
        correlation_id = self._next_correlation_id
        try:
            body = request_codec(request.KEY, version).encode_parts(request)
            self._output += request_frame(request.KEY, version, correlation_id, self.client_id, body)
        except UnencodableMessage as error:
            raise InvalidInput(f"this cannot be sent: {error}") from error
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        if expects_answer:
            self._unanswered.append(_Unanswered(correlation_id, request.KEY, version, deadline))
        return correlation_id

    def take_output(self) -> list[Part]:
        """What has to be written to the socket, in order; asking again gives only what is new."""
        output, self._output = self._output, []
        return output

    # Bytes in

    def room(self) -> memoryview:
        """Where the next bytes from the socket go; at least one byte long."""
        if self._own is not None:
            return memoryview(self._own)[self._own_filled :]
        return memoryview(self._shared)[self._end :]

    def received(self, count: int) -> list[Answer]:
        """`count` bytes were put into `room()`; 0 is the end of the stream."""
        if count == 0:
            raise self.lost("the broker closed the connection")
        answers: list[Answer] = []
        if self._own is None:
            self._end += count
            self._read_shared(answers)
        else:
            self._own_filled += count
            if self._own_filled == len(self._own):
                frame, self._own = memoryview(self._own), None
                self._answered(frame, answers)
        return answers

    def receive(self, data: bytes) -> list[Answer]:
        """The same for bytes that are at hand already."""
        answers: list[Answer] = []
        left = memoryview(data)
        while len(left):
            room = self.room()
            count = min(len(room), len(left))
            room[:count] = left[:count]
            left = left[count:]
            answers += self.received(count)
        return answers

    def _read_shared(self, answers: list[Answer]) -> None:
        while (available := self._end - self._start) >= 4:
            size = self._checked_size()
            body_at = self._start + 4
            if available < 4 + size:
                self._own = bytearray(size)
                self._own_filled = available - 4
                self._own[: self._own_filled] = memoryview(self._shared)[body_at : self._end]
                self._start = self._end
                break
            self._start = body_at + size
            # copied, since an answer's views must outlive the shared buffer
            self._answered(memoryview(bytes(memoryview(self._shared)[body_at : self._start])), answers)
        rest = self._shared[self._start : self._end]
        self._shared[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _checked_size(self) -> int:
        (size,) = _SIZE.unpack_from(self._shared, self._start)
        if 4 <= size <= self.response_bytes_max:
            return int(size)
        if not self._has_heard and (peer := describe_peer(bytes(self._shared[self._start : self._end]))):
            raise BadResponse(f"the peer answered with {peer}, not with Kafka's protocol")
        most = self.response_bytes_max
        error = BadResponse(f"the peer announced an answer of {size} bytes; {most} are the most we read")
        if self._has_heard and size > most:
            error.advice = (
                "A batch that large cannot be read by this client; lower the topic's max.message.bytes."
            )
        raise error

    def _answered(self, frame: memoryview, answers: list[Answer]) -> None:
        if not self._unanswered:
            raise BadResponse("the peer sent an answer that nothing asked for")
        asked = self._unanswered[0]
        (correlation_id,) = _SIZE.unpack_from(frame)
        if correlation_id != asked.correlation_id:
            raise BadResponse(
                f"the peer answered request {correlation_id} when {asked.correlation_id} was next"
            )
        self._unanswered.popleft()
        self._has_heard = True
        if self.is_ready:
            answers.append(Answer(correlation_id, _decoded(asked, asked.version, frame), asked.version))
        else:
            self._negotiated(asked, frame)

    def _negotiated(self, asked: _Unanswered, frame: memoryview) -> None:
        refused = len(frame) >= 6 and _ERROR_CODE.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION
        # a broker that does not know our version answers in version 0, whatever was asked (KIP-511)
        answer = _decoded(asked, 0 if refused else asked.version, frame)
        if refused:
            offered = {api.api_key: api.max_version for api in answer.api_keys}
            again = min(offered.get(ApiVersionsRequest.KEY, 0), asked.version - 1)
            if again < 0:
                raise BadResponse("the peer refuses every version of ApiVersions")
            self._ask_versions(again, asked.deadline)
            return
        if answer.error_code:
            raise BadResponse(f"the peer answered ApiVersions with error {answer.error_code}")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.is_ready = True

    def lost(self, reason: str) -> ConnectionLost:
        """The error for a stream that has ended; one without a single answer has a likely cause."""
        if self._has_heard:
            return ConnectionLost(reason)
        return ConnectionLost(f"{reason} without an answer; is it a TLS listener?")

    # Time

    def deadline(self) -> Instant:
        """When `check_time` wants to be called at the latest."""
        return min((asked.deadline for asked in self._unanswered), default=NEVER)

    def check_time(self, now: Instant) -> None:
        """Raises TimedOut when an answer is overdue: those behind it cannot come either."""
        for asked in self._unanswered:
            if asked.deadline <= now:
                raise TimedOut(f"no answer to {APIS[asked.api_key].name} in time")


def _decoded(asked: _Unanswered, version: int, frame: memoryview) -> Any:
    try:
        decoder = response_codec(asked.api_key, version)
        _, body_at = decode_response_header(frame, decoder.header_version)
        return decoder.decode(frame, body_at, False)  # nothing may be left over
    except MalformedMessage as error:
        name = APIS[asked.api_key].name
        raise BadResponse(f"the peer's answer to {name} version {version} cannot be read: {error}") from error


def describe_peer(first: bytes) -> str | None:
    """What a peer that is no Kafka broker seems to be, from the first bytes it sent."""
    if first[:1] in (b"\x15", b"\x16") and first[1:2] == b"\x03":
        return "TLS"
    if first[:4] in (b"HTTP", b"<htm", b"<!DO"):
        return "HTTP"
    return "SSH" if first[:4] == b"SSH-" else None
