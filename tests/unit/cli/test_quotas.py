"""`headrace quota` and `headrace tenant`: limits, whose they are, and which one holds."""

from __future__ import annotations

import pytest

import headrace as client
from harness.command_line import CommandLine
from headrace.cli.quota import entity_text, value_text
from headrace.client.admin.users import QuotaEntity
from headrace.testing import Broker


def test_quotas_are_set_listed_and_removed(headrace: CommandLine) -> None:
    done = headrace("quota", "set", "--user", "alice", "producer_byte_rate=10MB", "request_percentage=50")
    assert done.lines == [
        "set producer_byte_rate=10 MB/s for user alice",
        "set request_percentage=50 % for user alice",
    ]
    tried = headrace("quota", "set", "--client-default", "consumer_byte_rate=1", "--dry-run").lines
    assert tried == ["would set consumer_byte_rate=1 B/s for each client id"]
    headrace("quota", "set", "--ip", "10.0.0.7", "connection_creation_rate=5")
    assert headrace("quota", "list", "--json").json == [
        {"user": None, "client_id": None, "ip": "10.0.0.7", "quotas": {"connection_creation_rate": 5.0}},
        {
            "user": "alice",
            "client_id": None,
            "ip": None,
            "quotas": {"producer_byte_rate": 1e7, "request_percentage": 50.0},
        },
    ]
    assert headrace("quota", "list", "--ip", "10.0.0.7").cells == [
        ["address", "10.0.0.7", "connection_creation_rate", "5/s"]
    ]
    gone = headrace("quota", "remove", "--user", "alice", "request_percentage", "--yes").lines
    assert gone == ["removed request_percentage of user alice"]
    left = headrace("quota", "remove", "--user", "alice", "--yes", "--json").json
    assert left["removed"] == ["producer_byte_rate"]
    assert headrace("quota", "list", "--user", "alice").lines == []
    assert "no quota is set for exactly user alice" in headrace.refused(
        "quota", "remove", "--user", "alice", "--yes"
    )
    assert "address 10.0.0.7 has no quota producer" in headrace.refused(
        "quota", "remove", "--ip", "10.0.0.7", "producer", "--yes"
    )
    assert "needs a confirmation" in headrace.refused("quota", "remove", "--ip", "10.0.0.7", code=2)


LEVELS = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", ""),
    QuotaEntity("alice"),
    QuotaEntity("", "app"),
    QuotaEntity("", ""),
    QuotaEntity(""),
    QuotaEntity(client_id="app"),
    QuotaEntity(client_id=""),
]


def test_explain_finds_the_first_of_eight_levels(headrace: CommandLine, broker: Broker) -> None:
    with client.Admin(broker.bootstrap_servers) as admin:
        for number, entity in enumerate(LEVELS, 1):
            admin.alter_quotas({entity: {"producer_byte_rate": float(number)}})
        for number, entity in enumerate(LEVELS, 1):
            told = headrace("quota", "explain", "--user", "alice", "--client-id", "app", "--json").json
            assert (told[0]["quota"], told[0]["level"], told[0]["value"]) == (
                "producer_byte_rate",
                number,
                number,
            )
            assert told[0]["entity"] == entity._asdict()
            admin.alter_quotas({entity: {"producer_byte_rate": None}})
    assert headrace("quota", "explain", "--user", "alice").cells[0] == [
        *("producer_byte_rate", "no", "limit", "-", "-")
    ]


