"""Kafka's own Java command-line tools do against Headrace what they do against Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.broker import Broker
from interop.java_tools import JavaTools, Run, create
from interop.side_by_side import assert_same

Brokers = tuple[Broker, Broker]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHOW = [
    word
    for what in ("timestamp", "partition", "offset", "headers", "key")
    for word in ("--formatter-property", f"print.{what}=true")
]

# what a cluster, its security and kinds of groups to come will need, and what only Headrace has
LATER = re.compile(
    "UNKNOWN|Sasl|Acls|DelegationToken|ClientQuotas|Scram|Share|Streams|RaftVoter|UnregisterBroker|"
    "AlterPartitionReassignments"
)


def produced(topic: str, count: int) -> str:
    return "".join(f"h:{number}\tkey-{number}\tvalue {number} of {topic}\n" for number in range(count))


def test_topics_are_created_described_widened_and_deleted(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        told: list[object] = []

        def tell(*arguments: str) -> None:
            outcome = run(broker, "kafka-topics", *arguments)
            # Kafka's reason names log directories that are cordoned, which is a feature of its own
            lines = [line.partition(" or some brokers have")[0].rstrip(".") for line in outcome.lines]
            told.append((arguments, outcome.code, sorted(lines)))

        tell("--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=9000")
        tell("--create", "--topic", topic, "--partitions", "3")
        tell("--create", "--topic", topic, "--if-not-exists")
        tell("--create", "--topic", topic + "-rf", "--replication-factor", "3")
        tell("--create", "--topic", topic + "-config", "--config", "retention.ms=soon")
        tell("--create", "--topic", topic + "-policy", "--config", "cleanup.policy=burn")
        tell("--create", "--topic", "white space")
        tell("--create", "--topic", topic + "-assigned", "--replica-assignment", "1,1")
        tell("--describe", "--topic", topic)
        tell("--describe", "--topic", topic + ".*", "--topics-with-overrides")
        tell("--describe", "--topic", topic, "--under-replicated-partitions")
        tell("--describe", "--topic", topic, "--unavailable-partitions")
        tell("--describe", "--topic", topic + "-nowhere")
        tell("--alter", "--topic", topic, "--partitions", "5")
        tell("--alter", "--topic", topic, "--partitions", "2")
        tell("--alter", "--topic", topic + "-nowhere", "--partitions", "2")
        tell("--describe", "--topic", topic)
        tell("--list", "--topic", topic + ".*")
        tell("--delete", "--topic", topic)
        tell("--delete", "--topic", topic)
        tell("--delete", "--topic", topic, "--if-exists")
        tell("--list", "--topic", topic + ".*")
        return told

    assert_same(brokers, story)


def test_topic_configs_are_described_with_every_key_default_and_synonym(
    brokers: Brokers, run: Run, topic: str
) -> None:
    def story(broker: Broker) -> list[str]:
        create(run, broker, topic)
        lines = run(broker, "kafka-configs", "--describe", "--topic", topic, "--all").lines
        return [line for line in lines if not line.startswith("  headrace.")]

    assert len(assert_same(brokers, story)) > 30


def test_topic_configs_are_added_and_deleted(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        create(run, broker, topic)
        told: list[object] = []

        def alter(*arguments: str) -> None:
            changed = run(broker, "kafka-configs", "--alter", "--topic", topic, *arguments)
            shown = run(broker, "kafka-configs", "--describe", "--topic", topic)
            told.append((arguments, changed.code, changed.out, changed.err, shown.out))

        alter("--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
        alter("--add-config", "retention.ms=6000,flush.messages=7")
        alter("--delete-config", "retention.ms")
        alter("--delete-config", "segment.ms")
        alter("--add-config", "no.such.key=1")
        alter("--add-config", "retention.ms=soon")
        alter("--add-config", "compression.type=rar")
        return told

    assert_same(brokers, story)


def test_broker_configs_are_added_and_deleted(brokers: Brokers, run: Run, topic: str) -> None:
    """One broker's setting, then the cluster's default, and what a topic inherits of them."""

    def story(broker: Broker) -> list[object]:
        create(run, broker, topic)
        told: list[object] = []

        def tell(*arguments: str) -> None:
            outcome = run(broker, "kafka-configs", *arguments)
            told.append((arguments, outcome.code, outcome.out, outcome.err))

        def inherited() -> None:
            shown = run(broker, "kafka-configs", "--describe", "--topic", topic, "--all")
            told.append([line for line in shown.lines if "retention.ms=" in line])

        for entity in (["--broker-defaults"], ["--broker", "1"]):
            tell("--alter", *entity, "--add-config", "log.retention.ms=70000")
            tell("--describe", *entity)
            inherited()
        for entity in (["--broker", "1"], ["--broker-defaults"]):
            tell("--alter", *entity, "--delete-config", "log.retention.ms")
            tell("--describe", *entity)
            inherited()
        tell("--alter", "--broker", "1", "--add-config", "node.id=7")
        tell("--alter", "--broker-defaults", "--add-config", "log.retention.ms=soon")
        return told

    assert_same(brokers, story)


def test_broker_configs_agree_wherever_both_have_the_key(brokers: Brokers, run: Run) -> None:
    own = {"listeners", "advertised.listeners", "log.dirs", "log.dir"}

    def story(broker: Broker) -> dict[str, str]:
        lines = run(broker, "kafka-configs", "--describe", "--broker", "1", "--all").lines[1:]
        entries = (line.strip().partition("=") for line in lines)
        return {key: rest for key, _, rest in entries}

    oracle, tested = map(story, brokers)
    common = oracle.keys() & tested.keys() - own
    # both have these in their settings file; Kafka has more
    common -= {"controller.listener.names", "controller.quorum.bootstrap.servers"}
    common -= {"offsets.topic.replication.factor", "transaction.state.log.replication.factor"}
    common -= {"transaction.state.log.min.isr", "controller.quorum.voters"}
    assert {key: tested[key] for key in common} == {key: oracle[key] for key in common}
    strangers = {key for key in tested.keys() - oracle.keys() if not key.startswith("headrace.")}
    assert not strangers, "keys that Kafka does not have begin with headrace."


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_and_consumer(brokers: Brokers, run: Run, topic: str, codec: str) -> None:
    def story(broker: Broker) -> list[str]:
        create(run, broker, topic, 2)
        reader = [f"--reader-property={option}" for option in ("parse.key=true", "parse.headers=true")]
        sent = run(
            broker,
            "kafka-console-producer",
            *("--topic", topic, "--compression-codec", codec, *reader),
            stdin=produced(topic, 100),
        )
        assert sent.code == 0, sent
        told = []
        for partition in "01":
            where = ["--topic", topic, "--partition", partition, "--offset", "earliest"]
            ends = run(broker, "kafka-get-offsets", "--topic-partitions", f"{topic}:{partition}").out
            count = ends.strip().rpartition(":")[2]
            got = run(broker, "kafka-console-consumer", *where, "--max-messages", count, *SHOW)
            assert got.code == 0, got
            told += [re.sub(r"CreateTime:\d+", "CreateTime", line) for line in got.lines]
        return told

    assert len(assert_same(brokers, story)) == 100


def test_console_consumer_begins_where_it_is_told(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> list[str]:
        create(run, broker, topic)
        values = "".join(f"{number}\n" for number in range(50))
        run(broker, "kafka-console-producer", "--topic", topic, stdin=values)
        told = []
        for offset, count in (("17", "5"), ("earliest", "3"), ("49", "1")):
            where = ["--topic", topic, "--partition", "0", "--offset", offset]
            told += run(broker, "kafka-console-consumer", *where, "--max-messages", count).lines
        return told

    told = assert_same(brokers, story)
    assert told == ["17", "18", "19", "20", "21", "0", "1", "2", "49"]


def test_offsets_for_every_special_time(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        create(run, broker, topic, 3)
        lines = "".join(f"k{number}\t{number}\n" for number in range(100))
        run(
            *(broker, "kafka-console-producer", "--topic", topic, "--reader-property=parse.key=true"),
            # one batch per record, so that the newest timestamp is one record's own
            *("--command-property", "batch.size=0"),
            stdin=lines,
        )
        told: list[object] = []
        for when in (
            *("-1", "-2", "-4", "-5", "-6", "0", "1700000000000", "99999999999999"),
            *("earliest", "latest", "earliest-local", "latest-tiered", "earliest-pending-upload"),
        ):
            outcome = run(broker, "kafka-get-offsets", "--topic", topic, "--time", when)
            told.append((when, outcome.code, outcome.out, outcome.err))
        newest = run(broker, "kafka-get-offsets", "--topic", topic, "--time", "max-timestamp")
        told.append((newest.code, [line.rpartition(":")[0] for line in newest.lines]))
        unknown = run(broker, "kafka-get-offsets", "--topic", topic + "-nowhere")
        told.append((unknown.code, unknown.out, unknown.err))
        return told

    assert_same(brokers, story)


def test_records_are_deleted(brokers: Brokers, run: Run, topic: str, tmp_path: Path) -> None:
    def story(broker: Broker) -> list[object]:
        create(run, broker, topic)
        run(broker, "kafka-console-producer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(20)))
        told: list[object] = []
        for offset in (5, 21, 3, -1):
            wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": offset}], "version": 1}
            file = tmp_path / "offsets.json"
            file.write_text(json.dumps(wanted))
            deleted = run(broker, "kafka-delete-records", "--offset-json-file", str(file))
            begin = run(broker, "kafka-get-offsets", "--topic", topic, "--time", "earliest")
            told.append((offset, deleted.code, deleted.out, begin.out))
        return told

    assert_same(brokers, story)


def test_log_directories_are_described(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> object:
        create(run, broker, topic, 2)
        run(broker, "kafka-console-producer", "--topic", topic, "--sync", stdin="one\ntwo\n")
        outcome = run(broker, "kafka-log-dirs", "--describe", "--topic-list", topic)
        answer = json.loads(outcome.lines[-1])
        for directory in answer["brokers"][0]["logDirs"]:
            directory["partitions"].sort(key=lambda partition: partition["partition"])
            for partition in directory["partitions"]:
                # the sticky partitioner chooses at random: which partition got the bytes differs
                partition["size"] = partition["size"] > 0
            directory["filled"] = sorted(p.pop("size") for p in directory["partitions"])
        return outcome.lines[:-1], answer

    assert_same(brokers, story)


def test_api_versions_are_kafkas(brokers: Brokers, run: Run) -> None:
    """What is advertised has Kafka's ranges to the number, and only what comes later is missing."""

    def story(broker: Broker) -> dict[str, str]:
        outcome = run(broker, "kafka-broker-api-versions")
        found = re.findall(r"^\t(\w+)\(\d+\): ([^\[,]+?)(?: \[|,|$)", outcome.out, re.MULTILINE)
        return {
            name: versions for name, versions in found if versions != "UNSUPPORTED" and not LATER.search(name)
        }

    assert len(assert_same(brokers, story)) > 40


