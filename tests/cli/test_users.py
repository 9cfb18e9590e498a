"""`headrace user` against a broker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run
from headrace.client.threads.admin import Admin

BOTH = [
    {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
    {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
]


@pytest.fixture
def clean(cli_broker: Any) -> Iterator[None]:
    yield
    with Admin(cli_broker.bootstrap) as admin:
        for name, credentials in admin.describe_users().items():
            for one in credentials:
                admin.delete_passwords(name, mechanism=one.mechanism)


def password_file(directory: Path, text: str = "open sesame\n", mode: int = 0o600) -> str:
    path = directory / "password"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.usefixtures("clean")
def test_the_life_of_a_user(headrace: Any, tmp_path: Path) -> None:
    added = headrace("user", "add", "alice", "--password-stdin", stdin=b"secret\n")
    assert added.lines == ["added alice with a password for SCRAM-SHA-256 and SCRAM-SHA-512"]
    assert headrace("user", "list", "--json").json == [{"user": "alice", "credentials": BOTH}]
    assert headrace("user", "list").lines == ["alice"]

    taken = headrace.attempt("user", "add", "alice", "--password-stdin", stdin=b"other\n")
    assert (taken.code, "exists already" in taken.err) == (1, True)
    kept = headrace("user", "add", "alice", "--if-not-exists", "--json").json
    assert (kept["created"], kept["credentials"]) == (False, BOTH)

    path = password_file(tmp_path)
    changed = headrace("user", "password", "alice", "--password-file", path, "--iterations", "16384")
    assert changed.lines == ["changed the password of alice for SCRAM-SHA-256 and SCRAM-SHA-512"]
    (told,) = headrace("user", "list", "--json").json
    assert {one["iterations"] for one in told["credentials"]} == {16384}

    gone = headrace("user", "remove", "alice", "-m", "scram-sha-256", "--yes")
    assert gone.lines == ["removed SCRAM-SHA-256 of alice"]
    assert headrace("user", "remove", "alice", "--yes").lines == ["removed alice"]
    assert headrace("user", "list", "--json").json == []


@pytest.mark.usefixtures("clean")
def test_a_password_for_one_mechanism(inside: Any, tmp_path: Path) -> None:
    path = password_file(tmp_path)
    told = inside("user", "add", "bob", "-m", "SCRAM-SHA-512", "--password-file", path, "--json").json
    assert [one["mechanism"] for one in told["credentials"]] == ["SCRAM-SHA-512"]
    changed = inside("user", "password", "bob", "--password-file", path, "--json").json
    assert changed["changed"] == ["SCRAM-SHA-512"], "only where there is one"
    refused = inside.attempt("user", "remove", "bob", "-m", "SCRAM-SHA-256", "--yes")
    assert (refused.code, "has no password for SCRAM-SHA-256" in refused.err) == (1, True)


@pytest.mark.usefixtures("clean")
def test_users_that_are_not_there(inside: Any, tmp_path: Path) -> None:
    path = password_file(tmp_path)
    inside("user", "add", "alice", "--password-file", path)
    for words in (("password", "alcie", "--password-file", path), ("remove", "alcie", "--yes")):
        refused = inside.attempt("user", *words)
        assert refused.code == 1
        assert "Did you mean alice?" in refused.err


@pytest.mark.usefixtures("clean")
def test_passwords_come_from_a_terminal_stdin_or_a_file(headrace: Any, tmp_path: Path) -> None:
    nothing = headrace.attempt("user", "add", "a")
    assert (nothing.code, "--password-stdin or --password-file" in nothing.err) == (2, True)
    for stdin, reason in [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"\xff\n", "UTF-8"),
        (b"x" * 70_000, "too long"),
    ]:
        refused = headrace.attempt("user", "add", "a", "--password-stdin", stdin=stdin)
        assert (refused.code, reason in refused.err) == (1, True), refused.err
    both = headrace.attempt(
        "user", "add", "a", "--password-stdin", "--password-file", password_file(tmp_path)
    )
    assert both.code == 2
    for option in ("--password", "--password=secret"):
        refused = headrace.attempt("user", "add", "a", option)
        assert refused.code == 2
    seen = headrace("user", "add", "a", "--password-file", password_file(tmp_path, mode=0o644))
    assert "chmod 600" in seen.err
    assert "open sesame" not in seen.err + seen.out.decode()


@pytest.mark.usefixtures("clean")
def test_a_password_is_asked_for_on_a_terminal(headrace: Any) -> None:
    master, slave = os.openpty()
    process = headrace.start("user", "add", "ada", stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen = b""

    def until(text: bytes) -> None:
        nonlocal seen
        while text not in seen:
            seen += os.read(master, 1000)

    until(b"Password of 'ada': ")
    os.write(master, b"analytical\n")
    until(b"Once more: ")
    os.write(master, b"analytical\n")
    until(b"added ada")
    process.wait(60)
    os.close(master)
    assert b"analytical" not in seen


def test_names(inside: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["user", "add", "User:alice", "--password-stdin"]) == 2
    assert "without User:" in capsys.readouterr().err
    assert run(["user", "add", "", "--password-stdin"]) == 2


def test_iterations_out_of_range(inside: Any) -> None:
    refused = inside.attempt("user", "add", "x", "--iterations", "1000", "--password-stdin", "--json")
    assert (refused.code, json.loads(refused.err)["error"]) == (2, "USAGE")
