"""The server's side of one HTTP/1.1 connection: bytes in, events out, bytes to send out.

    head --HttpHead--> judged --go_on()--> body --HttpRequest--> answered --respond()--> head, or over
                         |                                                                  ^
                         +--------------------------- respond() ----------------------------+

h11 parses. Before that a head is checked more strictly than h11 does, because a proxy in front may read the
same bytes in another way: lines end with CR LF, nothing is folded, and nothing that says where the request
ends is there twice (request smuggling). Pipelined requests are read one after the other. The body is read
only when the head was accepted, so a client that is refused cannot make us keep anything.
"""

import re
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

import h11

from headrace.machines.http.messages import (
    BAD_REQUEST,
    CONTENT_TOO_LARGE,
    HEAD_TOO_LARGE,
    URI_TOO_LONG,
    VERSION_NOT_SUPPORTED,
    Ended,
    Fault,
    HttpHead,
    HttpRequest,
    HttpResponse,
    refusal,
)

# A token of an identity provider that lists many groups has some ten kilobytes.
HEAD_BYTES_MAX: Final = 32 * 1024
# Browsers and proxies send about thirty.
HEADERS_MAX: Final = 100
TARGET_BYTES_MAX: Final = 8 * 1024

# A schema this long would hardly fit into a record; 128 connections with such a body are 64 MB.
BODY_BYTES_MAX: Final = 512 * 1024
# A body comes in a few hundred pieces of the network's size. Each takes about ten microseconds of the loop,
# so a body of chunks of one byte each must not get far.
PIECES_MAX: Final = 2_048

END_OF_HEAD: Final = b"\r\n\r\n"
EMPTY_LINE: Final = b"\r\n"

_BARE_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DIGITS = re.compile(rb"[0-9]{1,12}")

# Headers by which something is decided: two of a kind could be read as the one or the other.
_ONCE: Final = frozenset(
    (
        *(b"host", b"content-length", b"transfer-encoding", b"content-type", b"expect"),
        *(b"authorization", b"origin", b"sec-fetch-site"),
    )
)

Event = HttpHead | HttpRequest | Fault | Ended


class State(Enum):
    HEAD = auto()  # it is read
    JUDGED = auto()  # we decide whether the body is wanted
    BODY = auto()  # it is read
    ANSWERED = auto()  # the request is whole, we work on it
    OVER = auto()


