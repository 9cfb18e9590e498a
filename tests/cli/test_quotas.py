"""`headrace quota` against a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.cli.main import run
from headrace.client.admin.users import QuotaEntity
from headrace.client.threads.admin import Admin


@pytest.fixture
def quotas(inside: Any, cli_broker: Any) -> Iterator[Any]:
    yield inside
    with Admin(cli_broker.bootstrap) as admin:
        for entity, values in admin.describe_quotas().items():
            admin.alter_quotas({entity: dict.fromkeys(values)})


def test_quotas_are_set_listed_and_removed(quotas: Any) -> None:
    done = quotas("quota", "set", "--user", "alice", "producer_byte_rate=1MiB", "request_percentage=50")
    assert done.lines == [
        "set producer_byte_rate=1.0 MiB/s for user alice",
        "set request_percentage=50 % for user alice",
    ]
    quotas("quota", "set", "--user-default", "--client-id", "batch", "consumer_byte_rate=5000")
    quotas("quota", "set", "--ip", "10.0.0.7", "connection_creation_rate=5")
    quotas("quota", "set", "--user", "bob", "consumer_byte_rate=1", "--dry-run")
    told = quotas("quota", "list", "--json").json
    assert told == [
        {"user": None, "client_id": None, "ip": "10.0.0.7", "quotas": {"connection_creation_rate": 5.0}},
        {"user": "", "client_id": "batch", "ip": None, "quotas": {"consumer_byte_rate": 5000.0}},
        {
            "user": "alice",
            "client_id": None,
            "ip": None,
            "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 50.0},
        },
    ]
    assert [one["user"] for one in quotas("quota", "list", "--user", "alice", "--json").json] == ["alice"]
    table = quotas("quota", "list").lines
    assert table[0].split() == ["FOR", "QUOTA", "VALUE"]
    assert "each user, client id batch" in table[2]

    gone = quotas("quota", "remove", "--user", "alice", "request_percentage", "--yes")
    assert gone.lines == ["removed request_percentage of user alice"]
    assert quotas("quota", "remove", "--user", "alice", "--yes").lines == [
        "removed producer_byte_rate of user alice"
    ]
    refused = quotas.attempt("quota", "remove", "--user", "alice", "--yes")
    assert (refused.code, "no quota is set for exactly user alice" in refused.err) == (1, True)
    unasked = quotas.attempt("quota", "remove", "--ip", "10.0.0.7")
    assert (unasked.code, "needs a confirmation" in unasked.err) == (2, True)


EIGHT = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", ""),
    QuotaEntity("alice"),
    QuotaEntity("", "app"),
    QuotaEntity("", ""),
    QuotaEntity(""),
    QuotaEntity(client_id="app"),
    QuotaEntity(client_id=""),
]


def test_explain_finds_the_first_of_eight_levels(quotas: Any, cli_broker: Any) -> None:
    with Admin(cli_broker.bootstrap) as admin:
        for number, entity in enumerate(EIGHT, 1):
            admin.alter_quotas({entity: {"producer_byte_rate": float(number)}})
        for number, entity in enumerate(EIGHT, 1):
            told = quotas("quota", "explain", "--user", "alice", "--client-id", "app", "--json").json
            found = {one["quota"]: one for one in told}
            assert (found["producer_byte_rate"]["level"], found["producer_byte_rate"]["value"]) == (
                number,
                number,
            )
            assert found["producer_byte_rate"]["entity"] == entity._asdict()
            assert found["consumer_byte_rate"]["value"] is None
            admin.alter_quotas({entity: {"producer_byte_rate": None}})
    lines = quotas("quota", "explain", "--user", "alice").lines
    assert lines[1].split()[:3] == ["producer_byte_rate", "no", "limit"]


def test_explain_an_address(quotas: Any) -> None:
    quotas("quota", "set", "--ip-default", "connection_creation_rate=100")
    quotas("quota", "set", "--ip", "10.0.0.7", "connection_creation_rate=5")

    def holds(address: str) -> tuple[object, object]:
        (told,) = quotas("quota", "explain", "--ip", address, "--json").json
        return told["value"], told["set_for"]

    assert holds("10.0.0.7") == (5.0, "address 10.0.0.7")
    assert holds("10.0.0.8") == (100.0, "each address")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("set", "producer_byte_rate=1"), "Nobody is named"),
        (("set", "--user", "a", "producer_rate=1"), "Did you mean producer_byte_rate?"),
        (("set", "--user", "a", "connection_creation_rate=1"), "not a quota of user a"),
        (("set", "--ip", "10.0.0.1", "producer_byte_rate=1"), "not a quota of address"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "not a size"),
        (("set", "--user", "a", "request_percentage=half"), "not a number"),
        (("set", "--user", "a", "request_percentage=nan"), "greater than 0"),
        (("set", "--user", "a", "producer_byte_rate=0"), "greater than 0"),
        (("set", "--user", "a", "--user-default", "producer_byte_rate=1"), "only one of"),
        (("set", "--user", "", "producer_byte_rate=1"), "empty"),
        (("set", "--ip", "10.0.0.1", "--user", "a", "connection_creation_rate=1"), "stands alone"),
        (("explain", "--user-default"), "one client"),
        (("explain",), "Nobody is named"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quota", *words, "-b", "127.0.0.1:1"]) == 2
    assert reason in capsys.readouterr().err
