"""Decisions about quotas, and which of them a filter finds."""

from __future__ import annotations

from itertools import count
from math import inf, nan

import pytest

from headrace.machines.metadata.controller import client_quotas
from headrace.machines.metadata.controller.client_quotas import (
    Match,
    QuotaChange,
    QuotaFilter,
    find_quotas,
)
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.security_image import ClientQuotaEntity
from headrace.protocol.errors import ErrorCode
from unit.machines.metadata.cluster import Cluster

ADA, BATCH, ADDRESS = ("user", "ada"), ("client-id", "batch"), ("ip", "10.0.0.1")
ANY_USER, ANY_CLIENT, ANY_ADDRESS = ("user", None), ("client-id", None), ("ip", None)
RATE, REQUESTS, CONNECTIONS = "producer_byte_rate", "request_percentage", "connection_creation_rate"
Part = tuple[str, str | None]


def change(*entity: Part, **values: float | None) -> QuotaChange:
    return QuotaChange(entity, list(values.items()))


def alter(cluster: Cluster, *changes: QuotaChange, validate_only: bool = False) -> list[str | None]:
    altered = cluster.apply(cluster.controller.alter_quotas(changes, validate_only=validate_only))
    assert all((one.message is None) == (one.error is ErrorCode.NONE) for one in altered)
    return [one.message for one in altered]


def test_quotas_are_set_changed_and_removed() -> None:
    cluster = Cluster()
    ada, defaults = ClientQuotaEntity("ada", "batch"), ClientQuotaEntity(user="")
    assert alter(
        cluster, change(ADA, BATCH, producer_byte_rate=1024.0), change(ANY_USER, request_percentage=12.5)
    ) == [None, None]
    assert cluster.image.security.quotas == {ada: {RATE: 1024.0}, defaults: {REQUESTS: 12.5}}
    alter(cluster, change(BATCH, ADA, request_percentage=50.0, producer_byte_rate=None))
    alter(cluster, change(ANY_USER, request_percentage=None))
    assert cluster.image.security.quotas == {ada: {REQUESTS: 50.0}}


def test_what_changes_nothing_has_no_record() -> None:
    cluster = Cluster()
    alter(cluster, change(ADA, producer_byte_rate=1024.0))
    same = change(ADA, producer_byte_rate=1024.0, consumer_byte_rate=None, unheard_of=None)
    assert cluster.controller.alter_quotas([same]).records == []


def test_a_request_can_be_tried() -> None:
    cluster = Cluster()
    assert alter(cluster, change(ADA, producer_byte_rate=1.0), validate_only=True) == [None]
    assert alter(cluster, change(ADA, nonsense=1.0), validate_only=True) == [
        "Invalid configuration key nonsense"
    ]
    assert cluster.image.security.quotas == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (change(producer_byte_rate=1.0), "Invalid empty client quota entity"),
        (
            change(ADA, ADA, producer_byte_rate=1.0),
            "Invalid client quota entity, duplicate entity entry user",
        ),
        (change(("planet", "earth"), producer_byte_rate=1.0), "Unhandled client quota entity type: planet"),
        (change(("user", ""), producer_byte_rate=1.0), "Empty user not supported"),
        (
            change(ADA, ADDRESS, connection_creation_rate=1.0),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            change(("ip", "1.2.3.999"), connection_creation_rate=1.0),
            "1.2.3.999 is not a valid IP or resolvable host.",
        ),
        (change(ADDRESS, producer_byte_rate=1.0), "Invalid configuration key producer_byte_rate"),
        (change(ADA, connection_creation_rate=1.0), "Invalid configuration key connection_creation_rate"),
        (change(ADA, producer_byte_rate=0.0), "Quota producer_byte_rate must be greater than 0"),
        (change(ADA, request_percentage=-1.0), "Quota request_percentage must be greater than 0"),
        (change(ADA, request_percentage=nan), "Quota request_percentage must be greater than 0"),
        (change(ADA, producer_byte_rate=1.5), "producer_byte_rate cannot be a fractional value."),
        (
            change(ADA, producer_byte_rate=1e19),
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            change(ADA, consumer_byte_rate=inf),
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (
            change(ADDRESS, connection_creation_rate=2.0**31),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            QuotaChange((ADA, ANY_CLIENT), [(RATE, 1.0), (RATE, 2.0)]),
            "Duplicate quota key producer_byte_rate not updating quota for this entity "
            "ClientQuotaEntity(entries={client-id=null, user=ada})",
        ),
    ],
)
def test_what_is_refused(wrong: QuotaChange, message: str) -> None:
    """And with it all of its entity, but no other."""
    cluster = Cluster()
    wrong.changes.insert(0, (CONNECTIONS if wrong.entity == (ADDRESS,) else "consumer_byte_rate", 7.0))
    if wrong.changes[0][0] == wrong.changes[1][0]:
        del wrong.changes[0]
    assert alter(cluster, wrong, change(ANY_CLIENT, controller_mutation_rate=0.5)) == [message, None]
    assert cluster.image.security.quotas == {
        ClientQuotaEntity(client_id=""): {"controller_mutation_rate": 0.5}
    }


