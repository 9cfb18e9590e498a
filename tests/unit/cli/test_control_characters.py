"""Control characters from the network never reach a terminal: all output goes through a few functions."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import click
import pytest

import headrace.cli
from headrace.cli import main
from headrace.cli.formats import compile_format
from headrace.cli.main import run
from headrace.cli.terminal import print_json, print_table, say, say_lines, visible
from headrace.client.errors import KafkaError
from headrace.records._messages import Message

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202egnp\r\n\x7f"
SHOWN = "\\u001b]0;owned\\u0007\\u009b2J\\u202egnp\\u000d\\u000a\\u007f"
SOURCES = sorted(Path(headrace.cli.__file__).parent.glob("*.py"))
# these functions escape; the completion script is our own text
PRINTING = {("terminal.py", "secho"), ("terminal.py", "echo"), ("completion.py", "echo")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_commands_print_by_terminal_py_alone(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in ("echo", "secho"):
            assert (path.name, called.attr) in PRINTING, f"{path.name}:{node.lineno}: use `say`"
        assert not (isinstance(called, ast.Name) and called.id == "print"), f"{path.name}:{node.lineno}"


def test_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"deleted {HOSTILE}")
    assert capsys.readouterr().out == f"deleted {SHOWN}\n"
    say_lines("a\n\tb\x1b[1m")
    assert capsys.readouterr().out == "a\n\tb\\u001b[1m\n"
    assert visible("Grüße, 世界 👋") == "Grüße, 世界 👋"


def test_a_table_keeps_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "B"), [("x\ny", "\x1b[31m"), ("long enough", 1)])
    assert capsys.readouterr().out.splitlines() == [
        "A            B",
        "x\\u000ay     \\u001b[31m",
        "long enough  1",
    ]


def test_json_has_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": HOSTILE})
    printed = capsys.readouterr().out.rstrip("\n")
    assert visible(printed) == printed
    assert json.loads(printed) == {"name": HOSTILE}


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "error", [KafkaError(40, HOSTILE), click.ClickException(HOSTILE), click.UsageError(HOSTILE)]
)
def test_errors(
    error: Exception, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(main.headrace, "main", fail)
    assert run(["topic", "list", *(["--json"] if as_json else [])]) in (1, 2)
    said = capsys.readouterr().err
    assert visible(said.replace("\n", "")) == said.replace("\n", "")
    assert "owned" in said


def test_records_are_exact_in_a_pipe_and_escaped_on_a_terminal() -> None:
    value = b"a\x1b[2J\xff\nb"
    record = Message("t", 0, 7, 0, key=b"k\x07", value=value, headers=(("h", b"\x1bc"),))
    assert compile_format("%k %s %h\\x1b")(record) == b"k\x07 " + value + b" h=\x1bc\x1b"
    assert compile_format("%k %s %h\\x1b", is_terminal=True)(record) == (
        b"k\\u0007 a\\u001b[2J\\xff\nb h=\\u001bc\x1b"
    )
