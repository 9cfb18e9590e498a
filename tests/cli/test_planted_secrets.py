"""Passwords that are planted everywhere they can be given, and looked for in all that is written anywhere:
the log, the audit log, metrics, answers, errors with their traces, commands with and without --json.
"""

from __future__ import annotations

import base64
import subprocess
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from cli.shell import Shell
from harness.headrace import Headrace
from harness.kafka import free_ports
from harness.message_socket import MessageSocket
from headrace import Admin, Consumer, Producer
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.keys import producer_keys
from headrace.client.settings.security import security_settings
from headrace.node.listener_security import sasl_settings
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.server.config import read_settings

OF_ALICE, OF_BOB, WRONG, OF_KEY = "planted-alices", "planted-bobs", "planted-wrong", "planted-keys"
SECRETS = (OF_ALICE, OF_BOB, WRONG, OF_KEY)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


def forms(secret: str) -> list[str]:
    """How it could be written: as it is, in hexadecimal digits, in base64 at each of three positions."""
    encoded = [base64.b64encode(b"\0" * shift + secret.encode()).decode() for shift in range(3)]
    return [secret, secret.encode().hex(), *(text[4:-4] for text in encoded)]


class Loud(Headrace):
    """Writes all it has to say."""

    def spawn(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        self._printed = output.tell()
        command = [*self.command, "serve", str(self.directory / "server.properties"), "--log-level", "debug"]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


class Told:
    """All that was written, by where."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, where: str, text: str) -> str:
        assert text, f"{where}: nothing was written, so nothing was tested"
        self.texts[where] = text
        return text

    def found(self) -> list[str]:
        return [
            f"{secret} in {where}"
            for where, text in self.texts.items()
            for secret in SECRETS
            if any(form in text for form in forms(secret))
        ]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Loud]:
    secrets = tmp_path / "secrets.properties"
    users = f'user_alice\\="{OF_ALICE}" user_carol\\="{OF_ALICE}"'
    secrets.write_text(f"users={MODULE} required {users};\nkey={OF_KEY}\n")
    secrets.chmod(0o644)  # so that the broker has something to say about it
    login, metrics = free_ports(2)
    loud = Loud(
        tmp_path / "broker",
        {
            "listeners": f"LOGIN://127.0.0.1:{login},PLAINTEXT://127.0.0.1:0",
            "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "config.providers": "file",
            "config.providers.file.class": PROVIDER,
            "listener.name.login.plain.sasl.jaas.config": f"${{file:{secrets}:users}}",
            "ssl.key.password": f"${{file:{secrets}:key}}",
            "authorizer.class.name": "standard",
            "super.users": "User:alice",
            "headrace.audit.log.level": "debug",
            "headrace.metrics.port": str(metrics),
        },
    )
    with loud:
        yield loud


def client_settings(port: int, user: str, password: str, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
        "default.api.timeout.ms": "5000",
        **more,
    }


def failure(act: Callable[[], object]) -> str:
    """What an error says, with its trace and all that is behind it."""
    with pytest.raises(Exception) as raised:
        act()
    return "".join(traceback.format_exception(raised.value)) + repr(raised.value)


def test_no_secret_is_written_anywhere(
    broker: Loud, tmp_path: Path, new_shell: Callable[[str], Shell]
) -> None:
    told = Told()
    port = int(broker.settings["listeners"].split(",")[0].rpartition(":")[2])
    _use_clients(told, port)
    _use_messages(told, port)
    _use_commands(told, broker, port, tmp_path, new_shell(f"127.0.0.1:{port}"))
    _print_values(told, broker, port)
    assert "headrace_audit_entries_total" in told.add("metrics", _metrics(broker))
    broker.stop()
    log = told.add("log", broker.output())
    audit = told.add("audit log", (broker.data / "audit.log").read_text())
    assert "secret_file_readable" in log
    assert "login_refused" in log
    for event in ("login", "login_refused", "changed", "allowed", "refused"):
        assert f'"event": "{event}"' in audit
    assert told.found() == []


def _use_clients(told: Told, port: int) -> None:
    """Logins that succeed and fail, and passwords that are set."""
    with Admin(client_settings(port, "alice", OF_ALICE)) as admin:
        admin.create_topic("t", partitions=1)
        admin.set_password("bob", OF_BOB)
        admin.set_password("alice", OF_BOB)  # for metrics
        told.add("admin", repr(admin) + str(vars(admin)))
    scram = client_settings(port, "bob", OF_BOB) | {"sasl.mechanism": "SCRAM-SHA-512"}
    told.add("no right", failure(lambda: _create(scram)))  # bob is in, and may do nothing
    with Producer(client_settings(port, "alice", OF_ALICE)) as producer:
        producer.send("t", b"v").get()
        told.add("producer", repr(producer) + str(vars(producer)))
    with Consumer(client_settings(port, "alice", OF_ALICE)) as consumer:
        told.add("consumer", repr(consumer) + str(vars(consumer)))
    told.add("wrong password", failure(lambda: _create(client_settings(port, "alice", WRONG))))
    wrong_scram = client_settings(port, "bob", WRONG) | {"sasl.mechanism": "SCRAM-SHA-512"}
    told.add("wrong SCRAM password", failure(lambda: _create(wrong_scram)))
    jaas = f'x.PlainLoginModule required username="alice" password="{WRONG}"'  # without its semicolon
    given: dict[str, str] = client_settings(port, "alice", WRONG) | {"sasl.jaas.config": jaas}
    told.add("wrong JAAS text", failure(lambda: Admin(given)))
    told.add("NUL", failure(lambda: Admin(client_settings(port, "alice", f"{WRONG}\0"))))


def _metrics(broker: Loud) -> str:
    login = base64.b64encode(f"alice:{OF_BOB}".encode()).decode()
    url = f"http://127.0.0.1:{broker.settings['headrace.metrics.port']}/metrics"
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
    ) as page:
        text: str = page.read().decode()
    return text


def _create(settings: dict[str, str]) -> None:
    with Admin(settings) as admin:
        admin.create_topic("other", partitions=1)


def _use_messages(told: Told, port: int) -> None:
    """What a client can make the broker say."""
    client = MessageSocket(port)
    client.ask("x", SaslHandshakeRequest(mechanism="PLAIN"), 1)
    login = f"\0alice\0{OF_ALICE}".encode()
    assert client.ask("x", SaslAuthenticateRequest(auth_bytes=login), 2).error_code == 0
    for number, (kind, name, keys) in enumerate(
        (
            (4, "1", ("ssl.key.password", "sasl.jaas.config", "nobody.knows.this")),
            (2, "t", ("nobody.knows.this",)),
        )
    ):
        for key in keys:
            change = AlterableConfig(name=key, config_operation=0, value=OF_KEY)
            resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
            answer = client.ask("x", IncrementalAlterConfigsRequest(resources=[resource]), 1)
            told.add(f"answer {number} to {key}", str(answer))
    for kind, name in ((4, "1"), (4, ""), (2, "t")):
        described = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        asked = DescribeConfigsRequest(
            resources=[described], include_synonyms=True, include_documentation=True
        )
        answer = client.ask("x", asked, 4)
        told.add(f"settings of {kind} {name}", str(answer))
        if (kind, name) == (4, "1"):
            (result,) = answer.results
            values = {config.name: (config.value, config.is_sensitive) for config in result.configs}
            assert values["ssl.key.password"] == values["sasl.jaas.config"] == (None, True)
    client.close()


def _use_commands(told: Told, broker: Loud, port: int, directory: Path, shell: Shell) -> None:
    good, bad = directory / "good.properties", directory / "bad.properties"
    for path, password in ((good, OF_ALICE), (bad, WRONG)):
        lines = (f"{name}={text}\n" for name, text in client_settings(port, "alice", password).items())
        path.write_text("".join(lines))
    configured = ("--client-config", str(good))
    for command in (
        ("cluster", "describe", *configured),
        ("cluster", "describe", "--json", *configured),
        ("config", "describe", "broker", "1", "--json", *configured),
        ("config", "describe", "broker", "1", *configured),
        ("user", "list", "--json", *configured),
        ("topic", "describe", "t", "--json", *configured),
        ("doctor", "--config", str(broker.directory / "server.properties")),
        ("doctor", "--json", "--config", str(broker.directory / "server.properties")),
    ):
        done = shell.attempt(*command)
        told.add(" ".join(command[:4]), done.out.decode() + done.err)
    added = shell("user", "add", "dora", "--password-stdin", *configured, stdin=f"{OF_BOB}\n".encode())
    told.add("user add", added.out.decode() + added.err)
    failing: tuple[tuple[str, ...], ...] = (
        ("topic", "list", "--client-config", str(bad)),
        ("topic", "list", "--json", "--client-config", str(bad)),
        ("topic", "list", *configured, "-X", f"sasl.pasword={WRONG}"),
        ("topic", "list", *configured, "-X", f"sasl.mechanism={'GSSAPI'}", "-X", f"sasl.password={WRONG}"),
    )
    for words in failing:
        done = shell.attempt(*words)
        assert done.code != 0
        told.add(f"failed {' '.join(words[2:])}".replace(WRONG, "…"), done.out.decode() + done.err)
    wrong = directory / "wrong.properties"
    text = (broker.directory / "server.properties").read_text()
    wrong.write_text(text + f"num.partitions=${{file:{directory}/secrets.properties:key}}\n")
    for words in (("serve", str(wrong)), ("doctor", "--config", str(wrong), "--json")):
        done = shell.attempt(*words)
        assert done.code != 0
        assert "[hidden]" in told.add(f"wrong settings {words[0]}", done.out.decode() + done.err)


def _print_values(told: Told, broker: Loud, port: int) -> None:
    """Settings as values, which a debugger or a careless log line would show."""
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        given: dict[str, Any] = client_settings(port, "alice", OF_ALICE) | {"sasl.mechanism": mechanism}
        given["ssl.key.password"] = OF_KEY
        configuration = Configuration(producer_keys(), given)
        told.add(f"client's settings {mechanism}", f"{configuration!r} {dict(configuration)}")
        told.add(f"client's security {mechanism}", repr(security_settings(configuration)))
    file = read_settings(broker.directory / "server.properties")
    told.add("broker's settings", f"{file!r} {file.settings!r}")
    sasl = sasl_settings(file.settings.texts, "LOGIN", is_encrypted=False, is_loopback=True)
    assert OF_ALICE in sasl.passwords.values()
    told.add("SASL settings", repr(sasl))


def test_the_search_finds_what_is_there() -> None:
    """It would find a password in each form."""
    for number, form in enumerate(forms(OF_ALICE)):
        told = Told()
        told.add("somewhere", f"a line with {form} in it")
        assert told.found() == [f"{OF_ALICE} in somewhere"], number
    message = base64.b64encode(f"\0alice\0{OF_ALICE}".encode()).decode()
    told = Told()
    told.add("login", message)
    assert told.found()
