"""The server's side of an HTTP connection: bytes in, events out, bytes to send out."""

from __future__ import annotations

import pytest

from headrace.machines.http import connection as module
from headrace.machines.http.connection import BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, HttpConnection
from headrace.machines.http.messages import Ended, Fault, HttpHead, HttpRequest, HttpResponse

OK = HttpResponse(200, b"fine", "text/plain")


def received(data: bytes, *, in_pieces_of: int | None = None) -> HttpConnection:
    http = HttpConnection()
    feed(http, data, in_pieces_of)
    return http


def feed(http: HttpConnection, data: bytes, size: int | None = None) -> None:
    for start in range(0, len(data), size or len(data) or 1):
        http.receive(data[start : start + (size or len(data))])


def head_of(http: HttpConnection) -> HttpHead:
    head = http.next_event()
    assert isinstance(head, HttpHead), head
    return head


def request_of(http: HttpConnection) -> HttpRequest:
    head_of(http)
    assert http.go_on() == b""
    request = http.next_event()
    assert isinstance(request, HttpRequest), request
    return request


def refused(data: bytes) -> tuple[int, str]:
    """Status and message of the answer that ends the connection, whether the head or the body is wrong."""
    http = received(data)
    event = http.next_event()
    if isinstance(event, HttpHead):
        http.go_on()
        event = http.next_event()
    assert isinstance(event, Fault), event
    sent = http.respond(event.response)
    assert http.is_over
    assert b"\r\nConnection: close\r\n" in sent
    return event.response.status, event.response.body.decode()