def test_features_are_described(brokers: Brokers, run: Run) -> None:
    def story(broker: Broker) -> dict[str, str]:
        lines = run(broker, "kafka-features", "describe").lines
        found = re.findall(r"^Feature: (\S+)\s+(.*?)\s+Epoch: \d+", "\n".join(lines), re.MULTILINE)
        assert len(found) == len(lines), lines
        return dict(found)

    oracle, tested = map(story, brokers)
    assert {"metadata.version", "group.version", "transaction.version"} <= tested.keys()
    # the oracle is formatted without this one: see harness/kafka.py
    tested["eligible.leader.replicas.version"] = oracle["eligible.leader.replicas.version"]
    assert {name: oracle.get(name) for name in tested} == tested


def test_the_quorum_is_described(brokers: Brokers, run: Run) -> None:
    def story(broker: Broker) -> list[object]:
        status = run(broker, "kafka-metadata-quorum", "describe", "--status")
        ids = re.sub(r"\b[\w-]{22}\b", "ID", status.out)
        ends = re.sub(r"[A-Z]+://[\w.:]+", "ENDPOINT", ids)
        replicas = run(broker, "kafka-metadata-quorum", "describe", "--replication")
        rows = [line.split() for line in replicas.lines]
        kept = ("NodeId", "Lag", "Status")
        return [
            (status.code, re.sub(r"(HighWatermark:\s+)\d+", r"\1N", ends)),
            (replicas.code, rows[0]),
            [[cell for name, cell in zip(rows[0], row) if name in kept] for row in rows[1:]],
        ]

    assert_same(brokers, story)


