"""Numbers of thousands of digits are refused like any other wrong number, wherever a client may send one."""

import pytest

from headrace.base.numbers import INT32_MAX, whole_number
from headrace.node.controller import Controller
from headrace.node.effects import Report
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_configs import AlterConfigsRequest
from headrace.protocol.messages.alter_configs import AlterConfigsResource as Resource
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.simulator.manual_host import ManualHost

BROKER, TOPIC = 4, 2
LONG = "9" * 5_000


def test_a_broker_s_name_in_describe_configs() -> None:
    asked = DescribeConfigsResource(resource_type=BROKER, resource_name=LONG)
    (told,) = ManualHost().ask(DescribeConfigsRequest(resources=[asked]), 4).results
    assert told.error_code == ErrorCode.INVALID_REQUEST


def test_a_broker_s_name_in_alter_configs() -> None:
    changed = Resource(resource_type=BROKER, resource_name=LONG, configs=[])
    (told,) = ManualHost().ask(AlterConfigsRequest(resources=[changed]), 2).responses
    assert told.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (BROKER, LONG, "log.retention.ms", "1"),
        (BROKER, "", "max.connections.per.ip.overrides", f"127.0.0.1:{LONG}"),
        (BROKER, "", "log.retention.ms", LONG),
        (BROKER, "1", "listeners", f"PLAINTEXT://localhost:{LONG}"),
        (TOPIC, "t", "retention.ms", LONG),
        (TOPIC, "t", "min.cleanable.dirty.ratio", LONG),
        (TOPIC, "t", "leader.replication.throttled.replicas", f"0:{LONG}"),
    ],
)
def test_incremental_alter_configs(kind: int, name: str, key: str, value: str) -> None:
    host = ManualHost()
    host.create_topic("t")
    config = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    (told,) = host.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert told.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG, ErrorCode.NONE)
    host.create_topic("u")  # and what was taken does no harm later


@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max.connections.per.ip.overrides", "no address"),
        ("listeners", "no endpoint"),
        ("listeners", "OTHER://localhost:9092"),
    ],
)
def test_settings_that_the_node_could_not_take_are_refused(name: str, key: str, value: str) -> None:
    """They were written, failed when they were taken over, and kept the node from starting again."""
    host = ManualHost()
    config = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[config])
    (told,) = host.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert told.error_code == ErrorCode.INVALID_REQUEST
    ManualHost(disks=host.disks, boot_id="boot-2").create_topic("u")


def test_settings_that_an_older_version_wrote_do_not_keep_a_node_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Controller, "_check_settings", lambda *_: None)
    host = ManualHost()
    config = AlterableConfig(name="max.connections.per.ip.overrides", config_operation=0, value="no address")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
    host.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    again = ManualHost(disks=host.disks, boot_id="boot-2")
    again.create_topic("u")
    assert "dynamic_settings_ignored" in [one.event for one in again.effects if isinstance(one, Report)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("17", 17),
        ("007", 7),
        ("2147483647", INT32_MAX),
        ("2147483648", None),
        ("0" * 9_000 + "1", 1),
        (LONG, None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1_0", None),
        ("²", None),
        ("\u0661", None),
        (" 1", None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text, INT32_MAX) == number
