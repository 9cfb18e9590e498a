"""TLS listeners: handshakes, bytes both ways, and how each failure ends."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from harness.certificates import Authority
from headrace.base.time import Now
from headrace.machines.configs.values import InvalidConfig
from headrace.node.connection import Connection
from headrace.node.effects import Mute
from headrace.server import tls, tls_listener, tls_reload
from headrace.server.listeners import CannotListen
from headrace.server.logs import Log
from headrace.server.process import Process
from server.fake_node import ECHO, FILL, Client, RunningServer, request, running_server, settings

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def keys(authority: Authority) -> dict[str, object]:
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": authority.issue("broker").both,
        "ssl_truststore_location": authority.certificate,
    }


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


async def secure_client(server: RunningServer, context: ssl.SSLContext) -> Client:
    streams = await asyncio.open_connection(
        "127.0.0.1", server.port, limit=2**26, ssl=context, server_hostname="localhost"
    )
    client = Client(*streams)
    server.clients.append(client)
    return client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_and_answers(
    run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority, version: ssl.TLSVersion
) -> None:
    async def story() -> None:
        async with running_server(tmp_path, **keys) as server:
            context = trusting(authority)
            context.minimum_version = context.maximum_version = version
            client = await secure_client(server, context)
            assert await client.ask(ECHO, 1, b"hello") == b"hello"
            large = os.urandom(3_000_000)  # longer than every buffer on its way
            assert await client.ask(ECHO, 2, large) == large
            assert len(await client.ask(FILL, 3, size=4_000)) == 4_000 * 1024
            await client.send(*(request(ECHO, number, b"x" * number) for number in range(1, 500)))
            for number in range(1, 500):
                assert await client.receive() == (number, b"x" * number)
            assert server.node.connections[0].principal == "User:ANONYMOUS"

    run(story())


def test_the_text_of_a_certificate_and_an_encrypted_key(
    run: Run, tmp_path: Path, authority: Authority
) -> None:
    async def story() -> None:
        issued = authority.issue("texts")
        keys = {
            "listeners": "SSL://127.0.0.1:0",
            "listener_name_ssl_ssl_keystore_certificate_chain": issued.certificate.read_text(),
            "listener_name_ssl_ssl_keystore_key": issued.encrypted_key("opensesame").read_text(),
            "listener_name_ssl_ssl_key_password": "opensesame",
        }
        async with running_server(tmp_path, **keys) as server:
            client = await secure_client(server, trusting(authority))
            assert await client.ask(ECHO, 1, b"hello") == b"hello"

    run(story())


def test_a_client_that_leaves_is_forgotten(
    run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority
) -> None:
    async def story() -> None:
        async with running_server(tmp_path, **keys) as server:
            client = await secure_client(server, trusting(authority))
            await client.ask(ECHO, 1)
            client.close()
            await server.until(lambda: not server.process.connections.channels)

    run(story())


def test_answers_arrive_before_the_end(
    run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority
) -> None:
    async def story() -> None:
        async with running_server(tmp_path, **keys) as server:
            client = await secure_client(server, trusting(authority))
            await client.ask(ECHO, 1)
            await client.send(request(ECHO, 2, b"last"), b"\x7f\xff\xff\xff")
            assert await client.receive() == (2, b"last")
            assert await client.is_closed()

    run(story())


class TestClientCertificates:
    def test_the_principal_is_the_subject(
        self, run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys, ssl_client_auth="required") as server:
                ours = authority.issue("alice,OU=Admins")
                context = trusting(authority)
                context.load_cert_chain(ours.both)
                client = await secure_client(server, context)
                await client.ask(ECHO, 1)
                assert server.node.connections[0].principal == r"User:CN=alice\,OU\=Admins"

        run(story())

    def test_the_principal_by_rules(
        self, run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority
    ) -> None:
        async def story() -> None:
            rules = "RULE:^CN=(A.*)$/$1/L"
            async with running_server(
                tmp_path, **keys, ssl_client_auth="requested", ssl_principal_mapping_rules=rules
            ) as server:
                for name, principal in (("Alice", "User:alice"), (None, "User:ANONYMOUS")):
                    context = trusting(authority)
                    if name is not None:
                        context.load_cert_chain(authority.issue(name).both)
                    client = await secure_client(server, context)
                    await client.ask(ECHO, 1)
                    assert server.node.connections[-1].principal == principal
                context = trusting(authority)
                context.load_cert_chain(authority.issue("bob").both)
                await self.is_refused(server, context)
                assert "no rule of ssl.principal.mapping.rules" in server.logged("connection_closed")[-1]

        run(story())

    @staticmethod
    async def is_refused(server: RunningServer, context: ssl.SSLContext) -> None:
        """In TLS 1.3 the client's side of the handshake is over before the broker refuses it."""
        refused = len(server.logged("connection_closed"))
        try:
            client = await secure_client(server, context)
            await client.send(request(ECHO, 1))
            assert await client.is_closed()
        except (ssl.SSLError, ConnectionError):
            pass
        await server.until(lambda: len(server.logged("connection_closed")) > refused)
        await server.until(lambda: server.process.connections.handshakes_failed > 0)

    def test_none_where_one_is_required(
        self, run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys, ssl_client_auth="required") as server:
                await self.is_refused(server, trusting(authority))
                assert "the client has no certificate" in server.logged("connection_closed")[0]
                assert not server.node.frames

        run(story())

    def test_one_that_is_not_trusted(
        self, run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority, stranger: Authority
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys, ssl_client_auth="requested") as server:
                context = trusting(authority)
                context.load_cert_chain(stranger.issue("alice").both)
                await self.is_refused(server, context)
                assert "certificate is not accepted" in server.logged("connection_closed")[0]

        run(story())

    @pytest.mark.parametrize(
        ("client_auth", "has_ticket"), [("none", True), ("requested", False), ("required", False)]
    )
    def test_no_ticket_brings_a_client_back_without_its_certificate(
        self,
        run: Run,
        tmp_path: Path,
        keys: dict[str, object],
        authority: Authority,
        client_auth: str,
        *,
        has_ticket: bool,
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys, ssl_client_auth=client_auth) as server:
                for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                    context = trusting(authority)
                    context.minimum_version = context.maximum_version = version
                    context.load_cert_chain(authority.issue("alice").both)
                    client = await secure_client(server, context)
                    await client.ask(ECHO, 1)
                    session = client.writer.get_extra_info("ssl_object").session
                    assert (session is not None and session.has_ticket) is has_ticket

        run(story())


