"""Errors of commands with --json: one object on stderr, nothing but results on stdout."""

from __future__ import annotations

import json
import logging
from typing import Any

import click
import pytest

from headrace.cli import main
from headrace.cli.main import run
from headrace.cli.reporting import wants_json
from headrace.client.errors import ClientError, KafkaError, PartlyFailed, TimedOut
from headrace.protocol.errors import ErrorCode
from unit.cli.commands import GROUPS, NOWHERE, all_commands

FIELDS = {"error", "message", "advice", "code", "retriable", "exit_code"}


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = run([*arguments, "--json"])
    said = capsys.readouterr()
    assert said.out == ""
    told: dict[str, Any] = json.loads(said.err)
    assert told.keys() == FIELDS
    assert told["exit_code"] == code
    return told


@pytest.mark.parametrize("words", [words for words in all_commands() if words not in GROUPS], ids=" ".join)
def test_wrong_use_of_every_command(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    told = failed(capsys, *words, "--no-such-option")
    assert (told["error"], told["exit_code"], told["code"]) == ("USAGE", 2, None)
    assert "--no-such-option" in told["message"]
    assert told["advice"] == f"Try 'headrace {' '.join(words)} --help'."


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("topicc", "list"), "topic"), (("topic", "lits"), "list"), (("group", "rest"), "reset")],
)
def test_a_command_that_does_not_exist(
    words: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = failed(capsys, *words)
    assert (told["error"], told["exit_code"]) == ("USAGE", 2)
    assert f"Did you mean '{meant}'?" in told["message"]


@pytest.mark.parametrize(
    "words",
    [("topic", "list"), ("consume", "t"), ("produce", "t"), ("group", "lag"), ("cluster", "describe")],
    ids=" ".join,
)
def test_a_broker_that_is_down(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    told = failed(capsys, *words, "--bootstrap", NOWHERE, "--timeout", "0.3")
    assert (told["error"], told["retriable"], told["exit_code"]) == ("UNREACHABLE", True, 1)
    assert told["message"] == "cannot connect to 127.0.0.1:1: connection refused."
    assert "headrace up" in told["advice"]


def test_a_file_that_is_not_of_a_log(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    told = failed(capsys, "dump", str(tmp_path / "notes.txt"))
    assert (told["error"], told["exit_code"]) == ("FAILED", 1)


@pytest.mark.parametrize(
    ("error", "name", "code", "is_retriable"),
    [
        (KafkaError(ErrorCode.INVALID_CONFIG, "no"), "INVALID_CONFIG", 40, False),
        (TimedOut("late"), "TIMED_OUT", None, True),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), "ENOENT", 2, False),
        (click.Abort(), "ABORTED", None, False),
        (click.ClickException("it broke."), "FAILED", None, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_kind_of_error(
    error: BaseException,
    name: str,
    code: int | None,
    is_retriable: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(main.headrace, "main", fail)
    told = failed(capsys)
    assert (told["error"], told["code"], told["retriable"]) == (name, code, is_retriable)


def test_what_failed_for_several_things_tells_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one: ClientError = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject="topic 'a'")
    other: ClientError = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, subject="topic 'b'")

    def fail(**_: object) -> None:
        raise PartlyFailed({"a": one, "b": other}, {})

    monkeypatch.setattr(main.headrace, "main", fail)
    assert run(["--json"]) == 1
    told = json.loads(capsys.readouterr().err)
    assert told["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert [(each["error"], each["code"]) for each in told["failures"]] == [
        ("UNKNOWN_TOPIC_OR_PARTITION", 3),
        ("TOPIC_AUTHORIZATION_FAILED", 29),
    ]


def test_warnings_of_the_client_are_lines_of_the_same_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warn(**_: object) -> None:
        logging.getLogger("headrace.client").warning("the broker is %s", "slow")

    monkeypatch.setattr(main.headrace, "main", warn)
    assert (run([]), capsys.readouterr().err) == (0, "Warning: the broker is slow\n")
    assert run(["--json"]) == 0
    assert json.loads(capsys.readouterr().err) == {"warning": "the broker is slow"}


def test_an_argument_behind_two_dashes_is_not_the_option() -> None:
    assert wants_json(["topic", "list", "--json"])
    assert not wants_json(["topic", "describe", "--", "--json"])
