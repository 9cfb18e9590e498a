"""Every API that is served, with and without each right of its row in the table (`node/rights.py`).

For each question of a row the client has all other rights that the request needs. Then it is refused without
a rule, with rules that are not enough, and with rules that allow and deny; it is not with any of the rights
that the question names, and as a super user. Refused means the error of the table, or left out of the answer.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.node_groups import SETTINGS, commit, find
from harness.node_transactions import Producer
from harness.recorded_answers import BATCH, VALUES, fill, readable, requests
from harness.remote_broker import CONTROLLER_ALONE
from harness.rights_cases import (
    GROUP,
    MEMBER,
    TRANSACTIONAL_ID,
    Asked,
    allows,
    asked,
    useless,
)
from harness.rules import Rules
from headrace.machines.security.acl_rules import (
    Operation,
    ResourceType,
)
from headrace.node.connection import Connection
from headrace.node.rights import RIGHTS, RIGHTS_ON_CONTROLLERS, Right
from headrace.node.routes import SERVED, SERVED_TO_NODES
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.join_sink import JoinSinkRequest
from headrace.protocol.notation import Struct
from headrace.simulator.manual_host import ManualHost

ADA, ADMIN = "User:ada", "User:admin"


def topic_id_in(host: ManualHost) -> bytes:
    return bytes(host.partitions("t")[0].topic_id)


def a_broker() -> ManualHost:
    host = ManualHost({**SETTINGS, "transaction.state.log.num.partitions": "1"})
    host.create_topic("t")
    for key, kind in (("g", 0), ("new-protocol", 0), ("patterns", 0), ("t", 100)):
        find(host, key, kind)
    producer = Producer(host)
    assert producer.add("t") == 0
    assert commit(host, "g", "t", 1) == 0
    joined = host.ask(JoinSinkRequest(app_id="t", query_id="q", run_id="r", timeout_ms=1000), 0)
    assert joined.error_code == 0
    member = ConsumerGroupHeartbeatRequest(
        group_id="new-protocol",
        member_id=MEMBER,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert host.ask(member, 1).error_code == 0
    host.ask(host.produce_request("t", BATCH), 9)
    return host


def a_controller() -> ManualHost:
    return ManualHost(CONTROLLER_ALONE)


KINDS = requests({*SERVED, *SERVED_TO_NODES})


class Attempt:
    """One client's request to a node whose rules the test writes."""

    def __init__(self, asked: Asked, host: ManualHost | None = None) -> None:
        self.asked = asked
        self.host = host or (a_controller() if asked.on_controller else a_broker())
        self.rules = Rules(self.host, ADMIN)
        self._topic_id = bytes(16) if asked.on_controller else topic_id_in(self.host)
        self._allowed: set[tuple[Operation, ResourceType, str, str]] = set()
        self._grant_the_rest()

    def _grant_the_rest(self) -> None:
        """All that the request needs besides, as far as this does not allow what is looked at."""
        rows = RIGHTS_ON_CONTROLLERS if self.asked.on_controller else {}
        for other in {**RIGHTS, **rows}[self.asked.key]:
            right = other.rights[-1]
            if not any(allows(right, wanted) for wanted in self.asked.question.rights):
                self.allow(right)

    def allow(self, right: Right, *, principal: str = ADA, name: str | None = None) -> None:
        rule = (right.operation, right.resource, name or self.asked.name(right.resource), principal)
        if rule not in self._allowed:
            self._allowed.add(rule)
            self.rules.allow(*rule)

    def is_refused(self, principal: str = ADA) -> bool:
        answer = self._answer(principal)
        question = self.asked.question
        if question.refusal is not None:
            return answer is not None and question.refusal in codes_of(answer)
        shown = self.asked.case.shown or repr(self.asked.name(question.rights[-1].resource))
        return shown not in readable(answer, self._topic_id)

    def _answer(self, principal: str) -> Any:
        """None: it waits, or the connection was closed: it was let in."""
        asked, host, case = self.asked, self.host, self.asked.case
        highest = (SERVED.get(asked.key) or SERVED_TO_NODES[asked.key])[1]
        version = highest if case.version is None else case.version
        values = {**VALUES, "topic_id": self._topic_id, "topic_ids": bytes(16), **case.values}
        kind = KINDS[asked.key]
        request = case.request(self._topic_id) if case.request is not None else fill(kind, version, values)
        connection: Connection = host.connect()
        connection.principal = principal
        host.send(connection, request, version)
        for _ in range(20):
            if (found := host.receive(connection)) is not None:
                return found
            host.advance(0.05)
        return None


def codes_of(value: Any) -> set[int]:
    if isinstance(value, list):
        return {code for each in value for code in codes_of(each)}
    if not isinstance(value, Struct):
        return set()
    found: set[int] = set()
    for field in type(value).__fields__:
        one = getattr(value, field.name)
        found |= {one} if field.name.endswith("error_code") else codes_of(one)
    return found


ALL = list(asked())


@pytest.mark.parametrize("asked", ALL, ids=str)
def test_refused(asked: Asked) -> None:
    attempt = Attempt(asked)
    assert attempt.is_refused(), "without a rule"
    host = attempt.host
    for right in asked.question.rights:
        attempt.allow(right, principal="User:eve")
        if not right.of_any and right.resource is not ResourceType.CLUSTER:
            attempt.allow(right, name="another")
        other = useless(right, asked.question)
        if other is not None:
            attempt.allow(Right(other, right.resource))
    assert attempt.is_refused(), "with rules that are not enough"
    attempt = Attempt(asked, host)
    for right in asked.question.rights:
        attempt.allow(right)
        name = "*" if right.of_any else asked.name(right.resource)
        attempt.rules.deny(right.operation, right.resource, name, ADA)
    assert attempt.is_refused(), "denied over allowed"


@pytest.mark.parametrize("asked", ALL, ids=str)
def test_allowed(asked: Asked) -> None:
    for right in asked.question.rights:
        attempt = Attempt(asked)
        attempt.allow(right)
        assert not attempt.is_refused(), f"with {right}"
    attempt = Attempt(asked)
    assert not attempt.is_refused(ADMIN), "as a super user"


# Where a topic can be named by name, and up to which version.
BY_NAME = {0: 12, 1: 12, 8: 9, 9: 9, 20: 5}


@pytest.mark.parametrize("key", [0, 1, 2, 3, 8, 9, 19, 20, 21, 23, 24, 28, 32, 33, 37, 44, 47, 61, 75])
def test_without_rights_a_topic_that_is_there_is_like_one_that_is_not(key: int) -> None:
    version = BY_NAME.get(key, 3 if key == 24 else SERVED[key][1])
    values = {**VALUES, "topic_id": bytes(16), "topic_ids": bytes(16), "cursor": None}
    if key == 0:
        values["transactional_id"] = None
    host = a_broker()
    rules = Rules(host)
    rules.allow(Operation.ALL, GROUP, "*")
    rules.allow(Operation.ALL, TRANSACTIONAL_ID, "*")

    def answer(name: str) -> str:
        request = renamed(fill(KINDS[key], version, values), name)
        return readable(host.ask(request, version), bytes(16)).replace(repr(name), "NAME")

    there, absent = answer("t"), answer("zz")
    assert there == absent
    assert "TOPIC_AUTHORIZATION_FAILED" in there


def renamed(value: Any, name: str) -> Any:
    """With another name of the topic everywhere."""
    if isinstance(value, list):
        return [renamed(each, name) for each in value]
    if isinstance(value, Struct):
        for field in type(value).__fields__:
            setattr(value, field.name, renamed(getattr(value, field.name), name))
    return name if value == "t" else value
