"""`headrace acl` and `headrace user`: rules, which one decides, and users with passwords."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as client
from harness.command_line import CommandLine
from headrace.testing import Broker

Rule = tuple[str, ...]


def rules(headrace: CommandLine) -> list[Rule]:
    keys = ("permission", "principal", "operation", "resource", "name", "pattern", "host")
    return sorted(tuple(one[key] for key in keys) for one in headrace("acl", "list", "--json").json)


def test_rules_are_added_listed_and_removed(headrace: CommandLine) -> None:
    added = headrace("acl", "add", "--allow", "alice", "--operation", "write", "--topic", "orders")
    assert added.lines == ["added: allow User:alice to write topic orders"]
    headrace("acl", "add", "--deny", "User:bob", "-o", "all", "-t", "ord", "--prefix", "--host", "10.0.0.7")
    headrace("acl", "add", "--allow", "carol", "-o", "alter-configs", "--cluster")
    assert rules(headrace) == [
        ("allow", "User:alice", "write", "topic", "orders", "literal", "*"),
        ("allow", "User:carol", "alter_configs", "cluster", "kafka-cluster", "literal", "*"),
        ("deny", "User:bob", "all", "topic", "ord", "prefixed", "10.0.0.7"),
    ]
    assert headrace("acl", "list").cells[0] == [
        *("1", "deny", "User:bob", "all", "topic", "ord", "prefixed", "10.0.0.7")
    ]
    assert [one["principal"] for one in headrace("acl", "list", "-t", "orders", "--json").json] == [
        "User:bob",
        "User:alice",
    ]
    refused = headrace("acl", "remove", "--principal", "alice", code=2)
    assert "needs a confirmation" in refused.err
    assert "User:alice" in refused.out.decode(), "it shows what it would remove"
    removed = headrace("acl", "remove", "--principal", "alice", "--yes")
    assert removed.lines == ["removed: allow User:alice to write topic orders"]
    again = headrace("acl", "remove", "--principal", "alice", "--yes")
    assert again.lines == ["no rule matches; nothing was removed"]
    assert "--all" in headrace.refused("acl", "remove", "--yes", code=2)
    headrace("acl", "remove", "--all", "--yes")
    assert rules(headrace) == []


def test_what_producers_and_consumers_need(headrace: CommandLine) -> None:
    headrace("acl", "add", "--allow", "p", "--producer", "--idempotent", "-t", "in.", "--prefix")
    headrace("acl", "add", "--allow", "c", "--consumer", "-t", "in", "-g", "readers")
    assert rules(headrace) == [
        ("allow", "User:c", "describe", "topic", "in", "literal", "*"),
        ("allow", "User:c", "read", "group", "readers", "literal", "*"),
        ("allow", "User:c", "read", "topic", "in", "literal", "*"),
        ("allow", "User:p", "create", "topic", "in.", "prefixed", "*"),
        ("allow", "User:p", "describe", "topic", "in.", "prefixed", "*"),
        ("allow", "User:p", "idempotent_write", "cluster", "kafka-cluster", "literal", "*"),
        ("allow", "User:p", "write", "topic", "in.", "prefixed", "*"),
    ]


def explained(headrace: CommandLine, *words: str) -> str:
    (line,) = headrace("acl", "explain", *words).lines
    return line


def test_explain_names_the_rule_that_decides(headrace: CommandLine) -> None:
    headrace("acl", "add", "--allow", "alice", "-o", "read", "-t", "orders")
    headrace("acl", "add", "--deny", "alice", "-o", "write", "-t", "ord", "--prefix")
    headrace("acl", "add", "--allow", "alice", "-o", "write", "-t", "orders")
    (told,) = headrace("acl", "explain", "alice", "write", "-t", "orders", "--json").json
    number = told["rule"]
    assert (told["allowed"], told["text"]) == (False, "deny User:alice to write topics ord*")
    listed = {one["rule"]: one["permission"] for one in headrace("acl", "list", "--json").json}
    assert listed[number] == "deny"
    assert explained(headrace, "alice", "write", "-t", "orders") == (
        f"may User:alice write topic orders? no: rule {number} denies it: "
        "deny User:alice to write topics ord* (unless User:alice is one of super.users)"
    )
    sure = explained(headrace, "alice", "write", "-t", "orders", "--super-user", "admin")
    assert sure.endswith("topics ord*")
    assert "? yes: rule " in explained(headrace, "alice", "describe", "-t", "orders")
    assert "is a super user" in explained(headrace, "admin", "read", "-t", "x", "--super-user", "admin")


def test_explain_without_a_rule(headrace: CommandLine) -> None:
    assert explained(headrace, "bob", "read", "-t", "x") == (
        "may User:bob read topic x? no: no rule is about topic 'x' (unless User:bob is one of super.users). "
        "If the broker has allow.everyone.if.no.acl.found=true: yes"
    )
    assert "? yes" in explained(headrace, "bob", "read", "-t", "x", "--allow-everyone")


def test_explain_asks_as_a_broker_does(headrace: CommandLine) -> None:
    """Who may create topics in the cluster may create each; who may write may write idempotently."""
    headrace("acl", "add", "--allow", "a", "-o", "create", "--cluster")
    headrace("acl", "add", "--allow", "b", "-o", "write", "-t", "t")
    headrace("acl", "add", "--allow", "c", "-o", "read", "-t", "t", "--host", "10.0.0.7")
    assert "allow User:a to create the cluster" in explained(headrace, "a", "create", "-t", "new")
    assert "? no: " in explained(headrace, "a", "write", "-t", "new")
    assert "may User:b idempotent-write the cluster? yes" in explained(
        headrace, "b", "idempotent-write", "--cluster"
    )
    assert "? no: " in explained(headrace, "c", "idempotent-write", "--cluster")
    assert "? no: " in explained(headrace, "c", "read", "-t", "t")
    assert "from 10.0.0.7 read topic t? yes: rule" in explained(
        headrace, "c", "read", "-t", "t", "--host", "10.0.0.7"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("add", "-o", "read", "-t", "t"), "--allow or --deny"),
        (("add", "--allow", "a", "-t", "t"), "No operation"),
        (("add", "--allow", "a", "-o", "read"), "No resource"),
        (("add", "--allow", "a", "-o", "raed", "-t", "t"), "did you mean read?"),
        (("add", "--allow", "a", "-o", "idempotent-write", "-t", "t"), "not an operation on a topic"),
        (("add", "--allow", "User:", "-o", "read", "-t", "t"), "write User:NAME"),
        (("add", "--allow", "a", "-o", "read", "-t", ""), "empty"),
        (("add", "--allow", "a", "--producer"), "need a --topic"),
        (("add", "--allow", "a", "--consumer", "-t", "t"), "needs a --group"),
        (("add", "--allow", "a", "--producer", "-t", "t", "-g", "g"), "no rules for --group"),
        (("add", "--allow", "a", "--producer", "-o", "read", "-t", "t"), "cannot be added"),
        (("add", "--allow", "a", "--idempotent", "-o", "read", "-t", "t"), "only with --producer"),
        (("explain", "a", "all", "-t", "t"), "not one operation"),
        (("explain", "a", "read"), "No resource"),
        (("explain", "a", "read", "-t", "t", "--prefix"), "whole name"),
    ],
)
def test_wrong_usage(headrace: CommandLine, words: tuple[str, ...], reason: str) -> None:
    assert reason in headrace.refused("acl", *words, code=2)


# --- users -------------------------------------------------------------------------------------------------


@pytest.fixture
def password(tmp_path: Path) -> str:
    """A file with a password."""
    path = tmp_path / "password"
    path.write_text("open sesame\n")
    path.chmod(0o600)
    return str(path)


def test_the_life_of_a_user(headrace: CommandLine, password: str) -> None:
    added = headrace("user", "add", "alice", "--password-file", password)
    assert added.lines == ["added alice with a password for SCRAM-SHA-256 and SCRAM-SHA-512"]
    assert headrace("user", "list").lines == ["alice"]
    assert "exists already" in headrace.refused("user", "add", "alice", "--password-file", password)
    kept = headrace("user", "add", "alice", "--if-not-exists", "--json").json
    assert (kept["created"], len(kept["credentials"])) == (False, 2)
    changed = headrace("user", "password", "alice", "--password-file", password, "--iterations", "16384")
    assert changed.lines == ["changed the password of alice for SCRAM-SHA-256 and SCRAM-SHA-512"]
    (told,) = headrace("user", "list", "--json").json
    assert {one["iterations"] for one in told["credentials"]} == {16384}
    gone = headrace("user", "remove", "alice", "-m", "scram-sha-256", "--yes").lines
    assert gone == ["removed SCRAM-SHA-256 of alice"]
    only = headrace("user", "password", "alice", "--password-file", password, "--json").json
    assert only["changed"] == ["SCRAM-SHA-512"], "where there is one"
    assert "has no password for SCRAM-SHA-256" in headrace.refused(
        "user", "remove", "alice", "-m", "SCRAM-SHA-256", "--yes"
    )
    assert "Remove user alice?" in headrace.refused("user", "remove", "alice", code=2)
    assert "Did you mean alice?" in headrace.refused("user", "remove", "alcie", "--yes")
    assert headrace("user", "remove", "alice", "--yes", "--json").json == ["alice"]
    assert headrace("user", "list", "--json").json == []


def test_a_password_for_one_mechanism(headrace: CommandLine, broker: Broker, password: str) -> None:
    headrace("user", "add", "alice", "-m", "SCRAM-SHA-512", "--password-file", password)
    with client.Admin(broker.bootstrap_servers) as admin:
        (credential,) = admin.describe_users()["alice"]
    assert credential.mechanism == "SCRAM-SHA-512"


def test_wrong_names(headrace: CommandLine) -> None:
    assert "empty" in headrace.refused("user", "add", "", code=2)
    assert "without User:" in headrace.refused("user", "add", "User:alice", code=2)


def test_a_user_before_the_first_start(headrace: CommandLine, tmp_path: Path, password: str) -> None:
    """The credentials wait in a file for its owner alone, and the first start takes them."""
    data = tmp_path / "data"
    data.mkdir()
    words = ("user", "add", "alice", "--data", str(data), "--password-file", password)
    assert headrace(*words).lines == [f"added alice, who is known from the first start of {data} on"]
    (file,) = (path for path in data.iterdir() if "bootstrap" in path.name)
    assert file.stat().st_mode & 0o077 == 0
    assert b"open sesame" not in file.read_bytes()
    assert "exists already" in headrace.refused(*words)
    again = headrace(*words, "--if-not-exists", "--json").json
    assert again == {"user": "alice", "created": False, "data": str(data)}
    assert headrace("user", "list").lines == [], "the running broker is another one"


def test_a_cluster_that_was_started_takes_no_users_by_a_file(
    headrace: CommandLine, tmp_path: Path, password: str
) -> None:
    with Broker(storage="disk", path=tmp_path / "kept"):
        pass
    directory = next(path.parent for path in (tmp_path / "kept").rglob("meta.properties"))
    said = headrace.refused("user", "add", "alice", "--data", str(directory), "--password-file", password)
    assert "has been started" in said
    assert "`headrace user add` without --data" in said
