"""`headrace user add --data`: a user who is there from the first start on."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from cli.running import Up
from harness.headrace import Headrace
from headrace import Admin
from headrace.client.errors import ClientError

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "admin",
    "default.api.timeout.ms": 20_000,
}


def broker(directory: Path) -> Headrace:
    """With logins by SCRAM; the other listener tells that it serves."""
    return Headrace(
        directory,
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
        },
    )


def address(broker: Headrace) -> str:
    (line,) = [line for line in broker.output().splitlines() if line.startswith("ready ")][-1:]
    return line.split()[1].split(",")[0]


def test_the_first_start_knows_the_user(new_shell: Any, tmp_path: Path) -> None:
    shell = new_shell("127.0.0.1:1")
    broker_ = broker(tmp_path)
    data = str(broker_.data)
    added = shell("user", "add", "admin", "--data", data, "--password-stdin", stdin=b"open sesame\n")
    assert added.lines == [f"added admin, who is known from the first start of {data} on"]
    path = broker_.data / "bootstrap.checkpoint"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"open sesame" not in path.read_bytes()
    taken = shell.attempt("user", "add", "admin", "--data", data, "--password-stdin", stdin=b"other\n")
    assert (taken.code, "exists already" in taken.err) == (1, True)
    kept = shell("user", "add", "admin", "--data", data, "--if-not-exists", "--json").json
    assert kept["created"] is False
    shell("user", "add", "other", "--data", data, "-m", "SCRAM-SHA-256", "--password-stdin", stdin=b"x\n")
    with broker_:
        for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
            settings = LOGIN | {"sasl.password": "open sesame", "sasl.mechanism": mechanism}
            with Admin({"bootstrap.servers": address(broker_), **settings}) as admin:
                assert sorted(admin.describe_users()) == ["admin", "other"]
        with (
            pytest.raises(ClientError),
            Admin({"bootstrap.servers": address(broker_), **LOGIN, "sasl.password": "wrong"}) as admin,
        ):
            admin.list_brokers()
        running = shell.attempt("user", "add", "late", "--data", data, "--password-stdin", stdin=b"x\n")
        assert (running.code, "has been started" in running.err) == (1, True)
    refused = shell.attempt("user", "add", "late", "--data", data, "--password-stdin", stdin=b"x\n")
    assert (refused.code, "has been started" in refused.err) == (1, True)


def test_users_for_the_nodes_of_up(new_shell: Any, tmp_path: Path) -> None:
    shell = new_shell("127.0.0.1:1")
    data = tmp_path / "cluster"
    shell("user", "add", "admin", "--data", str(data), "--password-stdin", stdin=b"secret\n")
    up = Up(shell, data, "--brokers", "2")
    try:
        assert up.line.startswith("ready ")
        listed = shell("user", "list", "-b", up.line.split()[1])
        assert listed.lines == ["admin"]
        assert shell.attempt("user", "add", "b", "--data", str(data), "--password-stdin").code == 1
    finally:
        up.end()
    refused = shell.attempt("user", "add", "b", "--data", str(data), "--password-stdin", stdin=b"x\n")
    assert (refused.code, "node-1/data has been started" in refused.err) == (1, True)