def test_explain_an_address(headrace: CommandLine) -> None:
    headrace("quota", "set", "--ip-default", "connection_creation_rate=100")
    headrace("quota", "set", "--ip", "10.0.0.7", "connection_creation_rate=5")
    held = headrace("quota", "explain", "--ip", "10.0.0.7")
    assert held.cells == [["connection_creation_rate", "5/s", "-", "address", "10.0.0.7"]]
    assert headrace("quota", "explain", "--ip", "10.0.0.8").cells == [
        ["connection_creation_rate", "100/s", "-", "each", "address"]
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("set", "producer_byte_rate=1"), "Nobody is named"),
        (("set", "--user", "a", "producer_rate=1"), "Did you mean producer_byte_rate?"),
        (("set", "--user", "a", "zzz=1"), "Possible are producer_byte_rate"),
        (("set", "--ip", "10.0.0.1", "producer_byte_rate=1"), "not a quota of address"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "not a size"),
        (("set", "--user", "a", "request_percentage=half"), "not a number"),
        (("set", "--user", "a", "request_percentage=inf"), "greater than 0"),
        (("set", "--user", "a", "producer_byte_rate=0"), "greater than 0"),
        (("set", "--user", "a", "--user-default", "producer_byte_rate=1"), "only one of --user"),
        (("set", "--client-id", "", "producer_byte_rate=1"), "--client-default is for all"),
        (("set", "--ip", "10.0.0.1", "--user", "a", "connection_creation_rate=1"), "stands alone"),
        (("explain", "--user-default"), "one client"),
    ],
)
def test_wrong_usage(headrace: CommandLine, words: tuple[str, ...], reason: str) -> None:
    assert reason in headrace.refused("quota", *words, code=2)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("producer_byte_rate", 2e9, "2 GB/s"),
        ("producer_byte_rate", 5000.0, "5 kB/s"),
        ("consumer_byte_rate", 1048576.0, "1.0 MiB/s"),
        ("controller_mutation_rate", 0.5, "0.5/s"),
        ("another", 7.0, "7"),
    ],
)
def test_values_as_text(key: str, value: float, text: str) -> None:
    assert value_text(key, value) == text


def test_whose_a_quota_is_as_text() -> None:
    assert entity_text(QuotaEntity("", "batch")) == "each user, client id batch"


# --- tenants -----------------------------------------------------------------------------------------------


def test_the_life_of_a_tenant(headrace: CommandLine, broker: Broker) -> None:
    words = ("--user", "alice", "--partitions", "4", "--quota", "producer_byte_rate=1MB")
    made = headrace("tenant", "create", "blue", *words)
    assert made.lines == ["created tenant blue: 1 user, 0 topics, 0 partitions of at most 4"]
    (allowed,) = headrace("acl", "explain", "alice", "write", "-t", "blue.orders", "--json").json
    (denied,) = headrace("acl", "explain", "alice", "write", "-t", "green.orders", "--json").json
    assert (allowed["allowed"], denied["allowed"]) == (True, False)
    broker.create_topic("blue.orders", 3)
    assert "POLICY_VIOLATION" in headrace.refused("topic", "create", "blue.more", "-p", "2", "--json")
    changed = headrace("tenant", "create", "blue", "--partitions", "5", "--user", "bob", "--json").json
    assert (changed["created"], changed["partitions"], changed["partitions_max"]) == (False, 3, 5)
    assert headrace("tenant", "list").cells == [["blue", "User:alice,", "User:bob", "1", "3", "5"]]
    shown = headrace("tenant", "describe", "blue").lines
    assert shown[:2] == [
        "blue",
        "names that begin with blue.; 2 users, 1 topic, 3 partitions of at most 5",
    ]
    assert shown[3].split() == ["User:alice", "producer_byte_rate", "1", "MB/s"]
    assert shown[4].split() == ["User:bob", "-"]


def test_removal_leaves_topics_and_what_others_own(headrace: CommandLine, broker: Broker) -> None:
    for name in ("blue", "green"):
        words = ("--user", "alice", "--user", f"of-{name}", "--quota", "producer_byte_rate=5")
        headrace("tenant", "create", name, *words, "--partitions", "9")
    broker.create_topic("blue.orders")
    assert "Its 1 topic stay." in headrace.refused("tenant", "remove", "blue", code=2)
    gone = headrace("tenant", "remove", "blue", "--yes", "--json").json
    assert gone == {"removed": "blue", "rules": 6, "topics": ["blue.orders"]}
    assert [one["tenant"] for one in headrace("tenant", "list", "--json").json] == ["green"]
    assert {one["name"] for one in headrace("acl", "list", "--json").json} == {"green."}
    assert [one["user"] for one in headrace("quota", "list", "--json").json] == ["alice", "of-green"]
    assert broker.topics() == ["blue.orders"]
    assert "Did you mean green?" in headrace.refused("tenant", "describe", "gren")


def test_wrong_tenants(headrace: CommandLine) -> None:
    assert headrace("tenant", "list").lines == []
    assert "letters, digits and -" in headrace.refused("tenant", "create", "a.b", code=2)
    assert "--quota needs --user" in headrace.refused(
        "tenant", "create", "blue", "--quota", "producer_byte_rate=1", code=2
    )
