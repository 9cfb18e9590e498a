"""`headrace cluster describe` beside Kafka's tools, on three nodes of which one dies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from cli.shell import Shell
from harness.cluster import Cluster
from harness.wait import WAIT_S, eventually
from interop.java_tools import JavaTools

KILLED = 2
TOPICS = {"orders": (6, 3), "pairs": (4, 2), "single": (3, 1)}  # partitions and replicas


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kind = request.config.getoption("--broker")
    with Cluster(kind, tmp_path_factory.mktemp("cluster")) as running:
        new = [NewTopic(name, partitions, replicas) for name, (partitions, replicas) in TOPICS.items()]
        admin = running.admin()
        for future in admin.create_topics(new).values():
            future.result(WAIT_S)
        running.wait(lambda: all(map(running.in_sync, TOPICS)), "replicas in sync")
        yield running


@pytest.fixture
def headrace(cluster: Cluster) -> Iterator[Shell]:
    shell = Shell(cluster.bootstrap)
    yield shell
    shell.end()


def partitions_by_kafka(cluster: Cluster, tools: JavaTools, filter: str) -> set[tuple[str, int]]:
    told = tools("kafka-topics", "--bootstrap-server", cluster.bootstrap, "--describe", filter)
    assert told.code == 0, told
    return {(name, int(number)) for name, number in re.findall(r"Topic: (\S+)\s+Partition: (\d+)", told.out)}


def partitions_by_us(headrace: Shell, filter: str) -> set[tuple[str, int]]:
    return {
        (one["topic"], one["partition"]) for one in headrace("cluster", "describe", filter, "--json").json
    }


def quorum_by_kafka(cluster: Cluster, tools: JavaTools, dead: int = 0) -> dict[str, Any]:
    """With the end offset of the dead node only: those of the others move between two questions."""

    def ask(what: str) -> list[str]:
        told = tools("kafka-metadata-quorum", "--bootstrap-server", cluster.bootstrap, "describe", what)
        assert told.code == 0, told
        return told.lines

    status = dict(line.split(":", 1) for line in ask("--status") if ":" in line)
    heading, *rows = (line.split() for line in ask("--replication"))
    replicas = [dict(zip(heading, row)) for row in rows]
    return {
        "leader": int(status["LeaderId"]),
        "epoch": int(status["LeaderEpoch"]),
        "voters": {
            int(one["NodeId"]): (
                one["DirectoryId"],
                int(one["LogEndOffset"]) if int(one["NodeId"]) == dead else None,
            )
            for one in replicas
            if one["Status"] != "Observer"
        },
        "observers": [int(one["NodeId"]) for one in replicas if one["Status"] == "Observer"],
    }


def quorum_by_us(headrace: Shell, dead: int = 0) -> dict[str, Any]:
    told = headrace("cluster", "describe", "--json").json["quorum"]
    return {
        "leader": told["leader"],
        "epoch": told["epoch"],
        "voters": {
            one["id"]: (one["directory_id"], one["log_end_offset"] if one["id"] == dead else None)
            for one in told["voters"]
        },
        "observers": [one["id"] for one in told["observers"]],
    }


def test_all_three_are_there(cluster: Cluster, tools: JavaTools, headrace: Shell) -> None:
    assert partitions_by_kafka(cluster, tools, "--under-replicated-partitions") == set()
    assert partitions_by_us(headrace, "--under-replicated") == set()
    described = headrace("cluster", "describe", "--json").json
    assert (described["state"], len(described["brokers"])) == ("healthy", 3)
    assert described["quorum"]["leader"] == quorum_by_kafka(cluster, tools)["leader"]


def test_one_of_three_is_killed(cluster: Cluster, tools: JavaTools, headrace: Shell) -> None:
    cluster.kill(KILLED)

    def fenced() -> list[int]:
        return [
            one["id"] for one in headrace("cluster", "describe", "--json").json["brokers"] if one["fenced"]
        ]

    eventually(fenced, [KILLED])
    for ours, kafkas in (
        ("--under-replicated", "--under-replicated-partitions"),
        ("--at-min-isr", "--at-min-isr-partitions"),
        ("--offline", "--unavailable-partitions"),
    ):
        found = partitions_by_us(headrace, ours)
        # its minimum of two is more than it has replicas: Kafka's tool does not care, Kafka's brokers do
        known = {at for at in found if at[0] != "single"} if ours == "--at-min-isr" else found
        assert known == partitions_by_kafka(cluster, tools, kafkas), ours
        assert found, ours
    assert quorum_by_us(headrace, KILLED) == quorum_by_kafka(cluster, tools, KILLED)
    described = headrace("cluster", "describe", "--json").json
    assert described["state"] == "failing"  # some partitions of `single` were only there
    assert all(
        KILLED not in one["isr"] for one in described["worrying_partitions"] if one["topic"] == "orders"
    )
    first = headrace("cluster", "describe").lines[0]
    assert f"broker {KILLED} is fenced" in first
    assert "under-replicated" in first


def test_it_comes_back(cluster: Cluster, tools: JavaTools, headrace: Shell) -> None:
    cluster.start()
    eventually(lambda: headrace("cluster", "describe", "--json").json["state"], "healthy")
    assert partitions_by_kafka(cluster, tools, "--under-replicated-partitions") == set()
    assert quorum_by_us(headrace) == quorum_by_kafka(cluster, tools)
