"""`headrace tenant` against a broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.guarded import AUTHORIZED
from cli.shell import Inside
from headrace.cli.main import run
from headrace.client.admin.configs import Append, Resource
from headrace.client.admin.users import QuotaEntity
from headrace.client.errors import TimedOut
from headrace.client.threads.admin import Admin
from headrace.machines.metadata.controller.tenants import TENANTS_KEY


@pytest.fixture
def tenants(guarded: Any, guarded_broker: Any) -> Iterator[Any]:
    yield guarded
    for name in ("blue", "green"):
        guarded.attempt("tenant", "remove", name, "--yes")
    with Admin(guarded_broker.bootstrap) as admin:
        for topic in admin.list_topics():
            admin.delete_topic(topic.name)


def test_the_life_of_a_tenant(tenants: Any) -> None:
    made = tenants(
        "tenant",
        "create",
        "blue",
        "--user",
        "alice",
        "--partitions",
        "4",
        "--quota",
        "producer_byte_rate=1MB",
    )
    assert made.lines == ["created tenant blue: 1 user, 0 topics, 0 partitions of at most 4"]
    rules = tenants("acl", "list", "--json").json
    assert {
        (one["principal"], one["operation"], one["resource"], one["name"], one["pattern"]) for one in rules
    } == {("User:alice", "all", kind, "blue.", "prefixed") for kind in ("topic", "group", "transactional_id")}
    (told,) = tenants("acl", "explain", "alice", "write", "-t", "blue.orders", "--json").json
    assert told["allowed"]
    (told,) = tenants("acl", "explain", "alice", "write", "-t", "green.orders", "--json").json
    assert not told["allowed"]

    tenants("topic", "create", "blue.orders", "-p", "3")
    refused = tenants.attempt("topic", "create", "blue.more", "-p", "2", "--json")
    assert (refused.code, json.loads(refused.err)["error"]) == (1, "POLICY_VIOLATION")
    assert tenants.attempt("topic", "alter", "blue.orders", "-p", "5").code == 1

    changed = tenants("tenant", "create", "blue", "--partitions", "5", "--user", "bob", "--json").json
    assert (changed["created"], changed["partitions"], changed["partitions_max"]) == (False, 3, 5)
    assert [one["principal"] for one in changed["users"]] == ["User:alice", "User:bob"]
    tenants("topic", "create", "blue.more", "-p", "2")
    again = tenants("tenant", "create", "blue", "--json").json
    assert (again["created"], again["partitions_max"]) == (False, 5), "nothing was said about the limit"

    described = tenants("tenant", "describe", "blue", "--json").json
    assert described["topics"] == {"blue.more": 2, "blue.orders": 3}
    assert described["users"][0] == {"principal": "User:alice", "quotas": {"producer_byte_rate": 1e6}}
    assert tenants("tenant", "describe", "blue").lines[0] == "blue"
    assert tenants("tenant", "list").lines[1].split() == ["blue", "User:alice,", "User:bob", "2", "5", "5"]


def test_removal_leaves_topics_and_what_others_own(tenants: Any, guarded_broker: Any) -> None:
    for name in ("blue", "green"):
        tenants("tenant", "create", name, "--user", "alice", "--user", f"of-{name}", "--partitions", "9")
    tenants(
        "tenant", "create", "blue", "--user", "alice", "--user", "of-blue", "--quota", "producer_byte_rate=5"
    )
    tenants("topic", "create", "blue.orders")
    unasked = tenants.attempt("tenant", "remove", "blue")
    assert (unasked.code, "Its 1 topic stay" in unasked.err) == (2, True)
    assert tenants("tenant", "remove", "blue", "--yes").lines == ["removed tenant blue"]
    assert [one["tenant"] for one in tenants("tenant", "list", "--json").json] == ["green"]
    assert {one["name"] for one in tenants("acl", "list", "--json").json} == {"green."}
    assert "blue.orders" in tenants("topic", "list").lines
    with Admin(guarded_broker.bootstrap) as admin:
        assert list(admin.describe_quotas()) == [QuotaEntity(user="alice")], "who has other rules keeps them"
        admin.alter_quotas({QuotaEntity(user="alice"): {"producer_byte_rate": None}})
    gone = tenants.attempt("tenant", "describe", "blu")
    assert gone.code == 1
    assert "headrace tenant list" in gone.err


def test_a_change_of_the_limit_that_was_interrupted_is_completed(tenants: Any, guarded_broker: Any) -> None:
    tenants("tenant", "create", "blue", "--partitions", "4")
    with Admin(guarded_broker.bootstrap) as admin:  # as far as the command came
        admin.alter_config(Resource.all_brokers(), {TENANTS_KEY: Append("blue:9")})
    assert tenants("tenant", "create", "blue", "--json").json["partitions_max"] == 4, "the lower one counts"
    assert tenants("tenant", "create", "blue", "--partitions", "9", "--json").json["partitions_max"] == 9


def test_limits_of_the_settings_file_stay(
    new_broker: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting of all brokers takes the place of that of the file, with what is in it."""
    with new_broker(AUTHORIZED | {TENANTS_KEY: "blue:4,green:5"}) as broker:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
        inside = Inside(capsys)

        def limits() -> dict[str, int]:
            return {one["tenant"]: one["partitions_max"] for one in inside("tenant", "list", "--json").json}

        inside("tenant", "create", "red", "--partitions", "6")
        assert limits() == {"blue": 4, "green": 5, "red": 6}
        with Admin(broker.bootstrap) as admin:
            admin.alter_config(Resource.all_brokers(), {TENANTS_KEY: None})
        inside("tenant", "remove", "green", "--yes")
        assert limits() == {"blue": 4}


