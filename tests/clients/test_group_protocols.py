"""What some clients of a group can do: cooperate, mix, change the protocol, be refused, outlive a kill."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from clients.grouping import division, leaving, places, produce, receive, settle, share, values_of
from harness.broker import Broker
from harness.members import ASSIGNORS, CLIENTS, Committed, Member, Place
from harness.quick_coordinators import QUICK_COORDINATORS
from harness.wait import WAIT_S, eventually

BOTH_PROTOCOLS = pytest.mark.parametrize("client", ["confluent-kafka", "confluent-kafka-consumer"])


def join(client: str, bootstrap: str, group: str, topic: str, assignor: str | None = None) -> Member:
    settings = {} if assignor is None else ASSIGNORS[assignor][client]
    return CLIENTS[client](bootstrap, group, [topic], **settings)


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_clients_of_all_kinds_share_one_group(
    bootstrap: str, new_topic: Callable[..., str], assignor: str
) -> None:
    topic = new_topic(partitions=6)
    with leaving(
        [join(client, bootstrap, topic, topic, assignor) for client in ASSIGNORS[assignor]]
    ) as members:
        assert len(members) == 4
        share(members, places(topic, 6))
        receive(members, produce(bootstrap, topic, partitions=6, per_partition=3))
        while len(members) > 1:  # whoever decides, the others understand
            members.pop(0).close()
            share(members, places(topic, 6))


@pytest.mark.parametrize(
    "clients",
    [["confluent-kafka"] * 3, ["kafka-python"] * 3, ["kafka-python", "confluent-kafka", "kafka-python"]],
    ids=["confluent-kafka", "kafka-python", "mixed"],
)
def test_cooperation_moves_only_what_has_to_move(
    bootstrap: str, new_topic: Callable[..., str], clients: list[str]
) -> None:
    topic = new_topic(partitions=6)
    with leaving([]) as members:
        for client in clients:
            kept = [member.owned for member in members]
            members.append(join(client, bootstrap, topic, topic, "cooperative-sticky"))
            share(members, places(topic, 6))
            assert all(member.owned < before for member, before in zip(members, kept))
        for member in members:
            assert sum(len(moved) for how, moved in member.moves if how == "gave up") <= 6 - len(member.owned)
            assert "lost" not in {how for how, _ in member.moves}
        receive(members, produce(bootstrap, topic, partitions=6, per_partition=2))


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_the_broker_assigns(bootstrap: str, new_topic: Callable[..., str], assignor: str) -> None:
    topic = new_topic(partitions=4)
    client = CLIENTS["confluent-kafka-consumer"]
    settings = {"group.remote.assignor": assignor}
    with leaving([client(bootstrap, topic, [topic], **settings) for _ in range(2)]) as members:
        share(members, places(topic, 4))
        if assignor == "range":
            owned = sorted(sorted(place.partition for place in member.owned) for member in members)
            assert owned == [[0, 1], [2, 3]]


def test_an_assignor_that_the_broker_does_not_have(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    client = CLIENTS["confluent-kafka-consumer"]
    with leaving([client(bootstrap, topic, [topic], **{"group.remote.assignor": "best"})]) as members:
        eventually(lambda: members[0].failure is not None, True)
        assert "assignor" in str(members[0].failure).lower()


def test_protocols_that_do_not_agree(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    with leaving([join("confluent-kafka", bootstrap, topic, topic, "range")]) as members:
        share(members, places(topic, 2))
        stranger = join("confluent-kafka", bootstrap, topic, topic, "cooperative-sticky")
        members.append(stranger)
        eventually(lambda: bool(stranger.errors), True)
        assert stranger.errors[0].code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        share(members[:1], places(topic, 2))


def has_received(members: list[Any], sent: list[bytes]) -> bool:
    return set(sent) <= set(values_of(members))


def test_a_group_is_upgraded_and_downgraded_while_it_runs(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=4)

    def group_type() -> str:
        return str(admin.describe_consumer_groups([topic])[topic].result(WAIT_S).type.name)

    with leaving([join("confluent-kafka", bootstrap, topic, topic) for _ in range(2)]) as members:
        share(members, places(topic, 4))
        assert group_type() == "CLASSIC"
        for old, new, kind in (
            ("confluent-kafka", "confluent-kafka-consumer", "CONSUMER"),
            ("confluent-kafka-consumer", "confluent-kafka", "CLASSIC"),
        ):
            assert isinstance(members[0], CLIENTS[old])
            for number in range(2):  # roll the members, one after the other, as in a deployment
                members.pop(0).close()
                members.append(join(new, bootstrap, topic, topic))
                share(members, places(topic, 4))
                sent = produce(bootstrap, topic, partitions=4, per_partition=1, first=number)
                eventually(partial(has_received, members, sent), True)
            eventually(group_type, kind)


@BOTH_PROTOCOLS
def test_metadata_of_commits_and_commits_in_the_background(
    bootstrap: str, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic(partitions=2)
    first, second = places(topic, 2)
    told: list[tuple[KafkaError | None, list[ConfluentPartition]]] = []
    settings: dict[str, Any] = {"on_commit": lambda error, partitions: told.append((error, partitions))}
    with leaving([CLIENTS[client](bootstrap, topic, [topic], **settings)]) as members:
        (member,) = members
        receive(members, produce(bootstrap, topic, partitions=2, per_partition=3))
        member.commit({first: Committed(1, "a note"), second: Committed(2, "größer")})
        assert member.committed(first) == Committed(1, "a note")
        assert member.committed(second) == Committed(2, "größer")
        told.clear()
        member.ask(lambda c: c.commit(offsets=[ConfluentPartition(*first, 3)], asynchronous=True))
        eventually(lambda: [(error, [p.offset for p in done]) for error, done in told], [(None, [3])])
        assert member.committed(first) == Committed(3)


@BOTH_PROTOCOLS
def test_commits_that_are_refused(bootstrap: str, new_topic: Callable[..., str], client: str) -> None:
    topic = new_topic()
    (place,) = places(topic, 1)

    def refusal(offsets: dict[Place, Committed]) -> int:
        with pytest.raises(KafkaException) as refused:
            member.commit(offsets)
        return int(refused.value.args[0].code())

    with leaving([join(client, bootstrap, topic, topic)]) as members:
        (member,) = members
        share(members, [place])
        member.commit({place: Committed(1, "x" * 4095)})  # this client adds a zero byte: 4,096 is the limit
        assert refusal({place: Committed(2, "x" * 4096)}) == KafkaError.OFFSET_METADATA_TOO_LARGE
        assert refusal({Place(f"no-{topic}", 0): Committed(2)}) == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert member.committed(place) == Committed(1, "x" * 4095)


@BOTH_PROTOCOLS
def test_without_a_commit_and_without_a_reset_policy(
    bootstrap: str, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic()
    settings: dict[str, Any] = {"auto.offset.reset": "error"}
    with leaving([CLIENTS[client](bootstrap, topic, [topic], **settings)]) as members:
        eventually(lambda: [error.code() for error in members[0].errors], [KafkaError._AUTO_OFFSET_RESET])


@pytest.mark.steady  # it kills them itself
@pytest.mark.parametrize("client", ["confluent-kafka", "confluent-kafka-consumer", "aiokafka", "headrace"])
def test_a_group_outlives_a_kill_of_the_broker(
    new_broker: Callable[..., Broker], name: str, client: str
) -> None:
    broker = new_broker(QUICK_COORDINATORS).start()
    produce(broker.bootstrap, name, partitions=1, per_partition=5)
    with leaving([CLIENTS[client](broker.bootstrap, name, [name]) for _ in range(2)]) as members:
        settle(members, [Place(name, 0)])
        eventually(lambda: len(set(values_of(members))), 5)
        (owner,) = [member for member in members if member.owned]
        owner.commit({Place(name, 0): Committed(5, "before")})
        broker.kill()
        broker.start()
        produce(broker.bootstrap, name, partitions=1, per_partition=3, first=5)
        eventually(lambda: (division(members), len(set(values_of(members)))), ([Place(name, 0)], 8))
        # aiokafka ignores the error of a coordinator that still loads, and says that nothing is committed
        eventually(lambda: (members[0].committed(Place(name, 0)) or Committed(-1)).offset, 5)
    broker.stop()
