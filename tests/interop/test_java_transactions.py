"""Transactions and Kafka's tools: isolation levels, kafka-transactions, a Java producer of version 2."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Producer

from harness.broker import Broker
from harness.wait import WAIT_S, eventually
from interop.java_tools import Outcome, Run, create
from interop.side_by_side import assert_same

Brokers = tuple[Broker, Broker]


def producer(broker: Broker, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    made = Producer(settings)
    made.init_transactions(WAIT_S)
    return made


def send(sender: Producer, topic: str, name: str, partitions: int = 1) -> None:
    for number in range(4):
        sender.produce(topic, f"{name} {number}".encode(), partition=number % partitions)
    assert sender.flush(WAIT_S) == 0


def consume(run: Run, broker: Broker, topic: str, level: str, count: int) -> list[str]:
    where = ["--topic", topic, "--from-beginning", "--group", f"{topic}-{level}", "--timeout-ms", "20000"]
    amount = ["--max-messages", str(count)]
    return sorted(run(broker, "kafka-console-consumer", *where, *amount, "--isolation-level", level).lines)


def test_isolation_levels(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        create(run, broker, topic, 2)
        sender = producer(broker, topic)
        for name in ("kept", "lost", "kept too"):
            sender.begin_transaction()
            send(sender, topic, name, 2)
            if name == "lost":
                sender.abort_transaction(WAIT_S)
            else:
                sender.commit_transaction(WAIT_S)
        sender.begin_transaction()
        send(sender, topic, "open", 2)
        told: list[object] = [
            consume(run, broker, topic, "read_committed", 8),
            consume(run, broker, topic, "read_uncommitted", 16),
            run(broker, "kafka-get-offsets", "--topic", topic).lines,
        ]
        sender.commit_transaction(WAIT_S)
        told.append(consume(run, broker, topic, "read_committed", 4))
        return told

    committed, uncommitted, _, rest = assert_same(brokers, story)
    assert len(committed) == 8  # type: ignore[arg-type]
    assert len(uncommitted) == 16  # type: ignore[arg-type]
    assert rest == [f"open {number}" for number in range(4)]


def cells(outcome: Outcome, *own: str) -> object:
    """The printed table by its cells, without the numbers in columns `own`, which no two runs share."""
    lines = [[cell.strip() for cell in line.strip("\t").split("\t")] for line in outcome.lines]
    header = lines[0] if lines else []
    rows = []
    for line in lines[1:]:
        row = dict(zip(header, line))
        for name in own:
            row[name] = re.sub(r"\d+", "N", row.get(name, ""))
        row["TopicPartitions"] = ",".join(sorted(row.get("TopicPartitions", "").split(",")))
        rows.append(row)
    rows.sort(key=lambda row: sorted(row.items()))  # the oracle lists in the order of a hash table
    return outcome.code, header, rows, outcome.err


@pytest.mark.steady  # brokers are asked one by one
def test_transactions_are_told_of(brokers: Brokers, run: Run, topic: str) -> None:
    own = ["ProducerId", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "LastTimestamp"]

    def state(broker: Broker) -> str:
        listed = run(broker, "kafka-transactions", "list", "--transactional-id-pattern", topic)
        return listed.lines[1].split()[3]

    def story(broker: Broker) -> list[object]:
        create(run, broker, topic, 2)
        told: list[object] = []

        def tell(*arguments: str) -> None:
            told.append((arguments, cells(run(broker, "kafka-transactions", *arguments), *own)))

        def look() -> None:
            tell("list", "--transactional-id-pattern", f"{topic}.*")
            tell("describe", "--transactional-id", topic)
            tell("describe-producers", "--topic", topic, "--partition", "0")
            tell("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")

        sender = producer(broker, topic)
        tell("list", "--transactional-id-pattern", topic)
        sender.begin_transaction()
        send(sender, topic, "open", 2)
        look()
        tell("list", "--transactional-id-pattern", topic, "--duration-filter", "1000000")
        tell("find-hanging", "--broker-id", "1")
        tell("describe", "--transactional-id", f"{topic}-nobody")
        sender.commit_transaction(WAIT_S)
        eventually(lambda: state(broker), "CompleteCommit")
        look()
        sender.begin_transaction()
        send(sender, topic, "to be ended", 2)
        ended = run(broker, "kafka-transactions", "forceTerminateTransaction", "--transactionalId", topic)
        told.append((ended.code, ended.out, ended.err))
        eventually(lambda: state(broker), "Empty")
        look()
        other = producer(broker, f"{topic}-2")
        other.begin_transaction()
        send(other, topic, "to be ended in one partition", 2)
        where = ["--topic", topic, "--partition", "1", "--start-offset"]
        for offset in ("3", "6"):  # where the one before began, and this one
            ended = run(broker, "kafka-transactions", "abort", *where, offset)
            told.append((offset, ended.code, ended.out, ended.err))
        assert ended.code == 0, ended
        tell("describe-producers", "--topic", topic, "--partition", "1")
        return told

    assert_same(brokers, story)


def test_a_java_producer_of_version_2(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        create(run, broker, topic, 2)
        told: list[object] = []
        for _ in range(2):  # the second continues the first one's id
            outcome = run(
                *(broker, "kafka-producer-perf-test", "--topic", topic, "--num-records", "2000"),
                *("--record-size", "50", "--throughput", "10000", "--transactional-id", topic),
                *("--transaction-duration-ms", "20"),
            )
            told.append((outcome.code, outcome.lines[-1].split(",")[0]))
        got = run(
            *(broker, "kafka-consumer-perf-test", "--topic", topic, "--group", topic),
            *("--num-records", "4000", "--timeout", "20000"),
            *("--command-property", "isolation.level=read_committed"),
        )
        told.append((got.code, got.lines[-1].split(", ")[4]))
        return told

    assert assert_same(brokers, story)[-1] == (0, "4000")