def get(target: str = "/subjects", *headers: str) -> bytes:
    return "\r\n".join((f"GET {target} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def post(body: bytes, *headers: str) -> bytes:
    given = headers or (f"Content-Length: {len(body)}",)
    return "\r\n".join(("POST /subjects/a HTTP/1.1", "Host: localhost", *given, "", "")).encode() + body


@pytest.mark.parametrize("size", [1, 2, 7, None])
def test_a_request_in_pieces_of_any_size(size: int | None) -> None:
    http = HttpConnection()
    whole = post(b'{"schema": 1}')
    events: list[object] = []
    for start in range(0, len(whole), size or len(whole)):
        http.receive(whole[start : start + (size or len(whole))])
        while (event := http.next_event()) is not None:
            events.append(event)
            if isinstance(event, HttpHead):
                http.go_on()
    head, request = events
    assert isinstance(head, HttpHead)
    assert (head.method, head.target, head.has_body) == ("POST", "/subjects/a", True)
    assert head.header("host") == "localhost"
    assert request == HttpRequest("POST", "/subjects/a", b'{"schema": 1}')


def test_an_answer_and_the_next_request_on_the_same_connection() -> None:
    http = received(get())
    request_of(http)
    assert http.respond(OK) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nfine"
    )
    assert not http.is_over
    assert not http.has_begun
    feed(http, get("/config"))
    assert request_of(http).target == "/config"


def test_pipelined_requests_come_one_after_the_other() -> None:
    http = received(get("/1") + post(b"two") + get("/3"))
    assert request_of(http).target == "/1"
    assert http.next_event() is None  # not before the first one is answered
    http.respond(OK)
    assert request_of(http).body == b"two"
    http.respond(OK)
    assert request_of(http).target == "/3"


def test_pipelined_bytes_are_not_read_without_end() -> None:
    http = received(get())
    request_of(http)
    assert http.wants_data
    feed(http, b"x" * HEAD_BYTES_MAX)
    assert not http.wants_data


@pytest.mark.parametrize("size", [1, None])
def test_one_empty_line_before_a_request_is_ignored(size: int | None) -> None:
    """Also if it comes in two pieces; and two of them are refused, however they come."""
    for lines, is_good in ((1, True), (2, False)):
        http = HttpConnection()
        data = b"\r\n" * lines + get()
        events = []
        for start in range(0, len(data), size or len(data)):
            http.receive(data[start : start + (size or len(data))])
            events.append(http.next_event())
        (event, *_) = (one for one in events if one is not None)
        assert isinstance(event, HttpHead if is_good else Fault)


def test_head_has_the_length_and_no_body() -> None:
    http = received(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    request_of(http)
    sent = http.respond(OK)
    assert b"Content-Length: 4\r\n" in sent
    assert sent.endswith(b"\r\n\r\n")
    assert not http.is_over


@pytest.mark.parametrize("target", ["nowhere", "http://elsewhere/"])
def test_a_refused_head_has_no_body_either(target: str) -> None:
    http = received(f"HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    event = http.next_event()
    assert isinstance(event, Fault)
    assert http.respond(event.response).endswith(b"\r\n\r\n")
    assert http.is_over


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.0\r\n\r\n", get("/", "Connection: close"), get("/", "Connection: x, Close")]
)
def test_who_wants_one_answer_gets_one(data: bytes) -> None:
    http = received(data)
    request_of(http)
    assert b"Connection: close\r\n" in http.respond(OK)
    assert http.is_over


def test_the_last_answer_of_a_server_that_stops() -> None:
    http = received(get())
    request_of(http)
    assert b"Connection: close\r\n" in http.respond(OK, is_last=True)
    assert http.is_over


def test_chunks() -> None:
    http = received(post(b"3\r\nabc\r\n2;note=x\r\nde\r\n0\r\nTrailer: 1\r\n\r\n" + get("/next"), CHUNKED))
    assert request_of(http).body == b"abcde"
    http.respond(OK)
    assert request_of(http).target == "/next"


CHUNKED = "Transfer-Encoding: chunked"


def test_a_client_that_waits_before_it_sends_the_body() -> None:
    http = received(post(b"", "Content-Length: 3", "Expect: 100-continue"))
    head_of(http)
    assert http.go_on() == b"HTTP/1.1 100 \r\n\r\n"
    assert http.next_event() is None
    feed(http, b"abc")
    assert http.next_event() == HttpRequest("POST", "/subjects/a", b"abc")


def test_a_client_that_waits_and_is_refused_does_not_send_the_body() -> None:
    http = received(post(b"", "Content-Length: 3", "Expect: 100-continue"))
    head_of(http)
    assert b" 100 " not in http.respond(HttpResponse(401, b""))
    assert http.is_over


def test_a_refused_request_without_a_body_keeps_its_connection() -> None:
    http = received(get())
    head_of(http)
    http.respond(HttpResponse(401, b"{}"))
    assert not http.is_over
    feed(http, get("/config"))
    assert request_of(http).target == "/config"


def test_a_refused_request_with_a_body_ends_its_connection() -> None:
    """The body may be the next request to somebody who was not told that this one was refused."""
    http = received(post(b"GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"))
    head_of(http)
    assert b"Connection: close" in http.respond(HttpResponse(401, b"{}"))
    assert http.is_over
    assert http.next_event() is None


@pytest.mark.parametrize("data", [b"", b"GET / HT", post(b"ab", "Content-Length: 3")])
def test_the_end_of_what_a_client_sends(data: bytes) -> None:
    http = received(data)
    http.receive_end()
    event = http.next_event()
    if isinstance(event, HttpHead):
        http.go_on()
        event = http.next_event()
    assert event == Ended()
    assert http.is_over


def test_a_client_that_only_listens_now_gets_its_answer() -> None:
    http = received(get())
    http.receive_end()
    request_of(http)
    assert b"Connection: close" in http.respond(OK)


SMUGGLED = {
    "length and chunks": post(b"0\r\n\r\n", "Content-Length: 5", CHUNKED),
    "chunks and length": post(b"0\r\n\r\n", CHUNKED, "Content-Length: 5"),
    "two lengths": post(b"abc", "Content-Length: 3", "Content-Length: 5"),
    "the same length twice": post(b"abc", "Content-Length: 3", "Content-Length: 3"),
    "two lengths in one": post(b"abc", "Content-Length: 3, 3"),
    "a length with a sign": post(b"abc", "Content-Length: +3"),
    "a negative length": post(b"abc", "Content-Length: -3"),
    "a hexadecimal length": post(b"abc", "Content-Length: 0x3"),
    "an empty length": post(b"abc", "Content-Length:"),
    "a length without end": post(b"abc", f"Content-Length: {'9' * 100}"),
    "chunks twice": post(b"0\r\n\r\n", CHUNKED, CHUNKED),
    "chunks in HTTP/1.0": post(b"0\r\n\r\n", CHUNKED).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "a space before the colon": post(b"", "Content-Length : 3"),
    "a folded header": get("/", "X: a\r\n b"),
    "a folded length": post(b"", "Content-Length:\r\n 3"),
    "a bare LF": get().replace(b"\r\n", b"\n"),
    "one bare LF": get("/", "X: a\nY: b"),
    "a length behind a bare LF": post(b"abc", "X: a\nContent-Length: 3"),
    "a bare CR": get("/", "X: a\rContent-Length: 3"),
    "a NUL": get("/", "X: a\0b"),
    "a NUL in the target": get("/\0"),
    "a space in the target": get("/a b"),
    "two hosts": get("/", "Host: b"),
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a header without a colon": get("/", "X"),
    "a header without a name": get("/", ": x"),
    "two logins": get("/", "Authorization: Basic eA==", "authorization: Basic eQ=="),
    "two origins": get("/", "Origin: http://a", "ORIGIN: http://b"),
    "another host in the target": get("http://elsewhere/subjects"),
    "a tunnel": b"CONNECT elsewhere:80 HTTP/1.1\r\nHost: elsewhere\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "a body with GET": b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    "nothing": b"\r\n\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01",
    "a chunk of no size": post(b"\r\nabc\r\n", CHUNKED),
    "a chunk of a negative size": post(b"-1\r\nabc\r\n", CHUNKED),
    "a chunk without its end": post(b"3\r\nabcXX0\r\n\r\n", CHUNKED),
    "a chunk with a bare LF": post(b"3\nabc\n0\n\n" + b"x" * HEAD_BYTES_MAX, CHUNKED),
}


@pytest.mark.parametrize("data", SMUGGLED.values(), ids=SMUGGLED.keys())
def test_what_two_programs_could_read_in_two_ways_is_refused(data: bytes) -> None:
    status, message = refused(data)
    assert status in (400, 431, 501), message


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (get("/", f"X: {'x' * HEAD_BYTES_MAX}"), 431),
        (b"GET /" + b"x" * (HEAD_BYTES_MAX + 1), 431),
        (get("/", *["X: y"] * HEADERS_MAX), 431),
        (get("/" + "x" * module.TARGET_BYTES_MAX), 414),
        (post(b"", f"Content-Length: {BODY_BYTES_MAX + 1}"), 413),
        (post(b"%x\r\n" % (BODY_BYTES_MAX + 1) + b"x" * (BODY_BYTES_MAX + 1), CHUNKED), 413),
        (post(b"1\r\nx\r\n" * (module.PIECES_MAX + 1), CHUNKED), 400),
        (post(b"3;" + b"x" * HEAD_BYTES_MAX, CHUNKED), 431),
        (post(b"0\r\n" + b"X: y\r\n" * HEAD_BYTES_MAX, CHUNKED), 431),
        (get().replace(b"HTTP/1.1", b"HTTP/2.0"), 505),
        (post(b"", "Transfer-Encoding: gzip, chunked"), 501),
    ],
)
def test_limits(data: bytes, status: int) -> None:
    assert refused(data)[0] == status


def test_a_body_of_the_longest_length() -> None:
    http = received(post(b"x" * BODY_BYTES_MAX))
    assert len(request_of(http).body) == BODY_BYTES_MAX


def test_an_answer_to_a_wrong_request_after_a_good_one() -> None:
    http = received(get() + b"nonsense\r\n\r\n")
    request_of(http)
    http.respond(OK)
    event = http.next_event()
    assert isinstance(event, Fault)
    assert http.respond(event.response).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert http.is_over


def test_messages_show_no_bytes_that_are_not_text() -> None:
    _, message = refused(get("/", "X\xe9\x1b[31m: 1"))
    assert message.isascii()
    assert "\x1b" not in message
