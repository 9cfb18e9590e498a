"""Rights, users, quotas, tokens and moves of partitions: Kafka serves them all, and a broker that does not
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clients.headrace_admins import opened
from harness.broker import Broker
from harness.wait import eventually
from headrace.client.admin.acls import Acl, AclFilter, AclOperation, AclPattern, AclResource
from headrace.client.admin.users import QuotaEntity, ScramCredential
from headrace.client.errors import KafkaError, UnsupportedByBroker

RULE = Acl(AclResource.TOPIC, "orders", "User:ada", AclOperation.READ)


@pytest.fixture(params=["threads", "aio"])
def ours(request: pytest.FixtureRequest, guarded: str) -> Iterator[Any]:
    with opened(request.param, guarded) as admin:
        yield admin


@pytest.fixture(params=["threads", "aio"])
def admin_of_all(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Any]:
    """An admin of the broker that all tests share, which has no authorizer."""
    with opened(request.param, bootstrap) as admin:
        yield admin


def unless_served(broker: Broker, *calls: Callable[[], object]) -> bool:
    """Whether the broker serves these; one that does not has to say so for each of them."""
    if broker.name == "kafka":
        return True
    for call in calls:
        with pytest.raises(UnsupportedByBroker, match="the broker does not support"):
            call()
    return False


def test_acls_without_an_authorizer(admin_of_all: Any) -> None:
    for call in (
        lambda: admin_of_all.create_acls([RULE]),
        admin_of_all.describe_acls,
        lambda: admin_of_all.delete_acls([AclFilter()]),
    ):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.name == "SECURITY_DISABLED"


def test_acls(ours: Any) -> None:
    prefix = RULE._replace(name="pay", pattern=AclPattern.PREFIXED, operation=AclOperation.WRITE)
    ours.create_acls([RULE, prefix])
    eventually(ours.describe_acls, sorted([RULE, prefix]))
    assert ours.describe_acls(AclFilter(AclResource.TOPIC, "payments", pattern=AclPattern.MATCH)) == [prefix]
    assert ours.delete_acls([AclFilter(name="orders")]) == [RULE]
    assert ours.delete_acls([AclFilter()]) == [prefix]


def test_users(ours: Any) -> None:
    ours.set_password("ada", "engine")
    ours.set_password("ada", "engine", mechanism="SCRAM-SHA-256", iterations=4096)
    both = [ScramCredential("SCRAM-SHA-256", 4096), ScramCredential("SCRAM-SHA-512", 8192)]
    eventually(lambda: ours.describe_users(), {"ada": both})
    ours.delete_passwords(["ada"])
    eventually(lambda: ours.describe_users(["ada"]), {"ada": both[:1]})
    ours.delete_passwords(["ada"], mechanism="SCRAM-SHA-256")
    eventually(ours.describe_users, {})
    with pytest.raises(KafkaError, match="user 'ada'") as missing:
        ours.describe_users(["ada"])
    assert missing.value.name == "RESOURCE_NOT_FOUND"


def test_quotas(ours: Any) -> None:
    ada, others = QuotaEntity(user="ada", client_id="batch"), QuotaEntity(user="")
    wanted = {ada: {"producer_byte_rate": 1e6}, others: {"consumer_byte_rate": 2e6}}
    ours.alter_quotas(wanted, validate_only=True)
    ours.alter_quotas(wanted)
    eventually(ours.describe_quotas, wanted)
    assert ours.describe_quotas(others) == {others: wanted[others]}
    ours.alter_quotas({ada: {"producer_byte_rate": None}, others: {"consumer_byte_rate": None}})
    eventually(ours.describe_quotas, {})


def test_delegation_tokens(ours: Any) -> None:
    """Without a secret for them, and for users who did not log in, Kafka has none either: it says why."""
    calls = [
        ours.create_token,
        ours.describe_tokens,
        lambda: ours.renew_token(b"hmac"),
        lambda: ours.expire_token(b"hmac"),
    ]
    for call in calls:
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.name in (
            "DELEGATION_TOKEN_AUTH_DISABLED",
            "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        )


def test_moves_of_partitions(ours: Any, broker: Broker, name: str) -> None:
    ours.create_topic(name)
    if not unless_served(broker, lambda: ours.alter_reassignments({(name, 0): [1]})):
        return
    ours.alter_reassignments({(name, 0): [1]})
    for wrong, error in (([2], "INVALID_REPLICA_ASSIGNMENT"), (None, "NO_REASSIGNMENT_IN_PROGRESS")):
        with pytest.raises(KafkaError, match=f"partition {name}-0") as refused:
            ours.alter_reassignments({(name, 0): wrong})
        assert refused.value.name == error


def test_brokers_and_voters_that_are_not_there(ours: Any, broker: Broker) -> None:
    listeners = {"CONTROLLER": ("127.0.0.1", 1)}
    nobody = "AAAAAAAAAAAAAAAAAAAAAg"
    with pytest.raises(KafkaError, match="77"):
        ours.unregister_broker(77)
    calls = [
        lambda: ours.add_voter(2, nobody, listeners),
        lambda: ours.remove_voter(2, nobody),
    ]
    if not unless_served(broker, *calls):
        return
    for call in calls:
        with pytest.raises(KafkaError):
            call()
