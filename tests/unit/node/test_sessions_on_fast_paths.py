"""The end of a session, and a login again, on connections whose requests fast paths serve (KIP-368)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.node_groups import SETTINGS, find
from headrace.client.security.sasl import Login as ClientLogin
from headrace.client.security.sasl import Plain
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGINS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": f'{MODULE} user_alice="a" user_bob="b";',
    "connections.max.reauth.ms": "5000",
}
KINDS = ["produce", "fetch", "session", "commit"]


class Client:
    """One connection that has logged in, and sends the same kind of request again and again."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.host = ManualHost(SETTINGS | LOGINS)
        self.host.create_topic("t", 20)
        find(self.host, "g")
        self.host.ask(self.host.produce_request("t", BATCH, acks=1), 9)
        self.connection = self.host.connect("LOGIN")
        self.session_id, self.epoch = 0, 0
        self.offset = 0
        self.log_in()

    def log_in(self, user: str = "alice") -> None:
        client = ClientLogin(Plain(user, user[0]), Random(7), None)
        step: Any = client.accepted(self.host.ask(client.begin(), 1, self.connection))
        assert client.continued(self.host.ask(step, 1, self.connection)) is None

    def ask(self) -> Any:
        """The answer to one more request; None: there was none."""
        match self.kind:
            case "produce":
                return self.host.ask(self.host.produce_request("t", BATCH, acks=1), 9, self.connection)
            case "commit":
                return self._commit()
            case "fetch":
                return self.host.ask(self.fetch_request(-1), 12, self.connection)
            case _:
                answer = self.host.ask(self.fetch_request(self.epoch), 12, self.connection)
                if answer is not None:
                    self.session_id, self.epoch = answer.session_id, self.epoch + 1
                return answer

    def _commit(self) -> Any:
        self.offset += 1
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.offset, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
        return self.host.ask(request, 9, self.connection)

    def fetch_request(self, epoch: int) -> FetchRequest:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1000,
        )

    def learn(self) -> None:
        for _ in range(3):
            assert self.ask() is not None
        assert self.connection.fast_path is not None
        assert self.connection.fast_path is not self.connection.login

    @property
    def log_end(self) -> int:
        return self.host.partitions("t")[0].high_watermark


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_session_counts_for_the_next_request(kind: str) -> None:
    client = Client(kind)
    client.learn()
    client.host.advance(4.9)
    assert client.ask() is not None
    before = client.log_end
    client.host.advance(0.2)
    assert client.connection.fast_path is client.connection.login, "nothing that was learned is left"
    assert client.ask() is None
    assert "the session has ended" in client.host.closed[client.connection.id]
    assert client.log_end == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_login_again_begins_without_what_was_learned(kind: str) -> None:
    client = Client(kind)
    client.learn()
    client.host.advance(4.0)
    client.host.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, client.connection)
    assert client.connection.fast_path is client.connection.login
    assert client.ask() is None, "nothing is served before the login is over"
    assert client.connection.id in client.host.closed


@pytest.mark.parametrize("kind", KINDS)
def test_fast_paths_are_there_again_after_a_login_in_time(kind: str) -> None:
    client = Client(kind)
    for _ in range(3):
        client.learn()
        client.host.advance(4.0)
        client.log_in()
        assert client.connection.fast_path is None
    client.learn()
    client.host.advance(4.9)
    assert client.ask() is not None
