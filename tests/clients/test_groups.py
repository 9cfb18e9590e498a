"""Consumer groups, told once and played by every client: sharing, leaving, crashing, remembering offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.errors import FencedInstanceIdError

from clients.grouping import doomed, leaving, places, produce, receive, share, values_of
from harness.members import CLIENTS, Committed, Member, Place
from harness.wait import WAIT_S, eventually

ALL = sorted(CLIENTS.keys() - {"headrace-aio"})  # which has the same core as headrace
CLASSIC = [client for client in ALL if not client.endswith("-consumer")]
every_client = pytest.mark.parametrize("client", ALL)
kafka_python_only_if_steady = pytest.mark.parametrize(
    "client",
    [pytest.param(name, marks=pytest.mark.steady) if name == "kafka-python" else name for name in ALL],
)
# kafka-python's `committed` waits for ever if the coordinator dies before it has answered.
every_client_that_asks = kafka_python_only_if_steady
# If the broker that kafka-python asks for all topics refuses the connection, `poll` raises.
every_client_with_patterns = kafka_python_only_if_steady


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_members_share_and_take_over_from_those_who_leave(
    bootstrap: str, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic(partitions=6)
    every = places(topic, 6)
    with leaving([CLIENTS[client](bootstrap, topic, [topic])]) as members:
        share(members, every)
        for _ in range(2):
            members.append(CLIENTS[client](bootstrap, topic, [topic]))
        share(members, every)
        sent = produce(bootstrap, topic, partitions=6, per_partition=5)
        receive(members, sent)
        members.pop(0).close()
        share(members, every)
        members.pop().close()
        share(members, every)


@every_client
def test_a_crashed_member_is_replaced(bootstrap: str, new_topic: Callable[..., str], client: str) -> None:
    topic = new_topic(partitions=4)
    with doomed(client, bootstrap, topic, topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "owns 4\n"
        with leaving([CLIENTS[client](bootstrap, topic, [topic])]) as members:
            eventually(lambda: len(members[0].owned), 2)
            process.kill()
            share(members, places(topic, 4))


@every_client_that_asks
def test_a_group_goes_on_where_it_committed(
    bootstrap: str, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic(partitions=2)
    first, second = places(topic, 2)
    sent = produce(bootstrap, topic, partitions=2, per_partition=10)
    with leaving([CLIENTS[client](bootstrap, topic, [topic])]) as members:
        receive(members, sent)
        assert members[0].committed(first) is None
        members[0].commit({first: Committed(4), second: Committed(10)})
        assert members[0].committed(first) == Committed(4)
    with leaving([CLIENTS[client](bootstrap, topic, [topic])]) as members:
        receive(members, [value for value in sent if value.startswith(b"0/")][4:])
        assert members[0].committed(second) == Committed(10)
        members[0].seek(second, 7)
        eventually(lambda: [r.offset for r in members[0].received if r.place == second], [7, 8, 9])


@every_client_that_asks
def test_automatic_commits_are_made_while_polling_and_on_closing(
    bootstrap: str, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic()
    (place,) = places(topic, 1)
    settings: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    if client.startswith("confluent"):
        settings = {key.replace("_", "."): value for key, value in settings.items()}
    with leaving([CLIENTS[client](bootstrap, topic, [topic], **settings)]) as members:
        receive(members, produce(bootstrap, topic, partitions=1, per_partition=5))
        eventually(lambda: members[0].committed(place), Committed(5))
        receive(members, [r.value for r in members[0].received] + produce(bootstrap, topic, 1, 3, first=5))
    with leaving([CLIENTS[client](bootstrap, topic, [topic])]) as members:
        assert members[0].committed(place) == Committed(8)


@every_client
def test_groups_do_not_know_each_other(bootstrap: str, new_topic: Callable[..., str], client: str) -> None:
    topic = new_topic(partitions=2)
    sent = produce(bootstrap, topic, partitions=2, per_partition=3)
    groups = [f"{topic}-{number}" for number in range(2)]
    with leaving([CLIENTS[client](bootstrap, group, [topic]) for group in groups]) as members:
        for member in members:
            receive([member], sent)
        members[0].commit({Place(topic, 0): Committed(2)})
        assert members[1].committed(Place(topic, 0)) is None


@every_client
def test_new_partitions_are_noticed(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic(partitions=2)
    with leaving([CLIENTS[client](bootstrap, topic, [topic]) for _ in range(2)]) as members:
        share(members, places(topic, 2))
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_S)
        share(members, places(topic, 5))
        # a member that notices them later than the others joins once more: what was read is read again
        sent = produce(bootstrap, topic, partitions=5, per_partition=2)
        eventually(lambda: sorted(set(values_of(members))), sorted(sent))


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions)], operation_timeout=WAIT_S)[topic].result(WAIT_S)


@every_client_with_patterns
def test_a_pattern_takes_the_topics_that_match(
    bootstrap: str, admin: AdminClient, name: str, client: str
) -> None:
    create(admin, f"{name}-eu-1", 2)
    create(admin, f"{name}-us-1", 2)
    with leaving([CLIENTS[client](bootstrap, name, [f"^{name}-eu-.*"])]) as members:
        share(members, places(f"{name}-eu-1", 2))
        if client in CLASSIC:  # with KIP-848, Kafka looks at patterns again every ten seconds only
            create(admin, f"{name}-eu-2", 2)
            create(admin, f"{name}-us-2", 2)
            share(members, places(f"{name}-eu-1", 2) + places(f"{name}-eu-2", 2))


@every_client
def test_a_member_may_change_what_it_reads(
    bootstrap: str, admin: AdminClient, name: str, client: str
) -> None:
    old, new = f"{name}-old", f"{name}-new"
    create(admin, old, 2)
    create(admin, new, 3)
    with leaving([CLIENTS[client](bootstrap, name, [old])]) as members:
        share(members, places(old, 2))
        members[0].resubscribe([new])
        share(members, places(new, 3))
        receive(members, produce(bootstrap, new, partitions=3, per_partition=1))


@pytest.mark.steady  # a coordinator that fails over may notice
@every_client
def test_a_static_member_comes_back_unnoticed(
    bootstrap: str, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic(partitions=4)
    join = CLIENTS[client]

    def one(instance: str) -> Member:
        return join(bootstrap, topic, [topic], instance=instance)

    with leaving([one("first"), one("second")]) as members:
        share(members, places(topic, 4))
        before, moves = members[1].owned, list(members[0].moves)
        members.pop().close()
        members.append(one("second"))
        share(members, places(topic, 4))
        assert members[1].owned == before
        assert members[0].moves == moves
        receive(members, produce(bootstrap, topic, partitions=4, per_partition=2))


@pytest.mark.parametrize("client", ["confluent-kafka", "headrace", "kafka-python"])
def test_a_second_bearer_of_a_static_name_puts_the_first_out(
    bootstrap: str, new_topic: Callable[..., str], client: str
) -> None:
    """aiokafka takes part in this too, but does not know the error and tells its user nothing."""
    topic = new_topic(partitions=2)
    first = CLIENTS[client](bootstrap, topic, [topic], instance="the-one")
    with leaving([first]) as members:
        share([first], places(topic, 2))
        second = CLIENTS[client](bootstrap, topic, [topic], instance="the-one")
        members.append(second)
        share([second], places(topic, 2))
        if client == "kafka-python":
            with pytest.raises(FencedInstanceIdError):
                first.commit({Place(topic, 0): Committed(1)})
        else:
            eventually(lambda: first.failure is not None, True)
            fenced = "FENCED_INSTANCE_ID" if client == "headrace" else "Static consumer fenced"
            assert fenced in str(first.failure)
        assert second.committed(Place(topic, 0)) is None


@pytest.mark.parametrize("client", ["confluent-kafka-consumer", "headrace-consumer"])
def test_with_kip_848_a_static_name_stays_with_the_first(
    bootstrap: str, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic(partitions=2)
    join = CLIENTS[client]
    with leaving([join(bootstrap, topic, [topic], instance="the-one")]) as members:
        share(members, places(topic, 2))
        members.append(join(bootstrap, topic, [topic], instance="the-one"))
        eventually(lambda: members[1].failure is not None, True)
        assert "still used" in str(members[1].failure) or "UNRELEASED" in str(members[1].failure)
        share(members[:1], places(topic, 2))


@every_client
def test_a_member_that_does_not_poll_loses_its_partitions(
    bootstrap: str, new_topic: Callable[..., str], client: str
) -> None:
    """It may come back; what it then commits of the time before is refused or of no effect."""
    topic = new_topic(partitions=2)
    settings: dict[str, Any] = {"max_poll_interval_ms": 1500, "session_timeout_ms": 1500}
    if client == "confluent-kafka-consumer":
        del settings["session_timeout_ms"]
    if client.startswith("confluent"):
        settings = {key.replace("_", "."): value for key, value in settings.items()}
    with leaving([CLIENTS[client](bootstrap, topic, [topic], **settings) for _ in range(2)]) as members:
        share(members, places(topic, 2))
        slow, quick = members
        with slow.standing_still():
            share([quick], places(topic, 2))
            receive([quick], [*values_of([quick]), *produce(bootstrap, topic, partitions=2, per_partition=2)])
        share(members, places(topic, 2))
