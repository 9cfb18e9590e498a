"""Fast paths stay on with an authorizer: what was allowed is not asked again until a rule has changed, and a
changed rule counts for the next request of an open connection.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.authorizers import ByName
from harness.node_groups import SETTINGS, find
from harness.rules import Rules
from headrace.machines.security.acl_rules import Operation, ResourceType
from headrace.node.connection import Connection
from headrace.node.parked_fetches import ParkedFastFetch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE = Operation.READ, Operation.WRITE
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ADMIN = "User:admin"


class Counting(ByName):
    """Passes questions on, and counts those of clients that are not super users."""

    def __init__(self, rules: Rules) -> None:
        self._authorizer = rules.authorizer
        self.questions = 0

    def allows(
        self, connection: Connection, operation: Operation, resource: ResourceType, name: str, /
    ) -> bool:
        self.questions += connection.principal != ADMIN
        return self._authorizer.allows(connection, operation, resource, name)


class Client:
    """One connection that sends the same kind of request again and again."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.host = ManualHost(SETTINGS)
        self.host.create_topic("t", 20)
        self.host.create_topic("quiet")
        find(self.host, "g")
        self.rules = Rules(self.host, ADMIN)
        self.counting = self.host.node.access.authorizer = Counting(self.rules)
        self.connection = self.host.connect()
        self.admin = self.host.connect()
        self.admin.principal = ADMIN
        self.session_id, self.epoch = 0, 0
        self.offset = 0
        self.write()
        self.rules.allow(READ, GROUP, "g")

    def write(self) -> None:
        """A record, from somebody who may."""
        done = self.host.ask(self.host.produce_request("t", BATCH, acks=1), 9, self.admin)
        assert done.responses[0].partition_responses[0].error_code == 0

    def grant(self) -> bytes:
        """The right whose loss the test looks at."""
        return self.rules.allow(WRITE if self.kind == "produce" else READ, TOPIC, "t")

    def ask(self) -> int:
        """The error code of one more request."""
        code: int = getattr(self, f"_{self.kind}")()
        return code

    def _produce(self) -> int:
        self.send()
        return self.received()

    def _commit(self) -> int:
        self.send()
        return self.received()

    def send(self) -> None:
        """A request to produce or to commit."""
        if self.kind == "produce":
            self.host.send(self.connection, self.host.produce_request("t", BATCH, acks=1), 9)
            return
        self.offset += 1
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.offset, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
        self.host.send(self.connection, request, 9)

    def received(self) -> int:
        answer = self.host.receive(self.connection)
        (told,) = (
            answer.responses[0].partition_responses if self.kind == "produce" else answer.topics[0].partitions
        )
        code: int = told.error_code
        return code

    def _fetch(self) -> int:
        return self._code(self.host.ask(self.fetch_request(-1), 12, self.connection))

    def _session(self) -> int:
        answer = self.host.ask(self.fetch_request(self.epoch), 12, self.connection)
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return self._code(answer)

    def fetch_request(self, epoch: int, **more: Any) -> FetchRequest:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        wanted.fetch_offset = more.pop("offset", 0)
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1000, **more},
        )

    @staticmethod
    def _code(answer: Any) -> int:
        assert answer.error_code == 0
        (data,) = answer.responses[0].partitions
        assert bool(data.error_code) != bool(data.records)
        code: int = data.error_code
        return code


