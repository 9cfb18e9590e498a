"""`controller_mutation_rate`: how many partitions a client may create and delete (KIP-599)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.effects import Mute
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.simulator.manual_host import ManualHost

RATE = 2.0  # per second; eleven seconds of it, 22, may be used at once
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
STRICT_SINCE = {"create": 6, "delete": 5, "grow": 3}
VERSIONS = [
    (kind, since - 1 + strict, bool(strict)) for kind, since in STRICT_SINCE.items() for strict in (0, 1)
]


class Admin:
    def __init__(self) -> None:
        self.host = ManualHost()
        for number in range(3):
            self.host.create_topic(f"old-{number}", 21)
        self.connection = self.host.connect()
        entity = [EntityData(entity_type="user", entity_name=None)]
        ops = [OpData(key="controller_mutation_rate", value=RATE)]
        self.host.ask(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)]), 1)
        self.topics = 0
        self.host.effects.clear()

    def ask(self, kind: str, version: int, *, partitions: int = 21, **more: Any) -> tuple[int, int]:
        """Error code and throttle time of a change of so many partitions."""
        self.topics += 1
        name = f"new-{self.topics}" if kind == "create" else f"old-{self.topics - 1}"
        match kind:
            case "create":
                topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
                answer = self.host.ask(CreateTopicsRequest(topics=[topic], **more), version, self.connection)
                return answer.topics[0].error_code, answer.throttle_time_ms
            case "delete":
                request = (
                    DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
                    if version >= 6
                    else DeleteTopicsRequest(topic_names=[name])
                )
                answer = self.host.ask(request, version, self.connection)
                return answer.responses[0].error_code, answer.throttle_time_ms
            case _:
                grown = CreatePartitionsTopic(name=name, count=21 + partitions, assignments=None)
                growth = CreatePartitionsRequest(topics=[grown], timeout_ms=1000, **more)
                answer = self.host.ask(growth, version, self.connection)
                return answer.results[0].error_code, answer.throttle_time_ms

    def muted_for(self) -> float | None:
        mutes = [effect for effect in self.host.effects if isinstance(effect, Mute)]
        self.host.effects.clear()
        return None if not mutes else mutes[-1].until - self.host.clock.mono


@pytest.mark.parametrize(("kind", "version", "is_strict"), VERSIONS)
def test_what_is_above_the_rate(kind: str, version: int, is_strict: bool) -> None:
    """A client that knows the error code is refused; others are throttled by what they went too far."""
    admin = Admin()
    assert admin.ask(kind, version) == (0, 0)
    assert admin.muted_for() is None
    if is_strict:
        assert admin.ask(kind, version) == (0, 0), "what is left is enough to begin with"
        assert admin.ask(kind, version) == (EXCEEDED, 10_000)
    else:
        assert admin.ask(kind, version) == (0, 10_000)  # 42 of 22: twenty too many
    assert admin.muted_for() == 10
    admin.host.advance(10)
    admin.topics = 2
    assert admin.ask(kind, version)[0] == 0


def test_each_topic_of_a_request_is_decided_by_itself() -> None:
    admin = Admin()
    topics = [CreatableTopic(name=name, num_partitions=20, replication_factor=1) for name in ("a", "b", "c")]
    answer = admin.host.ask(CreateTopicsRequest(topics=topics), 7, admin.connection)
    assert [topic.error_code for topic in answer.topics] == [0, 0, EXCEEDED]
    assert answer.topics[2].error_message is None
    assert answer.throttle_time_ms == 9_000


def test_what_cannot_be_created_costs_nothing() -> None:
    admin = Admin()
    for _ in range(3):
        assert admin.ask("create", 7, partitions=0)[0] == ErrorCode.INVALID_PARTITIONS
        assert admin.ask("delete", 6)[1] == 0
    admin.topics = 0
    assert admin.ask("create", 7) == (0, 0)


def test_topics_that_are_created_because_somebody_asks_for_them_count_too() -> None:
    admin = Admin()
    names = [f"missing-{number}" for number in range(30)]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )
    codes = [topic.error_code for topic in admin.host.ask(request, 9, admin.connection).topics]
    created = codes.count(0)
    assert codes == [0] * created + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (30 - created)
    assert created == 23, "as many as are saved up, and one that goes below zero"


def test_a_dry_run_costs_as_much_as_in_kafka() -> None:
    admin = Admin()
    assert [admin.ask("create", 7, validate_only=True)[0] for _ in range(3)] == [0, 0, EXCEEDED]
