"""The registry's client beside registries that are down, old or guarded."""

from __future__ import annotations

import base64
import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

from headrace.schemas import (
    NoRegistry,
    Registry,
    RegistryRefused,
    RegistryTrouble,
    RegistryUnreachable,
    Schema,
    decoder_for,
    json_serializer,
)
from headrace.schemas.wire import framed


class Old(BaseHTTPRequestHandler):
    """Answers a registration with the id alone, wants a password, and notes what it was asked."""

    asked: list[tuple[str, str]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(("POST", self.path))
        found: dict[str, Any] = {"id": 5}
        if not self.path.endswith("/versions"):
            found |= {"subject": "s", "version": 3, **body}
        self._reply(found)

    def do_GET(self) -> None:
        self.asked.append(("GET", self.path))
        if self.path == "/schemas/ids/9":
            self._send(503, b"{}")
        else:
            self._reply({"schema": '"int"'})

    def _reply(self, found: Any) -> None:
        expected = "Basic " + base64.b64encode(b"ada:l:ve").decode()
        if self.headers["Authorization"] != expected:
            self._send(401, b"who are you?")
        else:
            self._send(200, json.dumps(found).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Odd(Old):
    """Not what a registry answers, by the id that is asked for."""

    released = threading.Event()
    answers = {
        1: (200, b"<html>please log in</html>"),
        2: (200, b'{"id": 2}'),
        3: (200, b"[]"),
        4: (404, b"<html>no such page</html>"),
        5: (404, b'{"error_code": 40403, "message": "Schema 5 not found"}'),
        6: (403, b'{"error_code": 40301, "message": "not you"}'),
        7: (429, b"{}"),
        8: (200, b'{"schema": 8}'),
        9: (200, b'{"schema": "x", "schemaType": "XML"}'),
        13: (200, b'{"schema": "int"}'),
        16: (200, b"[" * 100_000),
        17: (404, b"[" * 100_000),
        14: (
            200,
            b'{"schemaType": "PROTOBUF", "schema": "syntax = \\"proto3\\"; message M { int32 x = 1; }"}',
        ),
    }

    def do_GET(self) -> None:
        self.asked.append(("GET", self.path))
        if self.path.startswith("/schemas/guids"):
            self._send(200, b'[{"id": "many"}]')
            return
        id = int(self.path.rpartition("/")[2])
        if id == 10:
            self.released.wait(30)  # silence
        elif id == 15:
            self._drip()
        elif id == 11 and len(self.asked) == 1:
            self._send(500, b"")
        else:
            self._send(*self.answers.get(id, (200, b'{"schema": "{}", "schemaType": "JSON"}')))

    def _drip(self) -> None:
        """An answer that never ends, and never stops for long."""
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while not self.released.wait(0.02):
                self.wfile.write(b" ")


@contextmanager
def serving(kind: type[Old]) -> Iterator[int]:
    kind.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def port() -> Iterator[int]:
    with serving(Old) as port:
        yield port


@pytest.fixture
def odd() -> Iterator[Registry]:
    Odd.released.clear()
    with serving(Odd) as port:
        yield Registry(f"http://127.0.0.1:{port}", timeout_s=1)


def test_a_password_by_argument_or_in_the_address(port: int) -> None:
    with pytest.raises(RegistryRefused, match="401"):
        Registry(f"http://127.0.0.1:{port}").schema(1)
    assert Registry(f"http://127.0.0.1:{port}", user="ada", password="l:ve").schema(1) == Schema('"int"')
    assert Registry(f"http://ada:l:ve@127.0.0.1:{port}").schema(1) == Schema('"int"')


class Elsewhere(Old):
    """Redirects by path: to another port of the same host, or to another path of its own."""

    target = ""

    def do_GET(self) -> None:
        self.asked.append(("GET", self.path))
        if self.path.startswith("/moved"):
            self._reply({"schema": '"int"'})
        else:
            self._redirect(302)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(("POST", self.path))
        self._redirect(301)

    def _redirect(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Location", self.target + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Thief(Old):
    """Another origin; it notes every login that reaches it."""

    logins: list[str | None] = []

    def do_GET(self) -> None:
        self.logins.append(self.headers["Authorization"])
        self._send(200, json.dumps({"schema": '"int"'}).encode())


@pytest.mark.parametrize("credentials", [{"user": "ada", "password": "l:ve"}, {}], ids=["login", "nobody"])
def test_no_redirect_to_another_origin_is_followed(credentials: dict[str, Any]) -> None:
    """A login that a redirect takes along belongs to whoever answers there."""
    Thief.logins = []
    with serving(Thief) as thief, serving(Elsewhere) as port:
        Elsewhere.target = f"http://127.0.0.1:{thief}/x?secret=1"
        registry = Registry(f"http://127.0.0.1:{port}", **credentials)
        with pytest.raises(
            RegistryRefused, match=rf"redirects the request about .* to http://127.0.0.1:{thief}"
        ) as raised:
            registry.schema(1)
        assert "secret" not in str(raised.value)
        assert "address" in raised.value.advice
    assert Thief.logins == []


def test_a_redirect_within_the_registry_is_followed_and_no_order_is_redirected() -> None:
    """urllib would turn the order into a question: a POST into a GET."""
    with serving(Elsewhere) as port:
        Elsewhere.target = f"http://127.0.0.1:{port}/moved"
        registry = Registry(f"http://127.0.0.1:{port}", user="ada", password="l:ve")
        assert registry.schema(1) == Schema('"int"')
        assert Elsewhere.asked == [("GET", "/schemas/ids/1"), ("GET", "/moved/schemas/ids/1")]
        with pytest.raises(RegistryRefused, match="redirects the request about"):
            registry.register("s", Schema('"int"'))


def test_a_login_in_an_address_goes_to_that_address_only(port: int) -> None:
    Thief.logins = []
    with serving(Thief) as thief:
        both = f"http://127.0.0.1:{thief},http://a%64a:l%3Ave@127.0.0.1:{port}"
        assert Registry(both).schema(1) == Schema('"int"')
        assert Thief.logins == [None]
    assert Registry(both, timeout_s=2).schema(1) == Schema('"int"')  # the first does not answer any more


def test_the_next_address_is_asked_when_one_does_not_answer(port: int) -> None:
    registry = Registry(
        f"http://127.0.0.1:9,http://127.0.0.1:{port}/", user="ada", password="l:ve", timeout_s=2
    )
    assert registry.schema(1) == Schema('"int"')
    assert registry.schema(1) == Schema('"int"')
    assert Old.asked == [("GET", "/schemas/ids/1")]  # what an id means is asked for once
    with pytest.raises(RegistryUnreachable, match="503"):
        registry.schema(9)
    again = copy.copy(registry)  # as a task of Spark takes it along
    assert again.schema(1) == Schema('"int"')


def test_a_registry_that_cannot_be_reached_is_named_with_the_cause() -> None:
    with pytest.raises(RegistryUnreachable, match=r"127.0.0.1:9 cannot be reached: connection refused$"):
        Registry("http://127.0.0.1:9", timeout_s=2).subjects()


def test_an_answer_that_never_ends_is_given_up(odd: Registry) -> None:
    """The time of a question is that of all of it, not of each byte."""
    try:
        with pytest.raises(RegistryUnreachable, match="no registry answered the request about schema 15"):
            odd.schema(15)
    finally:
        Odd.released.set()


def test_an_id_that_is_no_number_is_not_a_registry_s(odd: Registry) -> None:
    with pytest.raises(NoRegistry):
        odd.id_of_guid("0-0")


def test_an_old_registry_tells_the_id_alone(port: int) -> None:
    registry = Registry(f"http://127.0.0.1:{port}", user="ada", password="l:ve")
    found = registry.register_version("s/1", Schema('"int"'))
    assert (found.id, found.version, found.guid) == (5, 3, None)
    assert registry.register("s/1", Schema('"int"')) == 5
    assert Old.asked == [("POST", "/subjects/s%2F1/versions"), ("POST", "/subjects/s%2F1")]


@pytest.mark.parametrize(
    ("id", "error", "said"),
    [
        (1, NoRegistry, "please log in"),
        (2, NoRegistry, "is not a schema registry"),
        (3, NoRegistry, "is not a schema registry"),
        (4, RegistryRefused, r"Not Found \(code 404\)"),
        (6, RegistryRefused, r"not you \(code 40301\)"),
        (7, RegistryUnreachable, "answers 429"),
        (8, NoRegistry, "is not a schema registry"),
        (9, NoRegistry, "XML"),
        (16, NoRegistry, "is not a schema registry"),
        (17, RegistryRefused, r"Not Found \(code 404\)"),
    ],
)
def test_what_is_wrong_with_a_registry_is_no_records_fault(
    odd: Registry, id: int, error: type[RegistryTrouble], said: str
) -> None:
    decoder = decoder_for("json", schema=pa.schema([("x", pa.int64())]), registry=odd)
    with pytest.raises(error, match=said) as caught:
        decoder.columns(pa.array([framed(id, b"{}")], pa.binary()))
    assert f"schema {id}" in str(caught.value)
    assert "http://127.0.0.1:" in str(caught.value)


@pytest.mark.parametrize(
    ("format", "schema", "good"),
    [
        ("json", '{"type": "object", "properties": {"x": {"type": "integer"}}}', framed(12, b'{"x": 1}')),
        ("avro", '"int"', framed(13, b"\x02")),
        ("protobuf", 'syntax = "proto3"; message M { int32 x = 1; }', framed(14, b"\x08\x01", (0,))),
    ],
)
def test_an_id_that_is_unknown_is_a_records_fault_and_asked_for_once(
    odd: Registry, format: str, schema: str, good: bytes
) -> None:
    decoder = decoder_for(format, schema=schema, registry=odd)
    decoded = decoder.columns(pa.array([framed(5, b"\0"), good] * 50, pa.binary()))
    assert [row for row, _ in decoded.failures] == list(range(0, 100, 2))
    assert "does not know schema 5: Schema 5 not found" in decoded.failures[-1].reason
    assert Odd.asked == [("GET", "/schemas/ids/5"), ("GET", f"/schemas/ids/{good[4]}")]
    # but it may be registered any time
    assert len(decoder.columns(pa.array([framed(5, b"\0")], pa.binary())).failures) == 1
    assert len(Odd.asked) == 3


def test_silence_ends_and_one_hiccup_does_not_matter(odd: Registry) -> None:
    assert odd.schema(11).text == "{}"
    assert len(Odd.asked) == 2
    with pytest.raises(RegistryUnreachable, match=r"schema 10: http://.* did not answer within"):
        odd.schema(10)
    Odd.released.set()
    down = json_serializer(Registry("http://127.0.0.1:9", timeout_s=1), "{}", topic="t")
    with pytest.raises(Exception, match=r"about subject 't-value': http://127.0.0.1:9 cannot be reached"):
        down.to_bytes({})