class HttpConnection:
    def __init__(self) -> None:
        self.state = State.HEAD
        self._received = bytearray()  # what h11 has not got yet
        self._searched = 0  # so many bytes of it have no end of a head
        self._has_ended = False
        self._has_skipped = False  # an empty line before the request
        self._request: h11.Connection | None = None  # one for each request
        self._head: HttpHead | None = None
        self._is_wrong = False  # the request: what follows it is not read
        self._body = bytearray()
        self._pieces = 0

    @property
    def is_over(self) -> bool:
        return self.state is State.OVER

    @property
    def has_begun(self) -> bool:
        """Whether a part of a request is here that is not answered."""
        return self.state is not State.HEAD or bool(self._received)

    @property
    def wants_data(self) -> bool:
        """Not while a request is answered and the next one may be here."""
        return self.state in (State.HEAD, State.BODY) or len(self._received) < HEAD_BYTES_MAX

    def receive(self, data: bytes | memoryview) -> None:
        self._received += data

    def receive_end(self) -> None:
        """The client has sent all that it will send; it may still wait for an answer."""
        self._has_ended = True

    def next_event(self) -> Event | None:
        """None: more has to come first, or what is under way has to be answered."""
        try:
            if self.state is State.HEAD:
                return self._read_head()
            if self.state is State.BODY:
                return self._read_body()
        except h11.RemoteProtocolError as error:
            return self._fault(error.error_status_hint, _shown(str(error)))
        return None

    # --- reading -------------------------------------------------------------------------------------------

    def _read_head(self) -> Event | None:
        received = self._received
        if received.startswith(EMPTY_LINE) and not self._has_skipped:
            # RFC 9112 §2.2: one is ignored
            del received[: len(EMPTY_LINE)]
            self._searched = 0
            self._has_skipped = True
        end = received.find(END_OF_HEAD, max(0, self._searched - len(END_OF_HEAD)))
        if end < 0:
            return self._wait_for_head()
        size = end + len(END_OF_HEAD)
        if size > HEAD_BYTES_MAX:
            return self._fault(HEAD_TOO_LARGE, f"the headers have more than {HEAD_BYTES_MAX} bytes")
        head = bytes(received[:size])
        wrong = _check_head(head)
        if wrong is not None:
            return self._fault(*wrong)
        del received[:size]
        self._searched = 0
        self._has_skipped = False
        request = self._request = h11.Connection(h11.SERVER, HEAD_BYTES_MAX)
        request.receive_data(head)
        event = request.next_event()
        assert type(event) is h11.Request, "a whole head is a request, or an error"
        return self._accept_head(event)

    def _wait_for_head(self) -> Event | None:
        received = self._received
        if len(received) > HEAD_BYTES_MAX:
            return self._fault(HEAD_TOO_LARGE, f"the headers have more than {HEAD_BYTES_MAX} bytes")
        may_be_empty_line = received == b"\r" and not self._has_skipped
        if received and received[0] <= 0x20 and not may_be_empty_line:
            return self._fault(BAD_REQUEST, "this is not an HTTP request")
        if _BARE_LF.search(received, max(0, self._searched - 1)):
            return self._fault(BAD_REQUEST, "a line ends without CR LF")
        self._searched = len(received)
        if self._has_ended:
            self.state = State.OVER
            return Ended()
        return None

    def _accept_head(self, event: h11.Request) -> Event:
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
        head = self._head = HttpHead(event.method.decode(), event.target.decode(), headers)
        if event.http_version not in (b"1.0", b"1.1"):
            return self._fault(VERSION_NOT_SUPPORTED, "the request is not HTTP/1.1")
        if not head.target.startswith("/"):
            return self._fault(BAD_REQUEST, "the target of the request must be a path")
        is_chunked = head.header("transfer-encoding") is not None
        length = int(head.header("content-length") or 0)
        if is_chunked and (head.header("content-length") is not None or event.http_version == b"1.0"):
            return self._fault(BAD_REQUEST, "Transfer-Encoding with Content-Length, or in HTTP/1.0")
        if length > BODY_BYTES_MAX:
            return self._fault(CONTENT_TOO_LARGE, f"the body has more than {BODY_BYTES_MAX} bytes")
        head = self._head = head._replace(has_body=is_chunked or length > 0)
        if head.has_body and head.is_read:
            return self._fault(BAD_REQUEST, f"a {head.method} request must not have a body")
        self.state = State.JUDGED
        return head

    def go_on(self) -> bytes:
        """The head is accepted: what to send, for a client that waits for that before it sends the body."""
        assert self.state is State.JUDGED
        assert self._request is not None
        self.state = State.BODY
        self._body = bytearray()
        self._pieces = 0
        if self._request.they_are_waiting_for_100_continue:
            return self._request.send(h11.InformationalResponse(status_code=100, headers=[]))
        return b""

    def _read_body(self) -> Event | None:
        request, head = self._request, self._head
        assert request is not None
        assert head is not None
        if self._received:
            request.receive_data(bytes(self._received))
            self._received.clear()
        while True:
            event = request.next_event()
            if type(event) is h11.Data:
                self._body += event.data
                self._pieces += 1
                if len(self._body) > BODY_BYTES_MAX:
                    return self._fault(CONTENT_TOO_LARGE, f"the body has more than {BODY_BYTES_MAX} bytes")
                if self._pieces > PIECES_MAX:
                    return self._fault(BAD_REQUEST, f"the body comes in more than {PIECES_MAX} pieces")
            elif type(event) is h11.EndOfMessage:
                self._received += request.trailing_data[0]
                self.state = State.ANSWERED
                body, self._body = bytes(self._body), bytearray()
                return HttpRequest(head.method, head.target, body)
            elif self._has_ended:
                self.state = State.OVER
                return Ended()
            else:
                return None

    def _fault(self, status: int, why: str) -> Fault:
        self.state = State.JUDGED
        self._is_wrong = True
        self._request = h11.Connection(h11.SERVER) if self._request is None else self._request
        if self._request.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._request = h11.Connection(h11.SERVER)  # the last one has been answered
        self._received.clear()
        return Fault(refusal(status, why))

    # --- answering -----------------------------------------------------------------------------------------

    def respond(self, response: HttpResponse, *, is_last: bool = False) -> bytes:
        """The bytes of the answer. Then comes the next request, or the connection is over: after the last
        one, or if the body of this one was not read.
        """
        assert self.state in (State.JUDGED, State.ANSWERED)
        request = self._request
        assert request is not None
        has_no_body = self._head is not None and not self._head.has_body
        if self.state is State.JUDGED and has_no_body and not self._is_wrong:
            self._skip_empty_body(request)
        is_last = is_last or self.state is State.JUDGED or (self._has_ended and not self._received)
        headers = [("Content-Type", response.content_type), ("Content-Length", str(len(response.body)))]
        headers += response.headers
        if is_last:
            headers.append(("Connection", "close"))
        sent = request.send(
            h11.Response(status_code=response.status, headers=headers, reason=_reason(response.status))
        )
        if self._head is None or self._head.method != "HEAD":
            sent += request.send(h11.Data(data=response.body))
        if self.state is State.ANSWERED:
            sent += request.send(h11.EndOfMessage())
        self.state = State.HEAD if request.our_state is h11.DONE else State.OVER
        self._request = self._head = None
        return sent

    def _skip_empty_body(self, request: h11.Connection) -> None:
        """A refused request without a body need not cost the client its connection."""
        if request.their_state is h11.SEND_BODY and type(request.next_event()) is h11.EndOfMessage:
            self.state = State.ANSWERED


def _check_head(head: bytes) -> tuple[int, str] | None:
    """Status and reason, if the head is refused."""
    if _BARE_LINE_END.search(head):
        return BAD_REQUEST, "a line ends without CR LF"
    if _CONTROL.search(head):
        return BAD_REQUEST, "a header has control characters"
    first, *lines = head[: -len(END_OF_HEAD)].split(b"\r\n")
    if len(lines) > HEADERS_MAX:
        return HEAD_TOO_LARGE, f"the request has more than {HEADERS_MAX} headers"
    if len(first) > TARGET_BYTES_MAX:
        return URI_TOO_LONG, f"the target of the request has more than {TARGET_BYTES_MAX} bytes"
    seen = set()
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            return BAD_REQUEST, "a header goes on in the next line"
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in _ONCE:
            if name in seen:
                return BAD_REQUEST, f"two {name.decode()} headers"
            seen.add(name)
        if name == b"content-length" and not _DIGITS.fullmatch(value.strip(b" \t")):
            return BAD_REQUEST, "Content-Length is not a number"
    return None


def _reason(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b"Unknown"


def _shown(text: str) -> str:
    """h11's messages have parts of the request, of any length and with any bytes."""
    return text[:200].encode("ascii", "backslashreplace").decode()