def test_leaders_are_elected_and_reassignments_listed(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        create(run, broker, topic, 2)
        told: list[object] = []

        def tell(tool: str, *arguments: str) -> None:
            outcome = run(broker, tool, *arguments)
            told.append((tool, arguments, outcome.code, outcome.out, outcome.err))

        for kind in ("preferred", "unclean"):
            where = ["--election-type", kind, "--topic"]
            tell("kafka-leader-election", *where, topic, "--partition", "0")
            tell("kafka-leader-election", *where, topic, "--partition", "7")
            tell("kafka-leader-election", *where, f"{topic}-nowhere", "--partition", "0")
        tell("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
        tell("kafka-reassign-partitions", "--list")
        return told

    assert_same(brokers, story)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_producer_perf_tool(brokers: Brokers, run: Run, topic: str, acks: str) -> None:
    def story(broker: Broker) -> object:
        create(run, broker, topic, 2)
        outcome = run(
            *(broker, "kafka-producer-perf-test", "--topic", topic, "--num-records", "20000"),
            *("--record-size", "200", "--throughput", "-1", "--command-property", f"acks={acks}"),
        )
        assert outcome.code == 0, outcome
        ends = run(broker, "kafka-get-offsets", "--topic", topic).lines
        total = sum(int(line.rpartition(":")[2]) for line in ends)
        return outcome.lines[-1].split(",")[0], total if acks != "0" else None

    assert_same(brokers, story)


def test_the_cluster_tells_its_id_and_endpoints(brokers: Brokers, tools: JavaTools) -> None:
    def story(broker: Broker) -> object:
        told = tools("kafka-cluster", "cluster-id", "--bootstrap-server", broker.bootstrap)
        ends = tools("kafka-cluster", "list-endpoints", "--bootstrap-server", broker.bootstrap)
        shape = re.sub(r"\d{4,5}\b", "PORT", ends.out)
        return told.code, re.sub(r"[\w-]{22}", "ID", told.out), ends.code, shape.split()

    assert_same(brokers, story)