KINDS = ["produce", "fetch", "session", "commit"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_allowed_is_not_asked_again(kind: str) -> None:
    client = Client(kind)
    client.grant()
    for _ in range(3):
        assert client.ask() == 0
    assert client.connection.fast_path is not None
    client.counting.questions = 0
    for _ in range(3):
        assert client.ask() == 0
    assert client.counting.questions == 0


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_change_it_is_asked_once(kind: str) -> None:
    client = Client(kind)
    client.grant()
    for _ in range(3):
        assert client.ask() == 0
    client.rules.allow(READ, TOPIC, "another")
    client.counting.questions = 0
    assert client.ask() == 0
    asked = client.counting.questions
    assert asked == (2 if kind == "commit" else 1)  # a commit needs the group, too
    assert client.ask() == 0
    assert client.counting.questions == asked, "it has learned again"


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_right_counts_for_the_next_request_and_so_does_one_that_comes_back(kind: str) -> None:
    client = Client(kind)
    granted = client.grant()
    for _ in range(3):
        assert client.ask() == 0
    client.rules.remove(granted)
    for _ in range(3):
        assert client.ask() == REFUSED
    client.grant()
    for _ in range(3):
        assert client.ask() == 0
    denied = client.rules.deny(Operation.ALL, TOPIC, "t")
    assert client.ask() == REFUSED
    client.rules.remove(denied)
    assert client.ask() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_refused_is_not_learned(kind: str) -> None:
    client = Client(kind)
    for _ in range(4):
        assert client.ask() == REFUSED


@pytest.mark.parametrize("kind", ["produce", "commit"])
def test_what_was_refused_behind_a_request_that_waits_is_not_learned(kind: str) -> None:
    """Its answer is known, and leaves later, like that of a request that was let in."""
    client = Client(kind)
    client.rules.allow(READ, TOPIC, "quiet")
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="quiet", partitions=[wanted])]
    request = FetchRequest(session_epoch=-1, topics=topics, max_wait_ms=500, min_bytes=1, max_bytes=1000)
    client.host.send(client.connection, request, 12)
    for _ in range(3):
        client.send()
    client.host.advance(1)
    assert client.host.receive(client.connection).responses[0].partitions[0].error_code == 0
    assert [client.received() for _ in range(3)] == [REFUSED] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_authorizer_that_is_put_in_or_taken_out(kind: str) -> None:
    client = Client(kind)
    client.host.node.access.authorizer = None
    for _ in range(3):
        assert client.ask() == 0
    client.host.node.access.authorizer = client.rules.authorizer
    assert client.ask() == REFUSED
    client.host.node.access.authorizer = None
    assert client.ask() == 0


@pytest.mark.parametrize("is_denied", [False, True])
def test_a_fetch_that_waits_while_the_rules_change(is_denied: bool) -> None:
    client = Client("fetch")
    client.grant()
    host, connection = client.host, client.connection
    for _ in range(2):  # the second one is answered by the fast path, and so is the one that waits
        host.ask(client.fetch_request(-1, max_wait_ms=500), 12, connection)
    host.send(connection, client.fetch_request(-1, offset=1, max_wait_ms=500), 12)
    assert host.receive(connection) is None
    assert isinstance(connection.pending[0].parked, ParkedFastFetch)
    if is_denied:
        client.rules.deny(READ, TOPIC, "t")
    else:
        client.rules.allow(READ, TOPIC, "another")
    client.write()
    (data,) = host.receive(connection).responses[0].partitions
    assert (data.error_code, bool(data.records)) == ((REFUSED, False) if is_denied else (0, True))


def test_partitions_of_a_session_that_are_quiet_are_checked_when_the_rules_change() -> None:
    client = Client("session")
    granted = client.rules.allow(READ, TOPIC, "t")
    host, connection = client.host, client.connection
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(1, 20)
    ]

    def fetch(session_id: int, epoch: int, topics: list[FetchTopic]) -> Any:
        request = FetchRequest(
            session_id=session_id, session_epoch=epoch, topics=topics, max_wait_ms=0, max_bytes=1000
        )
        return host.ask(request, 12, connection)

    session_id = fetch(0, 0, [FetchTopic(topic="t", partitions=wanted)]).session_id
    for epoch in (1, 2):
        assert fetch(session_id, epoch, []).responses == []
    session = host.node.broker.fetch_sessions.get(session_id)
    assert session is not None
    assert session.busy == {}
    client.rules.allow(READ, TOPIC, "another")
    assert fetch(session_id, 3, []).responses == []
    client.rules.remove(granted)
    (topic,) = fetch(session_id, 4, []).responses
    assert [data.error_code for data in topic.partitions] == [REFUSED] * 19
