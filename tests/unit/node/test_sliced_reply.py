"""Long answers are put together in slices: others are served meanwhile, and the answer is the same."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.handlers import describe_configs, describe_log_dirs, metadata
from headrace.protocol.api import APIS
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.simulator.manual_host import ManualHost

TOPICS = 30
NAMES = [f"t{number}" for number in range(TOPICS)]

REQUESTS: dict[str, Any] = {
    "Metadata of all": MetadataRequest(topics=None),
    "Metadata of some, twice": MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in (*NAMES, "nope", "bad name", *NAMES)]
    ),
    "DescribeConfigs": DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=["retention.ms"])
            for name in (*NAMES * 9, "nope")  # more than one byte counts
        ],
        include_synonyms=True,
    ),
    "DescribeLogDirs": DescribeLogDirsRequest(topics=None),
}


def host_with_topics() -> ManualHost:
    host = ManualHost({"auto.create.topics.enable": "false"})
    for name in NAMES:
        host.create_topic(name, 2)
    return host


def slice_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "TOPICS_AT_ONCE", 4)
    monkeypatch.setattr(metadata, "TOPICS_PER_UNIT", 2)
    monkeypatch.setattr(describe_configs, "RESOURCES_AT_ONCE", 3)
    monkeypatch.setattr(describe_log_dirs, "PARTITIONS_AT_ONCE", 5)


def slice_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (metadata, "TOPICS_AT_ONCE"),
        (describe_configs, "RESOURCES_AT_ONCE"),
        (describe_log_dirs, "PARTITIONS_AT_ONCE"),
    ):
        monkeypatch.setattr(module, name, 10**6)


def every_version() -> list[tuple[str, int]]:
    found = []
    for name, request in REQUESTS.items():
        api = APIS[type(request).KEY]
        found += [(name, version) for version in range(max(1, api.first), api.last + 1)]
    return found


@pytest.mark.parametrize(("name", "version"), every_version())
def test_the_same_bytes_as_at_once(name: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_with_topics()
    answers = []
    for patch in (slice_nothing, slice_everything):
        patch(monkeypatch)
        connection = host.connect()
        host.send(connection, REQUESTS[name], version)
        was_at_once = bool(host.answers[connection.id])
        assert was_at_once == (patch is slice_nothing)
        host.advance(1.0)
        (answer,) = host.answers[connection.id]
        answers.append(answer[8:])  # without size and correlation id
    assert answers[0] == answers[1]


def test_others_are_served_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    slice_everything(monkeypatch)
    host = host_with_topics()
    waiting, other = host.connect(), host.connect()
    host.send(waiting, REQUESTS["Metadata of all"], 9)
    host.send(waiting, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    host.advance(0.002)
    assert host.receive(waiting) is None
    assert host.ask(MetadataRequest(topics=[]), 9, other).brokers
    host.advance(1.0)
    assert len(host.receive(waiting).topics) == TOPICS
    assert host.receive(waiting).api_keys


@pytest.mark.parametrize("name", REQUESTS)
def test_a_client_that_hangs_up_is_not_worked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slice_everything(monkeypatch)
    host = host_with_topics()
    connection = host.connect()
    host.send(connection, REQUESTS[name], 4)
    host.node.disconnected(host.clock.now(), connection)
    host.advance(1.0)
    assert not host.answers[connection.id]
    assert host.node.metrics.parked == 0


@pytest.mark.parametrize("name", REQUESTS)
def test_topics_that_go_meanwhile_stay_gone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slice_everything(monkeypatch)
    host = host_with_topics()
    connection = host.connect()
    host.send(connection, REQUESTS[name], 4)
    host.advance(0.001)
    host.ask(DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1000), 5)
    host.advance(100.0)
    assert host.receive(connection) is not None
    assert not [path for path in host.disks["data"].list("") if path.startswith("t")]