class TestNewCertificates:
    def test_files_that_change(
        self,
        run: Run,
        tmp_path: Path,
        authority: Authority,
        stranger: Authority,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(tls_reload, "PERIOD_S", 0.001)
        monkeypatch.setattr(tls_reload, "SETTLED_S", 0.001)
        file = tmp_path / "broker.pem"

        async def story() -> None:
            file.write_bytes(authority.issue("first").both.read_bytes())
            listening = {
                "listeners": "SSL://127.0.0.1:0",
                "ssl_keystore_location": file,
                "ssl_allow_dn_changes": "true",
            }
            async with running_server(tmp_path / "data", **listening) as server:
                client = await secure_client(server, trusting(authority))
                await client.ask(ECHO, 1)
                # a bad file keeps the old certificate, and is an error once
                file.write_bytes(b"-----BEGIN CERTIFICATE-----")
                await server.until(lambda: bool(server.logged("certificates_not_loaded")))
                another = await secure_client(server, trusting(authority))
                assert await another.ask(ECHO, 1, b"still") == b"still"
                file.write_bytes(stranger.issue("second").both.read_bytes())
                await server.until(lambda: bool(server.logged("certificates_loaded")))
                with pytest.raises(ssl.SSLError):
                    await secure_client(server, trusting(authority))
                third = await secure_client(server, trusting(stranger))
                assert await third.ask(ECHO, 1, b"new") == b"new"
                assert await client.ask(ECHO, 2, b"open") == b"open"
                failures = len(server.logged("certificates_not_loaded"))
                assert server.process.connections.reloads_failed == failures

        run(story())

    @pytest.mark.parametrize("kind", ["keystore", "truststore"])
    def test_files_with_bytes_that_are_not_text(
        self, run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority, kind: str
    ) -> None:
        """As a disk or an editor leaves them: an error of that file, and not of ours."""
        file = tmp_path / "changed.pem"
        whole = Path(str(keys[f"ssl_{kind}_location"])).read_bytes()
        file.write_bytes(whole)
        given = keys | {f"ssl_{kind}_location": file, "ssl_client_auth": "requested"}

        async def story() -> None:
            async with running_server(tmp_path / "data", **given) as server:
                at = whole.index(b"-----END CERTIFICATE") - 50
                file.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
                assert server.process.certificates is not None
                server.process.certificates.reload()
                (told,) = server.logged("certificates_not_loaded")
                assert f"ssl.{kind}.location" in told
                assert server.process.connections.reloads_failed == 1
                client = await secure_client(server, trusting(authority))
                assert await client.ask(ECHO, 1, b"on") == b"on"

        run(story())

    def test_loaded_again_when_asked(
        self, run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys) as server:
                assert server.process.certificates is not None
                server.process.certificates.reload()
                assert server.logged("certificates_loaded")
                client = await secure_client(server, trusting(authority))
                assert await client.ask(ECHO, 1, b"on") == b"on"

        run(story())

    @pytest.mark.parametrize(
        ("settings", "name", "alternatives", "says"),
        [
            ({}, "broker", "DNS:localhost,IP:127.0.0.1,DNS:more.example.org", None),
            ({}, "other", "DNS:localhost,IP:127.0.0.1", "ssl.allow.dn.changes=true allows that"),
            ({}, "broker", "DNS:localhost", "ssl.allow.san.changes=true allows that"),
            ({"ssl_allow_dn_changes": "true"}, "other", "DNS:localhost,IP:127.0.0.1", None),
            ({"ssl_allow_san_changes": "true"}, "broker", "DNS:localhost", None),
        ],
    )
    def test_another_identity_is_not_taken_by_mistake(
        self,
        run: Run,
        tmp_path: Path,
        authority: Authority,
        settings: dict[str, object],
        name: str,
        alternatives: str,
        says: str | None,
    ) -> None:
        """As in Kafka: a file for another host, copied to the wrong place, changes nothing."""
        file = tmp_path / "broker.pem"

        async def story() -> None:
            file.write_bytes(authority.issue("broker").both.read_bytes())
            listening = {"listeners": "SSL://127.0.0.1:0", "ssl_keystore_location": file}
            async with running_server(tmp_path / "data", **listening, **settings) as server:
                file.write_bytes(authority.issue(name, alternatives).both.read_bytes())
                assert server.process.certificates is not None
                server.process.certificates.reload()
                refused = server.logged("certificates_not_loaded")
                assert len(refused) == (says is not None)
                assert says is None or says in str(refused)

        run(story())

    def test_dynamic_settings_name_another_file(
        self, run: Run, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tls_reload, "PERIOD_S", 0.001)
        monkeypatch.setattr(tls_reload, "SETTLED_S", 0.001)
        first, second = authority.issue("broker"), authority.issue("two", "DNS:localhost")
        key = "listener.name.ssl.ssl.keystore.location"

        async def story() -> None:
            listening = {
                "listeners": "SSL://127.0.0.1:0",
                "ssl_keystore_location": first.both,
                "ssl_allow_dn_changes": "true",
                "ssl_allow_san_changes": "true",
            }
            async with running_server(tmp_path / "data", **listening) as server:
                node, before = server.node, server.node.settings

                async def change(path: Path, event: str) -> str:
                    already = len(server.logged(event))
                    node.settings = before.overlaid({key: str(path)}, {})
                    await server.until(lambda: len(server.logged(event)) > already)
                    client = await secure_client(server, trusting(authority))
                    ((_, name),) = client.writer.get_extra_info("peercert")["subject"][0]
                    return str(name)

                assert await change(second.both, "certificates_loaded") == "two"
                assert await change(tmp_path / "missing.pem", "certificates_not_loaded") == "two"
                assert server.process.connections.reloads_failed == 1
                assert await change(first.both, "certificates_loaded") == "broker"

        run(story())

    def test_certificates_are_tried_before_they_are_set(
        self, run: Run, tmp_path: Path, authority: Authority
    ) -> None:
        first, renewed = authority.issue("broker"), tmp_path / "renewed.pem"
        second = authority.issue("two")
        broken = tmp_path / "broken.pem"
        broken.write_text(first.key.read_text() + second.certificate.read_text())
        renewed.write_text(first.both.read_text())
        key = "listener.name.ssl.ssl.keystore.location"

        async def story() -> None:
            listening = {"listeners": "SSL://127.0.0.1:0", "ssl_keystore_location": first.both}
            async with running_server(tmp_path / "data", **listening) as server:
                before, context = server.node.settings, server.process._tls["SSL"].context
                for path, says in (
                    (tmp_path / "missing.pem", "cannot read"),
                    (broken, "key"),
                    (second.both, "ssl.allow.dn.changes"),
                ):
                    with pytest.raises(InvalidConfig) as raised:
                        server.node.check_certificates(before.overlaid({key: str(path)}, {}))
                    assert says in str(raised.value)
                server.node.check_certificates(before.overlaid({key: str(renewed)}, {}))
                assert server.process._tls["SSL"].context is context, "it is not used yet"

        run(story())

    def test_the_metrics_tell_when_it_expires(
        self, run: Run, tmp_path: Path, authority: Authority, keys: dict[str, object]
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys) as server:
                left_s = server.process.connections.certificates_expire()["SSL"] - time.time()
                assert 86_400 < left_s <= 2 * 86_400

        run(story())


class TestSeveralCertificates:
    @pytest.mark.parametrize("key_is_first", [True, False])
    def test_clients_get_the_one_for_the_host_that_they_name(
        self, run: Run, tmp_path: Path, authority: Authority, *, key_is_first: bool
    ) -> None:
        file = tmp_path / "both.pem"
        text = ""
        for name, hosts in (("inside", "localhost"), ("outside", "kafka.example.org,DNS:*.example.com")):
            issued = authority.issue(name, f"DNS:{hosts}")
            parts = [issued.key.read_text(), issued.certificate.read_text()]
            text += "".join(parts if key_is_first else parts[::-1])
        file.write_text(text)

        async def shown(server: RunningServer, host: str) -> str:
            context = trusting(authority)
            context.check_hostname = False
            _, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=context, server_hostname=host
            )
            certificate = writer.get_extra_info("peercert")
            writer.close()
            ((_, name),) = certificate["subject"][0]
            return str(name)

        async def story() -> None:
            listening = {"listeners": "SSL://127.0.0.1:0", "ssl_keystore_location": file}
            async with running_server(tmp_path / "data", **listening) as server:
                assert await shown(server, "localhost") == "inside"
                assert await shown(server, "KAFKA.example.org") == "outside"
                assert await shown(server, "one.example.com") == "outside"
                assert await shown(server, "one.two.example.com") == "inside"
                assert await shown(server, "unknown.example.net") == "inside"
                client = await secure_client(server, trusting(authority))
                assert await client.ask(ECHO, 1, b"hello") == b"hello"

        run(story())


