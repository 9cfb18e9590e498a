"""Settings of a command's clients: from a file as Kafka's tools take it, and one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.shell import Shell
from harness.broker import Broker

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def shell(new_shell: Callable[[str], Shell]) -> Shell:
    """Whose environment names no broker."""
    shell = new_shell("")
    del shell.environment["HEADRACE_BOOTSTRAP"]
    return shell


def test_a_file_names_the_brokers_and_what_all_clients_are_to_know(
    shell: Shell, cli_broker: Broker, topic: str, tmp_path: Path
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(
        f"bootstrap.servers={cli_broker.bootstrap}\n"
        "security.protocol=PLAINTEXT\n"
        "acks=1\n"  # a producer's: others pass it over
        "fetch.max.bytes=1000000\n"
    )
    told = ("--client-config", str(settings))
    shell("produce", topic, *told, stdin=b"one\ntwo\n")
    assert sorted(shell("consume", topic, "--from", "earliest", "-n", "2", *told).lines) == ["one", "two"]
    assert topic in shell("topic", "list", *told).lines
    shell.environment["HEADRACE_CLIENT_CONFIG"] = str(settings)
    assert topic in shell("topic", "list").lines


def test_the_command_line_wins_over_the_file(
    shell: Shell, cli_broker: Broker, topic: str, tmp_path: Path
) -> None:
    settings = tmp_path / "client.toml"
    settings.write_text(f'[bootstrap]\nservers = "{NOWHERE}"\n[security]\nprotocol = "SSL"\n')
    for order in (1, -1):
        options = [("--client-config", str(settings)), ("-X", "security.protocol=PLAINTEXT")][::order]
        words = [word for option in options for word in option]
        assert topic in shell("topic", "list", "-b", cli_broker.bootstrap, *words).lines


def test_a_setting_that_does_not_exist(shell: Shell, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("# mine\nsecurity.protokoll=SSL\n")
    done = shell.attempt("topic", "list", "--client-config", str(settings))
    assert (done.code, done.out) == (1, b"")
    said = f"Error: {settings}:2: unknown setting security.protokoll; did you mean security.protocol?"
    assert done.err.splitlines() == [said]


def test_a_value_that_cannot_be(shell: Shell) -> None:
    done = shell.attempt("topic", "list", "-X", "security.protocol=TELNET")
    assert done.code == 1
    assert "security.protocol" in done.err
