"""`headrace group` and `headrace cluster transactions` against a broker, with consumers that live.

Commands run in this process: there are many, and a process for each would take longer than all they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from cli.shell import Inside
from harness.broker import Broker
from harness.wait import WAIT_S, eventually
from headrace.client.threads.admin import Admin

RECORDS = 10  # in each partition


@pytest.fixture
def headrace(inside: Inside) -> Inside:
    return inside


@pytest.fixture
def filled(cli_broker: Broker, topic: str) -> str:
    """A topic with two partitions of ten records."""
    write(cli_broker, topic, {0: RECORDS, 1: RECORDS})
    return topic


def write(broker: Broker, topic: str, counts: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for partition, count in counts.items():
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(WAIT_S) == 0


@pytest.fixture
def join(cli_broker: Broker, filled: str) -> Iterator[Callable[..., Consumer]]:
    """Starts a consumer of a group, and waits until it has read everything and committed it."""
    started: list[Consumer] = []

    def make(group: str, *, protocol: str = "classic", **settings: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": cli_broker.bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": f"{group}-client",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 2,
            }
            | settings
        )
        started.append(consumer)
        consumer.subscribe([filled])
        assert len(consumer.consume(2 * RECORDS, timeout=WAIT_S)) == 2 * RECORDS
        consumer.commit(asynchronous=False)
        return consumer

    yield make
    for consumer in started:
        consumer.close()


@pytest.fixture
def group(topic: str) -> str:
    return f"readers-of-{topic}"


def partitions(lag: Any) -> dict[int, tuple[Any, ...]]:
    return {one["partition"]: (one["committed"], one["end"], one["lag"]) for one in lag["partitions"]}


def offsets(broker: Broker, group: str) -> dict[int, int]:
    """What the broker keeps, without a process for the question."""
    with Admin(broker.bootstrap) as admin:
        return {at.partition: told.offset for at, told in admin.list_group_offsets(group).items()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_reads(
    headrace: Any,
    cli_broker: Broker,
    filled: str,
    group: str,
    join: Callable[..., Consumer],
    protocol: str,
) -> None:
    consumer = join(group, protocol=protocol)
    listed = {one["group"]: one for one in headrace("group", "list", "--json").json}
    assert (listed[group]["type"], listed[group]["state"]) == (protocol, "Stable")
    assert group in headrace("group", "list").lines
    assert group not in headrace("group", "list", "--state", "empty").lines
    assert group in headrace("group", "list", "--type", protocol).lines

    (described,) = headrace("group", "describe", group, "--json").json
    (member,) = described["members"]
    assert (described["type"], described["state"], described["coordinator"]) == (protocol, "Stable", 1)
    assert (member["client_id"], member["host"], member["instance_id"]) == (
        f"{group}-client",
        "127.0.0.1",
        None,
    )
    assert member["assignment"] == [{"topic": filled, "partition": index} for index in (0, 1)]
    assert f"{filled}:0-1" in headrace("group", "describe", group).out.decode()

    write(cli_broker, filled, {1: 1})
    (lag,) = headrace("group", "lag", group, "--json").json
    assert partitions(lag) == {0: (10, 10, 0), 1: (10, 11, 1)}
    assert (lag["lag"], lag["members"]) == (1, 1)
    assert {one["member"] for one in lag["partitions"]} == {member["member_id"]}
    (line,) = [line.split() for line in headrace("group", "lag").lines if line.startswith(f"{group} ")]
    assert line == [group, "Stable", "1", "2", "1"]

    refused = headrace.attempt("group", "reset", group, "--all-topics", "--to", "earliest", "--execute")
    assert refused.code == 1
    assert f"group '{group}' is Stable with 1 member" in refused.err
    refused = headrace.attempt("group", "delete", group, "--yes")
    assert refused.code == 1
    assert "NON_EMPTY_GROUP" in refused.err
    assert offsets(cli_broker, group) == {0: 10, 1: 10}
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_resets_of_a_group_that_is_empty(
    headrace: Any,
    cli_broker: Broker,
    filled: str,
    group: str,
    join: Callable[..., Consumer],
    protocol: str,
) -> None:
    join(group, protocol=protocol).close()
    eventually(lambda: headrace("group", "describe", group, "--json").json[0]["state"], "Empty")

    shown = headrace("group", "reset", group, "--all-topics", "--to", "earliest")
    assert "nothing was changed" in shown.lines[-1]
    assert offsets(cli_broker, group) == {0: 10, 1: 10}

    def reset(*arguments: str) -> dict[int, int]:
        told = headrace("group", "reset", group, *arguments, "--execute", "--json").json
        after = {one["partition"]: one["after"] for one in told["partitions"]}
        there = offsets(cli_broker, group)
        assert {index: there[index] for index in after} == after
        return there

    assert reset("--all-topics", "--to", "earliest") == {0: 0, 1: 0}
    assert reset("--topic", f"{filled}:1", "--to", "7") == {0: 0, 1: 7}
    assert reset("--topic", f"{filled}:1", "--by", "-3") == {0: 0, 1: 4}
    assert reset("--topic", filled, "--by", "100") == {0: 10, 1: 10}
    assert reset("--topic", filled, "--to", "-4") == {0: 6, 1: 6}
    assert reset("--topic", filled, "--to", "-1h") == {0: 0, 1: 0}
    assert reset("--topic", filled, "--to", "latest") == {0: 10, 1: 10}

    headrace("group", "delete", group, "--topic", f"{filled}:0", "--yes")
    assert offsets(cli_broker, group) == {1: 10}
    refused = headrace.attempt("group", "delete", group)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert offsets(cli_broker, group) == {1: 10}
    headrace("group", "delete", group, "--yes")
    assert group not in headrace("group", "list").lines
    missing = headrace.attempt("group", "describe", group)
    assert missing.code == 1
    assert "GROUP_ID_NOT_FOUND" in missing.err


def test_who_comes_after_a_reset_reads_from_there(
    headrace: Any, cli_broker: Broker, filled: str, group: str
) -> None:
    """The group need not have been there before."""
    headrace("group", "reset", group, "--topic", filled, "--to", "8", "--execute")
    consumer = Consumer(
        {
            "bootstrap.servers": cli_broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "log_level": 2,
        }
    )
    consumer.subscribe([filled])
    read = consumer.consume(4, timeout=WAIT_S)
    consumer.close()
    assert sorted((record.partition(), record.offset()) for record in read) == [
        (0, 8),
        (0, 9),
        (1, 8),
        (1, 9),
    ]


def test_what_cannot_be_reset(headrace: Any, filled: str, group: str) -> None:
    nothing = headrace.attempt("group", "reset", group, "--all-topics", "--to", "earliest")
    assert (nothing.code, "has no committed offsets" in nothing.err) == (1, True)
    shifted = headrace.attempt("group", "reset", group, "--topic", filled, "--by", "1")
    assert (shifted.code, f"no committed offset in {filled}-0" in shifted.err) == (1, True)
    beyond = headrace.attempt("group", "reset", group, "--topic", f"{filled}:2", "--to", "1")
    assert (beyond.code, "has no partition 2: it has partitions 0 to 1" in beyond.err) == (1, True)


def test_transactions(headrace: Any, cli_broker: Broker, topic: str) -> None:
    name = f"tx-{topic}"
    producer = Producer({"bootstrap.servers": cli_broker.bootstrap, "transactional.id": name, "log_level": 2})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=1)
    assert producer.flush(WAIT_S) == 0

    def state() -> str:
        listed = {one["transactional_id"]: one for one in headrace("cluster", "transactions", "--json").json}
        return str(listed[name]["state"])

    assert state() == "Ongoing"
    (told,) = headrace("cluster", "transactions", name, "--json").json
    assert told["partitions"] == [{"topic": topic, "partition": 1}]
    assert (told["state"], told["producer_epoch"], told["timeout_ms"]) == ("Ongoing", 0, 60_000)
    assert f"writes to {topic}:1" in headrace("cluster", "transactions", name).lines
    # it is open, and its coordinator knows: it does not hang
    assert headrace("cluster", "transactions", "--hanging", "--older-than", "0", "--json").json == []

    producer.commit_transaction(WAIT_S)
    eventually(state, "CompleteCommit")
    unknown = headrace.attempt("cluster", "transactions", "no-such-id")
    assert (unknown.code, "TRANSACTIONAL_ID_NOT_FOUND" in unknown.err) == (1, True)


def test_sinks(headrace: Any, cli_broker: Broker, topic: str) -> None:
    name = f"sink-{topic}"
    with Admin(cli_broker.bootstrap) as admin:
        admin.commit_sink(name, "query", "run", 4, [])
    (told,) = [one for one in headrace("cluster", "sinks", "list", "--json").json if one["app_id"] == name]
    assert (told["query_id"], told["committed_batch_id"], told["batch_id"]) == ("query", 4, None)
    assert any(line.startswith(name) for line in headrace("cluster", "sinks", "list").lines)
    assert headrace("cluster", "sinks", "reset", name, "--yes").lines == [f"reset {name}"]
    assert name not in {one["app_id"] for one in headrace("cluster", "sinks", "list", "--json").json}
    unknown = headrace.attempt("cluster", "sinks", "reset", name, "--yes")
    assert (unknown.code, f"the sink '{name}' does not exist" in unknown.err) == (1, True)