def test_all_keys_of_an_address_and_of_a_client() -> None:
    cluster = Cluster()
    rates = {
        "producer_byte_rate": 1.0,
        "consumer_byte_rate": 2.0,
        "request_percentage": 0.1,
        "controller_mutation_rate": 0.2,
    }
    assert alter(cluster, change(ADA, **rates), change(BATCH, **rates)) == [None, None]
    for address in (ADDRESS, ANY_ADDRESS, ("ip", "::1")):
        assert alter(cluster, change(address, connection_creation_rate=2.0)) == [None]
    assert len(cluster.image.security.quotas) == 5


def test_of_an_entity_that_is_named_twice_nothing_changes() -> None:
    cluster = Cluster()
    twice = [change(ADA, BATCH, producer_byte_rate=1.0), change(BATCH, ADA, producer_byte_rate=2.0)]
    assert alter(cluster, *twice) == [
        "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=batch, user=ada})"
    ]
    assert cluster.image.security.quotas == {}


def test_too_many_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "RECORDS_MAX", 2)
    with pytest.raises(Refusal, match="excessively large"):
        alter(Cluster(), *(change(("user", f"u{number}"), producer_byte_rate=1.0) for number in range(3)))


# --- filters ----------------------------------------------------------------------------------------------

ENTITIES: list[tuple[Part, ...]] = [
    (ADA,),
    (ANY_USER,),
    (ADA, BATCH),
    (ADA, ANY_CLIENT),
    (ANY_USER, BATCH),
    (BATCH,),
    (ANY_CLIENT,),
    (ADDRESS,),
    (ANY_ADDRESS,),
]


def found(*filters: tuple[str, int, str | None], strict: bool = False) -> list[tuple[Part, ...]]:
    cluster = Cluster()
    values = count(1)
    for entity in ENTITIES:
        key = CONNECTIONS if entity[0][0] == "ip" else RATE
        alter(cluster, QuotaChange(entity, [(key, float(next(values)))]))
    wanted = [QuotaFilter(*one) for one in filters]
    quotas = find_quotas(cluster.image.security, wanted, strict=strict)
    return [tuple(entity.parts()) for entity, _ in quotas]


def same(left: list[tuple[Part, ...]], right: list[tuple[Part, ...]]) -> bool:
    return sorted(left, key=str) == sorted(right, key=str)


def test_without_filters_all_are_found_and_strictly_none() -> None:
    assert same(found(), ENTITIES)
    assert found(strict=True) == []


def test_a_name() -> None:
    exact = ("user", Match.EXACT, "ada")
    assert same(found(exact), [(ADA,), (ADA, BATCH), (ADA, ANY_CLIENT)])
    assert found(exact, strict=True) == [(ADA,)]
    assert found(("user", Match.EXACT, "")) == []


def test_the_default() -> None:
    default = ("user", Match.DEFAULT, None)
    assert same(found(default), [(ANY_USER,), (ANY_USER, BATCH)])
    assert found(default, strict=True) == [(ANY_USER,)]


def test_all_names() -> None:
    users = ("user", Match.SPECIFIED, None)
    assert same(found(users), ENTITIES[:5])
    assert same(found(users, strict=True), ENTITIES[:2])
    both = found(users, ("client-id", Match.EXACT, "batch"), strict=True)
    assert same(both, [(ADA, BATCH), (ANY_USER, BATCH)])
    assert same(found(("ip", Match.SPECIFIED, None)), [(ADDRESS,), (ANY_ADDRESS,)])


@pytest.mark.parametrize(
    ("filters", "code", "message"),
    [
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        ([("user", 0, "x"), ("user", 1, None)], ErrorCode.INVALID_REQUEST, "more than once"),
        ([("planet", 0, "x")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type planet"),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_EXACT, but set match string to null"),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_DEFAULT, but also specified"),
        ([("user", 2, "x")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_SPECIFIED, but also specified"),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 3"),
        ([("ip", 1, None), ("user", 1, None)], ErrorCode.INVALID_REQUEST, "IP filter component should not"),
    ],
)
def test_filters_that_mean_nothing(
    filters: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    with pytest.raises(Refusal, match=message) as refusal:
        found(*filters)
    assert refusal.value.code is code