@pytest.mark.parametrize("stops_after", [0, 1, 2, 3])
def test_an_interrupted_removal_is_finished_by_the_next(
    tenants: Any, guarded_broker: Any, monkeypatch: pytest.MonkeyPatch, stops_after: int
) -> None:
    """Whatever was changed last: rules, quotas, the rest of the rules, the limit."""
    users = [QuotaEntity(user="alice"), QuotaEntity(user="bob")]
    tenants(
        *("tenant", "create", "blue", "--user", "alice", "--user", "bob", "--partitions", "9"),
        *("--quota", "producer_byte_rate=5"),
    )
    left = stops_after
    for name in ("delete_acls", "alter_quotas", "alter_config"):
        change = getattr(Admin, name)

        def stopping(*args: Any, change: Any = change) -> Any:
            nonlocal left
            if not left:
                raise TimedOut("the network has gone")
            left -= 1
            return change(*args)

        monkeypatch.setattr(Admin, name, stopping)
    remove = ["tenant", "remove", "blue", "--yes", "-b", guarded_broker.bootstrap]
    assert run(remove) == 1
    assert left == 0
    monkeypatch.undo()
    with Admin(guarded_broker.bootstrap) as admin:
        for user in {rule.principal.partition(":")[2] for rule in admin.describe_acls()} & {"alice", "bob"}:
            if stops_after < 2:
                assert QuotaEntity(user=user) in admin.describe_quotas(), "limits go after the rights"
        assert run(remove) == 0
        assert not set(users) & set(admin.describe_quotas())
        assert not [rule for rule in admin.describe_acls() if rule.name == "blue."]
    assert tenants.attempt("tenant", "describe", "blue").code == 1


def test_without_an_authorizer_nothing_is_changed(inside: Any) -> None:
    refused = inside.attempt("tenant", "create", "blue", "--user", "alice", "--json")
    assert (refused.code, json.loads(refused.err)["error"]) == (1, "SECURITY_DISABLED")
    assert inside("config", "get", "broker", "all", "--json").json == []


@pytest.mark.parametrize(
    "words",
    [
        ("create", "a.b"),
        ("create", ""),
        ("create", "a:1"),
        ("create", "a", "--partitions", "-1"),
        ("create", "a", "--quota", "producer_byte_rate=1"),
        ("create", "a", "--user", "u", "--quota", "speed=1"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tenant", *words, "-b", "127.0.0.1:1"]) == 2
    assert "Error: " in capsys.readouterr().err
