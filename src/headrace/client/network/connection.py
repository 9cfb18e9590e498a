"""Protocol of one connection: framing, correlation, versions, TLS and login; requests and bytes in, bytes
and answers out.

    new --begin--> negotiating --ApiVersions answered--> logging in --SASL is over--> ready
                                                              ^                         |
                                                              +--the session's end is near (KIP-368)

TLS wraps all of it; the login is optional. In any state an error is raised if the peer violates the protocol
(`BadResponse`), cannot be trusted or refuses the login (`TlsFailed`, `AuthenticationFailed`), closes the
stream (`ConnectionLost`) or does not answer before a deadline (`TimedOut`); after that the connection cannot
be used. A broker answers in the order of the requests, so answers are matched to a queue, and the correlation
id must agree. A length above the limit is refused before any byte is stored. If the peer is not a Kafka
broker, the error says what it is, if that can be recognised.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.errors import (
    BadResponse,
    ConnectionLost,
    InvalidInput,
    TimedOut,
    UnsupportedByBroker,
    describe_peer,
)
from headrace.client.security.sasl import Login, Token, without_sasl
from headrace.protocol.api import APIS, request_codec, response_codec
from headrace.protocol.errors import ErrorCode, MalformedMessage, UnencodableMessage
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.protocol.notation import Request
from headrace.protocol.parts import Part

if TYPE_CHECKING:
    from headrace.client.settings.security import Security

# The largest answer that is read. A fetch asks for 50 MiB, and one batch may exceed what was asked for
# (KIP-74).
RESPONSE_BYTES_MAX = 128 * 1024 * 1024

# The largest before we know whom we talk to.
STRANGERS_BYTES_MAX = 512 * 1024

# Small answers share one buffer and are copied out of it; a longer one is read straight into a buffer of
# its own.
SHARED_BUFFER_BYTES = 64 * 1024

# A session is renewed when this much of it is over, in thousandths and drawn each time, as Java does: a
# broker's clients must not all come at once.
RENEW_AFTER_MIN, RENEW_AFTER_SPREAD = 850, 100
RENEWAL_S = 10.0  # how long that may take, once all that was asked before is answered

AT_ONCE = Instant(0.0)

PERHAPS_TLS = (
    "If it is a TLS listener, set security.protocol to SSL or SASL_SSL; else use a plaintext listener's port."
)
PERHAPS_PLAINTEXT = (
    "If it is a plaintext listener, set security.protocol to PLAINTEXT or SASL_PLAINTEXT; else use a TLS "
    "listener's port."
)
PERHAPS_SASL = (
    "If it is a SASL listener, set security.protocol to SASL_PLAINTEXT or SASL_SSL, and sasl.mechanism."
)

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
    is_ours: bool  # the connection's own question, of which nobody outside hears


class Connection:
    """Correlation, version negotiation, login and framing of one connection.

    Invariant: `_unanswered` is in the order the requests went out.
    """

    def __init__(
        self,
        *,
        client_id: str,
        software_version: str,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        security: "Security | None" = None,
        host: str = "",  # the broker's name, which its certificate must have
        rng: Randomness | None = None,  # nobody may guess them; needed to log in
    ) -> None:
        self.client_id = client_id
        self.software_version = software_version
        self.response_bytes_max = response_bytes_max
        self.is_ready = False  # whether requests may be sent now; false again while a session is renewed
        self.wants_token = False  # whether a login waits for `give_token`
        self.versions: dict[
            int, tuple[int, int]
        ] = {}  # API key → lowest and highest version the broker speaks
        self._next_correlation_id = 0
        self._unanswered: deque[_Unanswered] = deque()
        self._output: list[Part] = []
        self._shared = bytearray(SHARED_BUFFER_BYTES)
        self._start = 0  # of what is not yet understood in _shared
        self._end = 0
        self._own: bytearray | None = None  # the frame that is too long for _shared
        self._own_filled = 0
        self._has_heard = False
        self._is_served = False  # whether a request of the users was ever answered
        self._is_known = False  # whether the broker was ready for us once
        self._tls = security.tls.stream(host) if security is not None and security.tls is not None else None
        self._mechanism = security.mechanism if security is not None else None
        assert self._mechanism is None or rng is not None
        self._rng = rng
        self._login: Login | None = None
        self._login_deadline = NEVER
        self._granted_s = 0.0  # a session whose time begins when we are told what time it is
        self._session_end = NEVER
        self._renew_at = NEVER

    # Requests out

    def begin(self, deadline: Instant) -> None:
        """Asks for the broker's versions; comes before everything else."""
        assert not self._has_heard
        assert not self._unanswered
        if self._tls is not None:
            self._tls.begin()
        self._ask_versions(APIS[ApiVersionsRequest.KEY].last, deadline)

    def _ask_versions(self, version: int, deadline: Instant) -> None:
        question = ApiVersionsRequest()
        if version >= 3:
            question.client_software_name = "headrace"
            question.client_software_version = self.software_version
        self._enqueue(question, version, deadline, expects_answer=True, is_ours=True)

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
        """Queues a request and returns its correlation id; only while the connection is ready."""
        assert self.is_ready, "the connection is not ready"
        if isinstance(question, ByVersion):
            version = self.version_for(question.kind, version_max)
            request = question.make(version)
        else:
            version = self.version_for(type(question), version_max)
            request = question
        return self._enqueue(request, version, deadline, expects_answer=expects_answer)

    def _enqueue(
        self,
        request: Request,
        version: int,
        deadline: Instant,
        *,
        expects_answer: bool,
        is_ours: bool = False,
    ) -> int:
        correlation_id = self._next_correlation_id
        try:
            body = request_codec(request.KEY, version).encode_parts(request)
            self._output += request_frame(request.KEY, version, correlation_id, self.client_id, body)
        except UnencodableMessage as error:
            raise InvalidInput(f"the request cannot be encoded: {error}") from error
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        if expects_answer:
            self._unanswered.append(_Unanswered(correlation_id, request.KEY, version, deadline, is_ours))
        return correlation_id

    def take_output(self) -> list[Part]:
        """What has to be written to the socket, in order; asking again gives only what is new. There may be
        some after every call: the connection has things of its own to say.
        """
        output, self._output = self._output, []
        return output if self._tls is None else self._tls.sealed(output)

    def end(self) -> None:
        """Says goodbye, if TLS has a word for it: in what `take_output` gives next."""
        if self._tls is not None:
            self._tls.end()

    # Bytes in

    def room(self) -> memoryview:
        """Where the next bytes from the socket go; at least one byte long."""
        return self._room() if self._tls is None else self._tls.room()

    def _room(self) -> memoryview:
        """Where the next bytes of frames go."""
        if self._own is not None:
            return memoryview(self._own)[self._own_filled :]
        return memoryview(self._shared)[self._end :]

    def received(self, count: int) -> list[Answer]:
        """`count` bytes were put into `room()`; 0 is the end of the stream."""
        if count == 0:
            raise self.lost("the broker closed the connection")
        answers: list[Answer] = []
        if self._tls is None:
            self._read(count, answers)
            return answers
        self._tls.received(count)
        while count := self._tls.read_into(self._room()):
            self._read(count, answers)
        return answers

    def _read(self, count: int, answers: list[Answer]) -> None:
        if self._own is None:
            self._end += count
            self._read_shared(answers)
        else:
            self._own_filled += count
            if self._own_filled == len(self._own):
                frame, self._own = memoryview(self._own), None
                self._answered(frame, answers)

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
        most = self.response_bytes_max
        if not self._is_known:
            most = min(most, STRANGERS_BYTES_MAX)
        if 4 <= size <= most:
            return int(size)
        if not self._has_heard and (peer := describe_peer(bytes(self._shared[self._start : self._end]))):
            stranger = BadResponse(f"the peer answered with {peer}, not with Kafka's protocol")
            if peer == "TLS":
                stranger.advice = PERHAPS_TLS
            raise stranger
        error = BadResponse(f"the peer sent an answer of {size} bytes; this client reads at most {most}")
        if self._is_known and size > most:
            error.advice = "This client cannot read a batch that large; lower the topic's max.message.bytes."
        raise error

    def _answered(self, frame: memoryview, answers: list[Answer]) -> None:
        if not self._unanswered:
            raise BadResponse("the peer sent an answer without a request")
        asked = self._unanswered[0]
        (correlation_id,) = _SIZE.unpack_from(frame)
        if correlation_id != asked.correlation_id:
            raise BadResponse(
                f"the peer answered request {correlation_id} instead of request {asked.correlation_id}"
            )
        self._unanswered.popleft()
        self._has_heard = True
        if not asked.is_ours:
            self._is_served = True
            answers.append(Answer(correlation_id, _decoded(asked, asked.version, frame), asked.version))
        elif self._login is None:
            self._negotiated(asked, frame)
        else:
            self._continue_login(self._login, asked, frame)

    def _negotiated(self, asked: _Unanswered, frame: memoryview) -> None:
        refused = len(frame) >= 6 and _ERROR_CODE.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION
        # a broker that does not know our version answers in version 0, whatever was asked (KIP-511)
        answer = _decoded(asked, 0 if refused else asked.version, frame)
        if refused:
            offered = {api.api_key: api.max_version for api in answer.api_keys}
            again = min(offered.get(ApiVersionsRequest.KEY, 0), asked.version - 1)
            if again < 0:
                raise BadResponse("the peer rejects every version of ApiVersions")
            self._ask_versions(again, asked.deadline)
            return
        if answer.error_code:
            raise BadResponse(f"the peer answered ApiVersions with error {answer.error_code}")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        if self._mechanism is None:
            self.is_ready = self._is_known = True
        elif self._mechanism.needs_token:
            self.wants_token = True
            self._login_deadline = asked.deadline
        else:
            self._begin_login(None, asked.deadline)

    def lost(self, reason: str) -> ConnectionLost:
        """The error for a stream that has ended; one that ends early has a likely cause."""
        if self._tls is not None and not self._tls.is_open:
            lost = ConnectionLost(f"{reason} in the middle of the TLS handshake; is it a plaintext listener?")
            lost.advice = PERHAPS_PLAINTEXT
        elif not self._has_heard and self._tls is None:
            lost = ConnectionLost(f"{reason} without an answer; is it a TLS listener?")
            lost.advice = PERHAPS_TLS
        elif self.is_ready and not self._is_served and self._mechanism is None and self._unanswered:
            lost = ConnectionLost(f"{reason} at our first request; is it a SASL listener?")
            lost.advice = PERHAPS_SASL
        elif self._login is not None and not self._is_known:
            lost = ConnectionLost(f"{reason} during the login")
            lost.advice = "Check sasl.mechanism, user and password; the broker's log has details."
        else:
            lost = ConnectionLost(reason)
        return lost

    # Who we are

    def give_token(self, now: Instant, token: Token) -> None:
        """What `wants_token` waited for."""
        assert self.wants_token
        self.wants_token = False
        self._begin_login(token, self._renewal_deadline(now) if self._is_known else self._login_deadline)

    def _begin_login(self, token: Token | None, deadline: Instant) -> None:
        """From here on the broker takes nothing but the login; what is on its way is still answered."""
        assert self._mechanism is not None
        assert self._rng is not None
        self.is_ready = False
        self._login = Login(self._mechanism, self._rng, token)
        self._ask_login(self._login.begin(), deadline)

    def _ask_login(self, request: Request, deadline: Instant) -> None:
        offered = self.versions.get(SaslHandshakeRequest.KEY)
        if offered is None or offered[1] < 1:
            # before version 1 the messages of the mechanism had no frames of Kafka's own (KIP-152)
            raise without_sasl()
        version = self.version_for(type(request))
        self._enqueue(request, version, deadline, expects_answer=True, is_ours=True)

    def _continue_login(self, login: Login, asked: _Unanswered, frame: memoryview) -> None:
        answer = _decoded(asked, asked.version, frame)
        request: SaslAuthenticateRequest | None
        if asked.api_key == SaslHandshakeRequest.KEY:
            if self._is_known and answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
                # Brokers renew a session once a second at the most, and one that ends with its token may be
                # shorter. A new connection logs in again, or is told that the token has expired.
                raise ConnectionLost("the broker does not renew the session so soon again")
            request = login.accepted(answer)
        else:
            request = login.continued(answer)
        if request is not None:
            self._ask_login(request, asked.deadline)
            return
        self.is_ready = self._is_known = True
        self._granted_s = login.session_lifetime_ms / 1000

    # Time

    def deadline(self) -> Instant:
        """When `check_time` wants to be called at the latest."""
        if self._granted_s > 0 or (self._tls is not None and self._tls.is_closed):
            return AT_ONCE
        answer_due = min((asked.deadline for asked in self._unanswered), default=NEVER)
        token_due = self._login_deadline if self.wants_token else NEVER
        return min(answer_due, token_due, self._renew_at)

    def check_time(self, now: Instant) -> None:
        """Raises TimedOut when an answer is overdue: those behind it cannot come either. Begins to renew the
        session when it is time for that.
        """
        if self._tls is not None and self._tls.is_closed:
            raise self.lost("the broker closed the connection")
        for asked in self._unanswered:
            if asked.deadline <= now:
                raise self._overdue(asked)
        if self.wants_token and self._login_deadline <= now:
            raise TimedOut("the token provider returned no OAuth token in time")
        if self._granted_s > 0:
            assert self._rng is not None
            share = (RENEW_AFTER_MIN + self._rng.randrange(RENEW_AFTER_SPREAD)) / 1000
            self._session_end = Instant(now + self._granted_s)
            self._renew_at = Instant(now + self._granted_s * share)
            self._granted_s = 0.0
        if self._renew_at <= now:
            self._renew_at = NEVER
            self._renew(now)

    def _renew(self, now: Instant) -> None:
        assert self._mechanism is not None
        if self._mechanism.needs_token:
            # until it comes we go on as we are
            self.wants_token = True
            self._login_deadline = max(self._session_end, Instant(now + RENEWAL_S))
        else:
            self._begin_login(None, self._renewal_deadline(now))

    def _renewal_deadline(self, now: Instant) -> Instant:
        # a broker takes one request after the other, and those on their way may wait for long
        return Instant(max([now, *(asked.deadline for asked in self._unanswered)]) + RENEWAL_S)

    def _overdue(self, asked: _Unanswered) -> TimedOut:
        if self._tls is not None and not self._tls.is_open:
            late = TimedOut("the TLS handshake was not over in time; is it a TLS listener?")
            late.advice = PERHAPS_PLAINTEXT
            return late
        return TimedOut(f"no answer to {APIS[asked.api_key].name} in time")


def _decoded(asked: _Unanswered, version: int, frame: memoryview) -> Any:
    try:
        decoder = response_codec(asked.api_key, version)
        _, body_at = decode_response_header(frame, decoder.header_version)
        return decoder.decode(frame, body_at, False)  # nothing may be left over
    except MalformedMessage as error:
        name = APIS[asked.api_key].name
        raise BadResponse(f"the peer's answer to {name} version {version} cannot be read: {error}") from error
