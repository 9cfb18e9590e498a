"""The admin client beside a broker that fails, answers late or not at all: what may pass, passes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace import Admin, KafkaError, OffsetAt, TimedOut, TopicPartition, Unreachable
from headrace.aio import Admin as AsyncAdmin
from headrace.testing import Broker


@pytest.fixture
def admin(headrace_broker: Broker) -> Iterator[Admin]:
    headrace_broker.create_topic("orders")
    headrace_broker.produce_all("orders", ["a", "b", "c"])
    with Admin(headrace_broker.bootstrap_servers, retry_backoff_ms=1, reconnect_backoff_ms=1) as admin:
        yield admin


def end(admin: Admin) -> int | None:
    return admin.list_offsets({("orders", 0): OffsetAt.LATEST})[TopicPartition("orders", 0)].offset


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
        ("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION"),  # a leader that has not heard of the topic yet
        ("Metadata", "LEADER_NOT_AVAILABLE"),
    ],
)
def test_a_leader_that_moves(headrace_broker: Broker, admin: Admin, api: str, code: str) -> None:
    fault = headrace_broker.faults.error(api=api, code=code, times=3)
    assert end(admin) == 3
    assert fault.times_left == 0


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_coordinator_that_moves_or_loads(headrace_broker: Broker, admin: Admin, code: str) -> None:
    admin.alter_group_offsets("readers", {("orders", 0): 1})
    fault = headrace_broker.faults.error(api="OffsetFetch", code=code, times=3)
    assert admin.list_group_offsets("readers")[TopicPartition("orders", 0)].offset == 1
    assert fault.times_left == 0


def test_connections_that_break(headrace_broker: Broker, admin: Admin) -> None:
    assert end(admin) == 3
    headrace_broker.faults.cut_connections()
    assert end(admin) == 3
    with headrace_broker.faults.drop_after_write(api="ListOffsets", times=2):
        assert end(admin) == 3


def test_an_order_whose_answer_is_lost_is_given_again(headrace_broker: Broker, admin: Admin) -> None:
    headrace_broker.faults.drop_after_write(api="CreateTopics")
    with pytest.raises(KafkaError) as refused:
        admin.create_topic("again")
    assert refused.value.name == "TOPIC_ALREADY_EXISTS"
    assert len(admin.describe_topic("again").partitions) == 1


def test_a_broker_that_comes_back(headrace_broker: Broker, admin: Admin) -> None:
    assert end(admin) == 3
    with headrace_broker.faults.refuse_connections():
        headrace_broker.faults.cut_connections()
        with pytest.raises(Unreachable):
            end(admin.within(0.2))
    assert end(admin) == 3


def test_a_broker_that_is_silent(headrace_broker: Broker, admin: Admin) -> None:
    assert end(admin) == 3
    with (
        headrace_broker.faults.delay(ms=60_000, api="ListOffsets"),
        pytest.raises(TimedOut, match=r"ListOffsets|listing offsets"),
    ):
        end(admin.within(0.2))
    with Admin(headrace_broker.bootstrap_servers) as another:
        assert end(another) == 3


def test_tasks_meet_the_same_faults(headrace_broker: Broker, admin: Admin) -> None:
    headrace_broker.faults.error(api="ListOffsets", code="NOT_LEADER_OR_FOLLOWER", times=2)
    headrace_broker.faults.drop_after_write(api="DescribeCluster")

    async def main() -> None:
        async with AsyncAdmin(headrace_broker.bootstrap_servers, retry_backoff_ms=1) as asyncly:
            found, cluster = await asyncio.gather(
                asyncly.list_offsets({("orders", 0): OffsetAt.LATEST}), asyncly.describe_cluster()
            )
            assert found["orders", 0].offset == 3
            assert len(cluster.brokers) == 1

    asyncio.run(main())


def test_a_wrong_argument_spoils_one_call_and_no_more(admin: Admin) -> None:
    with pytest.raises(Exception, match="int"):
        admin.create_topic("odd", assignments=[1, 2])  # type: ignore[list-item]
    assert end(admin) == 3