class TestRefusals:
    def test_a_client_that_wants_to_negotiate_again(
        self, run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys) as server:
                address = f"127.0.0.1:{server.port}"
                program = await asyncio.create_subprocess_exec(
                    *("openssl", "s_client", "-tls1_2", "-connect", address),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                )
                said, _ = await program.communicate(b"R\n")  # what it takes for an order to do so
                assert b"RENEGOTIATING" in said
                assert b"no renegotiation" in said

        run(story())

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            (request(ECHO, 1), "a client without TLS on a TLS listener"),
            (b"GET / HTTP/1.1\r\n\r\n", "an HTTP client on a TLS listener"),
            (b"\x16\x03\x01\x00\x05hello", "TLS handshake failed"),
        ],
    )
    def test_what_is_not_tls(
        self, run: Run, tmp_path: Path, keys: dict[str, object], said: bytes, reason: str
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys) as server:
                client = await server.client()
                await client.send(said)
                await client.reader.read()
                assert reason in server.logged("connection_closed")[0]
                assert server.process.connections.handshakes_failed == 1
                await server.until(lambda: not server.process.connections.channels)

        run(story())

    def test_tls_on_a_plaintext_listener(self, run: Run, tmp_path: Path, authority: Authority) -> None:
        async def story() -> None:
            async with running_server(tmp_path) as server:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await secure_client(server, trusting(authority))
                await server.until(lambda: bool(server.logged("connection_closed")))
                assert "a TLS client on a plaintext listener" in server.logged("connection_closed")[0]

        run(story())

    def test_a_handshake_that_is_never_finished(
        self, run: Run, tmp_path: Path, keys: dict[str, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tls, "HANDSHAKE_S_MAX", 0.01)

        async def story() -> None:
            async with running_server(tmp_path, **keys) as server:
                client = await server.client()
                await client.send(b"\x16\x03\x01")
                assert await client.is_closed()
                assert "not finished after" in server.logged("connection_closed")[0]

        run(story())

    def test_a_new_connection_that_is_held_has_all_its_time_afterwards(
        self,
        run: Run,
        tmp_path: Path,
        keys: dict[str, object],
        authority: Authority,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """There are too many new connections: its handshake does not begin yet, and is not late."""

        async def story() -> None:
            async with running_server(tmp_path, **keys) as server:
                node, later = server.node, asyncio.get_running_loop().call_later
                until: list[float] = []

                def connected(now: Now, connection: Connection) -> None:
                    node.connections.append(connection)
                    until.append(now.after_ms(60))
                    node.effects.append(Mute(connection, now.after_ms(60)))
                    # long enough to shake hands in, once it may begin
                    later(0.03, lambda: monkeypatch.setattr(tls, "HANDSHAKE_S_MAX", 60.0))

                node.connected = connected  # type: ignore[method-assign]
                monkeypatch.setattr(tls, "HANDSHAKE_S_MAX", 0.01)
                client = await secure_client(server, trusting(authority))
                assert await client.ask(ECHO, 1, b"in") == b"in"
                assert node.moments[0].mono >= until[0] - 0.001

        run(story())

    def test_half_open_connections_count(
        self, run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys, max_connections=2) as server:
                for _ in range(2):
                    await server.client()
                await server.until(lambda: len(server.process.connections.channels) == 2)
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await secure_client(server, trusting(authority))
                assert server.process.connections.refused == 1
                for client in server.clients:
                    client.close()
                await server.until(lambda: not server.process.connections.channels)
                client = await secure_client(server, trusting(authority))
                assert await client.ask(ECHO, 1, b"now") == b"now"

        run(story())

    def test_of_too_many_handshakes_the_oldest_give_way(
        self,
        run: Run,
        tmp_path: Path,
        keys: dict[str, object],
        authority: Authority,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(tls_listener, "UNFINISHED_MAX", 3)

        async def story() -> None:
            async with running_server(tmp_path, **keys) as server:
                first = await secure_client(server, trusting(authority))
                assert await first.ask(ECHO, 1, b"in") == b"in"
                silent = [await server.client() for _ in range(5)]  # cost little, and do not count
                idlers = [await server.client() for _ in range(3)]
                for idler in idlers:
                    await idler.send(b"\x16\x03\x01")
                await server.until(lambda: len(server.process.connections.channels) == 9)
                second = await secure_client(server, trusting(authority))
                assert await idlers[0].is_closed()
                assert "later ones are not finished" in server.logged("connection_closed")[0]
                for client in (first, second):  # who is in stays
                    assert await client.ask(ECHO, 2, b"still") == b"still"
                assert len(server.process.connections.channels) == 9
                late = [await server.client() for _ in range(2)]
                assert not any(client.reader.at_eof() for client in (*silent, *late))

        run(story())

    def test_many_handshakes_at_once(
        self, run: Run, tmp_path: Path, keys: dict[str, object], authority: Authority
    ) -> None:
        async def story() -> None:
            async with running_server(tmp_path, **keys) as server:
                context = trusting(authority)
                clients = await asyncio.gather(*(secure_client(server, context) for _ in range(40)))
                for number, client in enumerate(clients):
                    assert await client.ask(ECHO, number, b"%d" % number) == b"%d" % number

        run(story())


@pytest.mark.parametrize(
    ("key", "content", "says"),
    [
        ("ssl.keystore.location", b"", "is not in PEM format"),
        ("ssl.keystore.location", b"\xfe\xed\xfe\xed", "Convert it: keytool -importkeystore"),
        ("ssl.keystore.location", None, "cannot read"),
        (
            "ssl.keystore.location",
            b"-----BEGIN PRIVATE KEY-----\n",
            "must have a certificate and its private",
        ),
        ("ssl.truststore.location", b"-----BEGIN PRIVATE KEY-----\n", "has no PEM certificate"),
    ],
)
def test_files_that_cannot_be_used(
    tmp_path: Path, keys: dict[str, object], key: str, content: bytes | None, says: str
) -> None:
    path = tmp_path / "given"
    if content is not None:
        path.write_bytes(content)
    given = {**keys, "ssl_client_auth": "required", key: path}
    given.pop(key.replace(".", "_"))

    async def story() -> None:
        process = Process(settings(tmp_path, **given), log=Log("error"))
        with pytest.raises(CannotListen) as raised:
            await process.start()
        assert key in str(raised.value)
        assert says in str(raised.value)

    asyncio.run(story())
