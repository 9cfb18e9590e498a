"""Random HTTP requests: good ones, mutated from a seed, and the check that they pass."""

from __future__ import annotations

import random

from headrace.machines.http.browsers import HostRules, check_content_type, check_origin
from headrace.machines.http.connection import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    HttpConnection,
)
from headrace.machines.http.credentials import read_authorization
from headrace.machines.http.messages import Ended, Fault, HttpHead, HttpRequest, HttpResponse
from headrace.machines.schema_registry.registry import Registry
from headrace.machines.schema_registry.routes import find_route
from headrace.machines.security.errors import LoginRefused
from headrace.server.registry_rest import answer

READ_BYTES = 64 * 1024
RULES = HostRules("http", is_loopback=True)
OK = HttpResponse(200, b"{}")

TARGETS = (
    *("/", "/metrics", "/subjects", "/subjects/a-value/versions/latest", "/schemas/ids/1?format=serialized"),
    *(
        "/config/%00",
        "/mode?force=true",
        "/subjects/%2e%2e/versions",
        "/compatibility/subjects/a/versions/-1",
    ),
)
HEADERS = (
    *(
        "Host: localhost:9644",
        "Content-Type: application/json",
        "Connection: keep-alive",
        "Expect: 100-continue",
    ),
    *(
        "Authorization: Basic YWxpY2U6c2VjcmV0",
        "Authorization: Bearer a.b.c",
        "Origin: http://localhost:9644",
    ),
    *("Sec-Fetch-Site: cross-site", "Upgrade: h2c", "Connection: close", "Accept: */*", "TE: trailers"),
)
BODIES = (b"", b"{}", b'{"schema": "\\"string\\""}', b'{"compatibility": "NONE"}', b"[" * 50, b"\xff\x00")
SPLICES = (
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"\r\n\r\n", b"\r\n ", b"%00", b"%2f", b"..", b"\xff"),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: x\r\n", b"0\r\n\r\n"),
    *(b"Content-Length: -1\r\n", b"ffffffffffffffff\r\n", b"1;a=b\r\n", b"HTTP/1.0", b"HTTP/2", b"GET / "),
    *(b"Host: a\r\n", b"A" * 200, b"Content-Length: 99999999999999999999\r\n", b"[" * 300, b'"' * 300),
)


def one(data: bytes) -> None:
    """The same events come out however the bytes are cut, and nothing grows without limit."""
    whole = events_of(data, len(data) or 1)
    pieces = events_of(data, 1 + len(data) % 7)
    assert whole == pieces


def events_of(data: bytes, size: int) -> list[object]:
    http = HttpConnection()
    registry = Registry()
    events: list[object] = []
    for start in range(0, len(data), size):
        if http.is_over:
            break
        http.receive(data[start : start + size])
        _take(http, registry, events)
    if not http.is_over:
        http.receive_end()
        _take(http, registry, events)
    return events


def _take(http: HttpConnection, registry: Registry, events: list[object]) -> None:
    while not http.is_over and (event := http.next_event()) is not None:
        assert len(http._received) <= HEAD_BYTES_MAX + READ_BYTES
        assert len(http._body) <= BODY_BYTES_MAX + READ_BYTES
        if isinstance(event, HttpHead):
            events.append(event)
            refused = check_origin(event, RULES) or check_content_type(event)
            header = event.header("authorization")
            if header is not None:
                try:
                    read_authorization(header)
                except LoginRefused:
                    pass
            if refused is None:
                http.go_on()
            else:
                http.respond(refused)
        elif isinstance(event, HttpRequest):
            events.append(event)
            found = answer(registry, event.method, event.target, event.body)
            assert 200 <= found.status < 600
            route = find_route(event.method, event.target)
            assert (route is None) == (found.status == 404 and b"HTTP 404" in found.body)
            http.respond(HttpResponse(found.status, found.body))
        elif isinstance(event, Fault):
            # which message depends on how much of a wrong request has come
            events.append("refused")
            http.respond(event.response)
            assert http.is_over
        else:
            assert isinstance(event, Ended)


def request_of(rng: random.Random) -> bytes:
    method = rng.choice(("GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"))
    body = b"" if method in ("GET", "HEAD") else rng.choice(BODIES)
    lines = [f"{method} {rng.choice(TARGETS)} HTTP/1.1", *rng.sample(HEADERS, rng.randrange(4))]
    if not any(line.startswith("Host") for line in lines):
        lines.append("Host: 127.0.0.1")
    if body and rng.randrange(2):
        lines.append("Transfer-Encoding: chunked")
        cut = rng.randrange(len(body) + 1)
        chunks = [part for part in (body[:cut], body[cut:]) if part]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in chunks) + b"0\r\n\r\n"
    elif body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + body


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randrange(4)):
        position = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:
                del out[position:]
            case 1:
                out[position : position + 1] = rng.randbytes(1)
            case 2 | 3:
                out[position:position] = rng.choice(SPLICES)
            case 4:
                end = rng.randrange(len(out) + 1)
                del out[min(position, end) : max(position, end)]
            case _:
                end = rng.randrange(len(out) + 1)
                out[position:position] = out[min(position, end) : max(position, end)]
    return bytes(out)


def drawn(rng: random.Random) -> bytes:
    return b"".join(mutated(request_of(rng), rng) for _ in range(rng.randint(1, 4)))
