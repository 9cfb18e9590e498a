"""Tokens: bearer messages, tokens that are kept while fresh, and where they come from."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from headrace.base.time import Instant
from headrace.client.aio.driver import tokens_of as tokens_on_a_loop
from headrace.client.errors import AuthenticationFailed, TokenUnavailable
from headrace.client.security.oauthbearer import BearerExchange, OAuthBearer, Tokens
from headrace.client.security.oidc import ClientCredentials
from headrace.client.security.sasl import Token
from headrace.client.threads.driver import tokens_of

NOW = Instant(100.0)


class TestBearer:
    def test_the_message_with_extensions(self) -> None:
        """Those of the token win over those of the settings."""
        mechanism = OAuthBearer(str, {"tenant": "blue", "zone": "a"})
        token = Token("abc.def", extensions={"tenant": "red"})
        first = mechanism.exchange(random.Random(1), token).first()
        assert first == b"n,,\x01auth=Bearer abc.def\x01tenant=red\x01zone=a\x01\x01"

    def test_an_empty_answer_is_a_welcome(self) -> None:
        assert BearerExchange("abc", {}).answer(b"") is None

    def test_a_refusal_is_acknowledged_once(self) -> None:
        exchange = BearerExchange("abc", {})
        assert exchange.answer(b'{"status":"invalid_token"}') == b"\x01"
        with pytest.raises(AuthenticationFailed, match="invalid_token"):
            exchange.answer(b"")


class TestKeeping:
    def test_one_with_a_lifetime_is_kept_while_it_is_fresh(self) -> None:
        asked: list[int] = []
        tokens = Tokens(lambda: asked.append(1))
        assert tokens.take(NOW) is None
        assert tokens.take(NOW) is None
        assert asked == [1]
        token = Token("abc", 100.0)
        tokens.came(token)
        assert tokens.take(NOW) is token
        assert tokens.take(Instant(179.0)) is token
        assert tokens.take(Instant(181.0)) is None
        assert asked == [1, 1]

    def test_one_that_nobody_waited_for_grows_old_all_the_same(self) -> None:
        """The connection that wanted it was given up; the next one is made hours later."""
        asked: list[int] = []
        tokens = Tokens(lambda: asked.append(1))
        assert tokens.take(NOW) is None
        tokens.came(Token("old", 100.0))
        assert tokens.take(Instant(NOW + 81.0)) is None, "it would soon have ended, or has"
        assert asked == [1, 1]
        tokens.came(Token("new", 100.0))
        assert tokens.take(Instant(NOW + 82.0)) == Token("new", 100.0)
        assert tokens.take(Instant(NOW + 160.0)) == Token("new", 100.0)
        assert tokens.take(Instant(NOW + 162.0)) is None

    def test_one_without_is_used_once(self) -> None:
        asked: list[int] = []
        tokens = Tokens(lambda: asked.append(1))
        tokens.take(NOW)
        tokens.came("abc")
        assert tokens.take(NOW) == Token("abc")
        assert tokens.take(NOW) is None
        assert asked == [1, 1]

    def test_a_failure_is_told_once_and_tried_again(self) -> None:
        asked: list[int] = []
        tokens = Tokens(lambda: asked.append(1))
        tokens.take(NOW)
        tokens.failed(ValueError("no such realm"))
        with pytest.raises(TokenUnavailable, match="no such realm") as raised:
            tokens.take(NOW)
        assert raised.value.is_retriable
        assert tokens.take(NOW) is None
        assert asked == [1, 1]

    @pytest.mark.parametrize(
        "given",
        [
            None,
            7,
            "",
            "two words",
            "line\nfeed",
            "a\x01b",
            Token("abc", extensions={"auth": "x"}),
            Token("abc", extensions={"k": "a\x01b"}),
        ],
    )
    def test_what_is_no_token(self, given: object) -> None:
        tokens = Tokens(lambda: None)
        tokens.came(given)
        with pytest.raises(TokenUnavailable):
            tokens.take(NOW)

    def test_a_token_is_not_shown(self) -> None:
        assert "hidden" not in repr(Token("hidden"))


class TestShells:
    @pytest.mark.parametrize(("gives", "result"), [("abc", Token("abc")), (None, None)])
    def test_a_threads_provider_is_called_elsewhere(self, gives: str | None, result: Token | None) -> None:
        woken = threading.Event()
        caller: list[int] = []

        def provide() -> str:
            caller.append(threading.get_ident())
            if gives is None:
                raise RuntimeError("down")
            return gives

        tokens = tokens_of(provide, woken.set)
        assert tokens.take(NOW) is None
        assert woken.wait(30)
        assert caller != [threading.get_ident()]
        if result is None:
            with pytest.raises(TokenUnavailable, match="down"):
                tokens.take(NOW)
        else:
            assert tokens.take(NOW) == result

    def test_a_loop_awaits_coroutines_and_lends_a_thread_to_functions(self) -> None:
        async def later() -> str:
            await asyncio.sleep(0)
            return "async"

        async def take(provider: Callable[[], Any]) -> Token | None:
            woken = asyncio.Event()
            tokens = tokens_on_a_loop(provider, asyncio.get_running_loop(), woken.set)
            assert tokens.take(NOW) is None
            await asyncio.wait_for(woken.wait(), 30)
            return tokens.take(NOW)

        def fail() -> str:
            raise RuntimeError("down")

        assert asyncio.run(take(later)) == Token("async")
        assert asyncio.run(take(lambda: "sync")) == Token("sync")
        with pytest.raises(TokenUnavailable, match="down"):
            asyncio.run(take(fail))


class IdentityProvider(HTTPServer):
    """Answers with what it was told to, and remembers what it was asked."""

    status, body = 200, b""
    location = ""
    asked: tuple[str | None, str]


class TokenHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, IdentityProvider)
        data = self.rfile.read(int(self.headers["Content-Length"])).decode()
        server.asked = (self.headers["Authorization"], data)
        self.send_response(server.status)
        self.send_header("Content-Length", str(len(server.body)))
        if server.location:
            self.send_header("Location", server.location)
        self.end_headers()
        self.wfile.write(server.body)

    def do_GET(self) -> None:
        assert isinstance(self.server, IdentityProvider)
        self.server.asked = (self.headers["Authorization"], "")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"access_token": "a thief\'s"}')

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[IdentityProvider]:
    with IdentityProvider(("127.0.0.1", 0), TokenHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def identity_provider() -> Iterator[IdentityProvider]:
    with serving() as server:
        yield server


class TestClientCredentials:
    def credentials(self, server: IdentityProvider, scope: str | None = None) -> ClientCredentials:
        return ClientCredentials(f"http://127.0.0.1:{server.server_port}/token", "me", "s3cret", scope)

    def test_a_token_with_its_lifetime(self, identity_provider: IdentityProvider) -> None:
        identity_provider.body = json.dumps({"access_token": "abc", "expires_in": 300}).encode()
        assert self.credentials(identity_provider, "kafka all")() == Token("abc", 300)
        authorization, data = identity_provider.asked
        assert authorization == "Basic bWU6czNjcmV0"
        assert data == "grant_type=client_credentials&scope=kafka+all"

    @pytest.mark.parametrize(
        ("status", "body", "said"),
        [
            (401, b'{"error":"invalid_client"}', "401.*invalid_client"),
            (200, b"<html>", "without an access_token"),
            (200, b"[]", "without an access_token"),
            (200, b"{}", "without an access_token"),
        ],
    )
    def test_what_is_no_token(
        self, identity_provider: IdentityProvider, status: int, body: bytes, said: str
    ) -> None:
        identity_provider.status, identity_provider.body = status, body
        with pytest.raises(TokenUnavailable, match=said) as raised:
            self.credentials(identity_provider)()
        assert "s3cret" not in str(raised.value)

    @pytest.mark.parametrize(
        ("status", "body", "said", "is_retriable"),
        [
            (401, b"<html>\n<p>a page\n</html>", "answered 401: Unauthorized", False),
            (
                400,
                b'{"error": "invalid_scope", "error_description": "not\\nours"}',
                "invalid_scope: not ours",
                False,
            ),
            (400, b'["error"]', "answered 400: Bad Request", False),
            (429, b"", "answered 429: Too Many Requests", True),
            (503, b"\xff", "answered 503: Service Unavailable", True),
        ],
    )
    def test_a_refusal_is_told_in_one_line(
        self, identity_provider: IdentityProvider, status: int, body: bytes, said: str, is_retriable: bool
    ) -> None:
        """Asked with the same secret, the endpoint would refuse again, so calls end at once."""
        identity_provider.status, identity_provider.body = status, body
        with pytest.raises(TokenUnavailable) as raised:
            self.credentials(identity_provider)()
        assert str(raised.value).endswith(said)
        assert raised.value.is_retriable is is_retriable

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_the_secret_follows_no_redirect(self, identity_provider: IdentityProvider, status: int) -> None:
        with serving() as thief:
            thief.asked = ("nobody asked", "")
            identity_provider.status = status
            identity_provider.location = f"http://127.0.0.1:{thief.server_port}/token?s3cret"
            with pytest.raises(
                TokenUnavailable, match=r"redirects to .*the client secret is not sent"
            ) as raised:
                self.credentials(identity_provider)()
        assert thief.asked == ("nobody asked", "")
        assert "s3cret" not in str(raised.value)
        assert "sasl.oauthbearer.token.endpoint.url" in raised.value.advice

    def test_nobody_there(self) -> None:
        with pytest.raises(TokenUnavailable, match=r"token request to .* failed"):
            ClientCredentials("http://127.0.0.1:1/token", "me", "s3cret")()
