"""The command line without a broker: help, wrong use, exit codes, what is imported when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.__main__ import main as begin
from headrace.cli.doctor import examine
from headrace.cli.main import COMMANDS, headrace, run
from headrace.cli.options import KEY_VALUE, SIZE
from headrace.cli.terminal import bytes_text, count_text
from unit.cli.commands import GROUPS, NOWHERE, all_commands


@pytest.mark.parametrize("words", all_commands(), ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(headrace, [*words, "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.output


@pytest.mark.parametrize(
    "words",
    [words for words in all_commands() if words not in GROUPS],
    ids=" ".join,
)
def test_every_command_has_json(words: tuple[str, ...]) -> None:
    assert "--json" in CliRunner().invoke(headrace, [*words, "--help"]).output


def test_help_lists_all_commands_without_importing_them() -> None:
    """`headrace --help` is quick: neither rich nor the client nor a codec is loaded for it."""
    program = (
        "import sys; from headrace.cli.main import run; run(['--help']);"
        "loaded = [m for m in sys.modules if m.split('.')[0] in ('rich', 'cramjam', 'asyncio')"
        " or m.startswith(('headrace.client', 'headrace.server', 'headrace.records'))];"
        "print('LOADED', loaded)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "LOADED []" in done.stdout
    for name in COMMANDS:
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topic", "create"],
        ["topic", "alter", "t"],
        ["topic", "create", "t", "-p", "0"],
        ["topic", "create", "t", "-c", "novalue"],
        ["topic", "trim", "t", "--before", "soon"],
        ["group", "describe"],
        ["group", "list", "--state", "Lively"],
        ["group", "list", "--type", "modern"],
        ["group", "reset", "g", "--to", "earliest"],
        ["group", "reset", "g", "--all-topics"],
        ["group", "reset", "g", "--all-topics", "--to", "latest", "--by", "1"],
        ["group", "reset", "g", "--all-topics", "-t", "t", "--to", "latest"],
        ["group", "reset", "g", "--all-topics", "--to", "soon"],
        ["group", "reset", "g", "-t", "t:3-1", "--to", "latest"],
        ["group", "delete", "g", "-t", "t:x"],
        ["cluster", "transactions", "--hanging", "tx"],
        ["cluster", "sinks", "reset"],
        ["config", "set", "topic", "t"],
        ["config", "get", "planet", "t"],
        ["consume", "t", "--from", "soon"],
        ["consume", "t", "--format", "%x"],
        ["consume", "t", "--json", "--format", "%s"],
        ["consume", "t", "--follow", "--to", "5"],
        ["produce", "t", "--key", "a", "--key-separator", ":"],
        ["produce", "t", "--json", "--key-separator", ":"],
        ["produce", "t", "--key-separator", ""],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "--rate", "0"],
        ["serve"],
        ["serve", "/nowhere/at/all.toml"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_exit_code_2_and_says_what(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert ("USAGE" if "--json" in arguments else "Error: ") in told.err


def test_a_state_that_does_not_exist_is_told_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["group", "list", "--state", "stabel"]) == 2
    said = capsys.readouterr().err
    assert "'stabel' is not one of Stable, Empty, Dead, PreparingRebalance," in said
    assert "did you mean Stable?" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["consume", "t"],
        ["produce", "t"],
        ["config", "get", "topic", "t"],
        ["cluster", "describe"],
        ["cluster", "transactions"],
        ["cluster", "sinks", "list"],
        ["group", "list"],
        ["group", "reset", "g", "--to", "latest", "-t", "t"],
        ["bench"],
    ],
    ids=" ".join,
)
def test_a_broker_that_is_down_is_one_sentence_and_what_to_do(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--bootstrap", NOWHERE, "--timeout", "0.3"]) == 1
    first, advice = capsys.readouterr().err.splitlines()
    assert first == "Error: cannot connect to 127.0.0.1:1: connection refused."
    assert "headrace up" in advice


def test_a_host_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "--bootstrap", "no.such.host.invalid:9092", "--timeout", "0.3"]) == 1
    assert "cannot find the host 'no.such.host.invalid'" in capsys.readouterr().err


def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "--bootstrap", "a:b"]) == 1
    assert "'a:b' is not of the form host:port" in capsys.readouterr().err


def test_interruptions_are_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main.headrace, "main", interrupted)
    assert run([]) == 1
    assert capsys.readouterr() == ("", "")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main.headrace, "main", broken)
    with pytest.raises(ZeroDivisionError):
        run([])


@pytest.mark.parametrize(
    ("text", "value"),
    [("1000", 1000), ("1M", 1_000_000), ("64KiB", 65536), ("1.5k", 1500), ("2gib", 2**31), ("1_000", 1000)],
)
def test_sizes(text: str, value: int) -> None:
    assert SIZE.convert(text, None, None) == value


@pytest.mark.parametrize("text", ["", "many", "-1", "1X", "1.2.3"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SIZE.convert(text, None, None)


def test_key_value() -> None:
    assert KEY_VALUE.convert("a=b=c", None, None) == ("a", "b=c")
    assert KEY_VALUE.convert("a=", None, None) == ("a", "")
    with pytest.raises(click.BadParameter):
        KEY_VALUE.convert("=b", None, None)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 * 2**30, "5.0 GiB"),
        (2**52, "4096.0 TiB"),
        (-1, ""),
    ],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_counts_for_people() -> None:
    assert [count_text(n, "record") for n in (0, 1, 2500)] == ["0 records", "1 record", "2,500 records"]


class TestDoctor:
    def test_finds_a_taken_port(self, tmp_path: Path) -> None:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as taken:
            found = {finding.check: finding for finding in examine(tmp_path, taken.getsockname()[1])}
        assert found["port"].state == "warning"
        assert found["Python"].state == "ok"
        assert found["disk"].found.endswith(str(tmp_path))

    def test_a_data_directory_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        found = {finding.check: finding for finding in examine(tmp_path / "file", 1)}
        assert found["disk"].state == "problem"


def test_serve_without_options_starts_a_node_and_loads_no_parser(tmp_path: Path) -> None:
    """The settings are refused, which shows that a node read them."""
    settings = tmp_path / "server.properties"
    settings.write_text("node.id=none\n")
    script = (
        "import sys; from headrace.cli.__main__ import main; code = main();"
        "print(code, 'click' in sys.modules, 'headrace.server.config' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "serve", str(settings)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 False True\n"
    assert "cannot_start" in done.stderr


@pytest.mark.parametrize("words", [["serve"], ["serve", "absent.toml"], ["serve", "--help"], ["serve", "."]])
def test_what_is_not_a_settings_file_goes_to_the_parser(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headrace", *words])
    code = begin()
    shown = capsys.readouterr()
    assert "Usage: headrace serve" in shown.out + shown.err
    assert code == (0 if "--help" in words else 2)
