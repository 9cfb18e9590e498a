"""`headrace acl` against a broker with an authorizer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cli.main import run
from headrace.client.admin.acls import Acl, AclOperation, AclPattern, AclPermission, AclResource
from headrace.client.threads.admin import Admin


def rules(guarded: Any) -> list[tuple[str, ...]]:
    keys = ("permission", "principal", "operation", "resource", "name", "pattern", "host")
    return [tuple(one[key] for key in keys) for one in guarded("acl", "list", "--json").json]


def test_rules_are_added_listed_and_removed(guarded: Any) -> None:
    added = guarded("acl", "add", "--allow", "alice", "--operation", "write", "--topic", "orders")
    assert added.lines == ["added: allow User:alice to write topic orders"]
    guarded("acl", "add", "--deny", "User:bob", "-o", "all", "-t", "ord", "--prefix", "--host", "10.0.0.7")
    guarded("acl", "add", "--allow", "User:carol", "-o", "alter-configs", "--cluster")
    guarded("acl", "add", "--allow", "alice", "--operation", "WRITE", "--topic", "orders")  # once more
    assert sorted(rules(guarded)) == [
        ("allow", "User:alice", "write", "topic", "orders", "literal", "*"),
        ("allow", "User:carol", "alter_configs", "cluster", "kafka-cluster", "literal", "*"),
        ("deny", "User:bob", "all", "topic", "ord", "prefixed", "10.0.0.7"),
    ]
    table = guarded("acl", "list").lines
    assert table[0].split() == [
        "RULE",
        "PERMISSION",
        "PRINCIPAL",
        "OPERATION",
        "RESOURCE",
        "NAME",
        "PATTERN",
        "HOST",
    ]
    assert table[1].split() == ["1", "deny", "User:bob", "all", "topic", "ord", "prefixed", "10.0.0.7"]

    removed = guarded("acl", "remove", "--principal", "alice", "--yes")
    assert removed.lines == ["removed: allow User:alice to write topic orders"]
    assert len(rules(guarded)) == 2
    again = guarded("acl", "remove", "--principal", "alice", "--yes")
    assert again.lines == ["no rule matches; nothing was removed"]


def test_list_shows_what_holds_for_a_resource(guarded: Any) -> None:
    guarded("acl", "add", "--allow", "a", "-o", "read", "-t", "orders")
    guarded("acl", "add", "--allow", "b", "-o", "read", "-t", "ord", "--prefix")
    guarded("acl", "add", "--allow", "c", "-o", "read", "-t", "*")
    guarded("acl", "add", "--allow", "d", "-o", "read", "-t", "other")
    guarded("acl", "add", "--allow", "a", "-o", "read", "-g", "orders")

    def who(*options: str) -> set[str]:
        return {one["principal"] for one in guarded("acl", "list", "--json", *options).json}

    assert who("-t", "orders") == {"User:a", "User:b", "User:c"}
    assert who("-t", "ord", "--prefix") == {"User:b"}
    assert who("--prefix") == {"User:b"}
    assert who("-g", "orders") == {"User:a"}
    assert who("-t", "orders", "--principal", "b") == {"User:b"}
    numbers = {one["principal"]: one["rule"] for one in guarded("acl", "list", "--json").json}
    (_, told) = guarded("acl", "list", "--json", "-t", "other").json
    assert told["rule"] == numbers["User:d"] == 4, "the number is that of the whole list"


def test_what_producers_and_consumers_need(guarded: Any) -> None:
    guarded("acl", "add", "--allow", "p", "--producer", "--idempotent", "-t", "in.", "--prefix")
    guarded("acl", "add", "--allow", "c", "--consumer", "-t", "in", "-g", "readers")
    guarded("acl", "add", "--allow", "t", "--producer", "-t", "in", "--transactional-id", "mine")
    assert sorted(rules(guarded)) == sorted(
        [
            ("allow", "User:c", "describe", "topic", "in", "literal", "*"),
            ("allow", "User:c", "read", "group", "readers", "literal", "*"),
            ("allow", "User:c", "read", "topic", "in", "literal", "*"),
            ("allow", "User:p", "create", "topic", "in.", "prefixed", "*"),
            ("allow", "User:p", "describe", "topic", "in.", "prefixed", "*"),
            ("allow", "User:p", "idempotent_write", "cluster", "kafka-cluster", "literal", "*"),
            ("allow", "User:p", "write", "topic", "in.", "prefixed", "*"),
            ("allow", "User:t", "create", "topic", "in", "literal", "*"),
            ("allow", "User:t", "describe", "topic", "in", "literal", "*"),
            ("allow", "User:t", "describe", "transactional_id", "mine", "literal", "*"),
            ("allow", "User:t", "write", "topic", "in", "literal", "*"),
            ("allow", "User:t", "write", "transactional_id", "mine", "literal", "*"),
        ]
    )


def test_remove_takes_exactly_what_was_chosen(guarded: Any) -> None:
    guarded("acl", "add", "--allow", "a", "--deny", "a", "-o", "read", "-o", "write", "-t", "orders")
    guarded("acl", "add", "--allow", "a", "-o", "read", "-t", "orders", "--prefix")
    guarded("acl", "add", "--allow", "a", "-o", "read", "-t", "*")
    guarded("acl", "remove", "--allow", "a", "-o", "read", "-t", "orders", "--yes")
    assert sorted(rules(guarded)) == [
        ("allow", "User:a", "read", "topic", "*", "literal", "*"),
        ("allow", "User:a", "read", "topic", "orders", "prefixed", "*"),
        ("allow", "User:a", "write", "topic", "orders", "literal", "*"),
        ("deny", "User:a", "read", "topic", "orders", "literal", "*"),
        ("deny", "User:a", "write", "topic", "orders", "literal", "*"),
    ]
    guarded("acl", "remove", "-t", "*", "--yes")
    guarded("acl", "remove", "--prefix", "-t", "orders", "--yes")
    assert len(rules(guarded)) == 3
    guarded("acl", "remove", "--all", "--yes")
    assert rules(guarded) == []


def test_remove_asks_first(guarded: Any) -> None:
    guarded("acl", "add", "--allow", "a", "-o", "read", "-t", "orders")
    refused = guarded.attempt("acl", "remove", "--principal", "a")
    assert refused.code == 2
    assert "needs a confirmation" in refused.err
    assert "User:a" in refused.out.decode(), "it shows what it would remove"
    assert len(rules(guarded)) == 1
    unchosen = guarded.attempt("acl", "remove", "--yes")
    assert (unchosen.code, "--all" in unchosen.err) == (2, True)


def explained(guarded: Any, *words: str) -> str:
    (line,) = guarded("acl", "explain", *words).lines
    return str(line)


def test_explain_names_the_rule_that_decides(guarded: Any) -> None:
    guarded("acl", "add", "--allow", "alice", "-o", "read", "-t", "orders")
    guarded("acl", "add", "--deny", "alice", "-o", "write", "-t", "ord", "--prefix")
    guarded("acl", "add", "--allow", "alice", "-o", "write", "-t", "orders")
    denial = next(one["rule"] for one in guarded("acl", "list", "--json").json if one["permission"] == "deny")
    assert explained(guarded, "alice", "write", "-t", "orders") == (
        f"may User:alice write topic orders? no: rule {denial} denies it: "
        "deny User:alice to write topics ord* (unless User:alice is one of super.users)"
    )
    told = explained(guarded, "alice", "write", "-t", "orders", "--super-user", "User:admin")
    assert told.endswith("topics ord*"), "who says who they are needs no reservation"
    assert explained(guarded, "alice", "describe", "-t", "orders").startswith(
        "may User:alice describe topic orders? yes: rule "
    )
    assert "no rule allows User:bob READ on topic 'orders'" in explained(
        guarded, "bob", "read", "-t", "orders"
    )
    assert explained(guarded, "bob", "read", "-t", "x") == (
        "may User:bob read topic x? no: no rule is about topic 'x' (unless User:bob is one of super.users). "
        "If the broker has allow.everyone.if.no.acl.found=true: yes"
    )
    assert explained(guarded, "bob", "read", "-t", "x", "--allow-everyone").startswith(
        "may User:bob read topic x? yes"
    )
    assert "is a super user" in explained(guarded, "admin", "read", "-t", "x", "--super-user", "admin")
    (told,) = guarded("acl", "explain", "alice", "write", "-t", "orders", "--json").json
    assert (told["allowed"], told["rule"], told["operation"]) == (False, denial, "write")


def test_explain_asks_for_the_cluster_where_a_broker_does(guarded: Any) -> None:
    guarded("acl", "add", "--allow", "a", "-o", "create", "--cluster")
    guarded("acl", "add", "--allow", "b", "-o", "write", "-t", "t")
    assert "? yes: rule 2 allows it: allow User:a to create the cluster" in explained(
        guarded, "a", "create", "-t", "new"
    )
    assert "? no: " in explained(guarded, "a", "write", "-t", "new")
    assert "? yes: User:b may write to a topic" in explained(guarded, "b", "idempotent-write", "--cluster")
    assert "? no: " in explained(guarded, "c", "idempotent-write", "--cluster")


def test_explain_by_address(guarded: Any) -> None:
    guarded("acl", "add", "--allow", "a", "-o", "read", "-t", "t", "--host", "10.0.0.7")
    assert "? no: " in explained(guarded, "a", "read", "-t", "t")
    assert "from 10.0.0.7 read topic t? yes: rule 1 allows" in explained(
        guarded, "a", "read", "-t", "t", "--host", "10.0.0.7"
    )


def test_explain_on_a_broker_without_an_authorizer(inside: Any) -> None:
    (line,) = inside("acl", "explain", "a", "read", "-t", "t").lines
    assert line.endswith("? yes: the broker has no authorizer, so everybody may do everything")
    refused = inside.attempt("acl", "list", "--json")
    assert (refused.code, json.loads(refused.err)["error"]) == (1, "SECURITY_DISABLED")
    assert "authorizer.class.name" in json.loads(refused.err)["advice"]


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
        (("add", "--allow", "a", "-o", "create", "--cluster", "--prefix"), "--prefix"),
        (("explain", "a", "all", "-t", "t"), "not one operation"),
        (("explain", "a", "read"), "No resource"),
        (("explain", "a", "read", "-t", "t", "--prefix"), "whole name"),
        (("explain", "a", "idempotent-write", "-t", "t"), "not an operation on a topic"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["acl", *words, "-b", "127.0.0.1:1"]) == 2
    assert reason in capsys.readouterr().err


def test_the_broker_decides_as_explain_says(guarded: Any, guarded_broker: Any) -> None:
    """The rules of an authorizer that says no to somebody without a login."""
    with Admin(guarded_broker.bootstrap) as admin:
        admin.create_acls(
            [
                Acl(
                    AclResource.TOPIC,
                    "o",
                    "User:*",
                    AclOperation.ALL,
                    AclPermission.DENY,
                    AclPattern.PREFIXED,
                )
            ]
        )
    assert "? no: rule 1 denies it: deny User:* to do everything with topics o*" in explained(
        guarded, "anybody", "delete", "-t", "orders"
    )
