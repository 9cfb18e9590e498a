"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs through the node: told, changed, in force."""

from __future__ import annotations

from typing import Any

import pytest

from harness.authorizers import Nobody
from headrace.base.limits import CONFIG_CHARACTERS_MAX
from headrace.node.handlers import describe_configs
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import alter_configs as legacy
from headrace.protocol.messages import incremental_alter_configs as incremental
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.simulator.manual_host import ManualHost

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(host: ManualHost, kind: int, name: str, *keys: str, version: int = 4, **more: bool) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    (result,) = host.ask(DescribeConfigsRequest(resources=[resource], **more), version).results
    return result


def alter(host: ManualHost, kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any) -> Any:
    resource = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], **more)
    (response,) = host.ask(request, 1).responses
    return response


class TestDescribe:
    @pytest.mark.parametrize("version", range(1, 5))
    def test_every_version(self, version: int) -> None:
        host = ManualHost()
        host.create_topic("t", retention_ms="5")
        result = describe(
            host,
            TOPIC,
            "t",
            version=version,
            include_synonyms=True,
            **({"include_documentation": True} if version >= 3 else {}),
        )
        told = {config.name: config for config in result.configs}
        assert result.error_code == 0
        assert len(told) >= 33
        assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("5", 1)
        assert [(one.name, one.source) for one in told["segment.bytes"].synonyms] == [
            ("log.segment.bytes", 5)
        ]
        if version >= 3:
            assert told["retention.ms"].config_type == 5
            assert "deleted" in told["retention.ms"].documentation

    def test_a_broker_with_all_its_keys(self) -> None:
        host = ManualHost({"log.retention.hours": "5", "ssl.key.password": "hunter2"})
        told = {config.name: config for config in describe(host, BROKER, "1").configs}
        assert len(told) >= 340
        assert (told["log.retention.hours"].value, told["log.retention.hours"].config_source) == ("5", 4)
        assert told["node.id"].read_only
        assert (told["ssl.key.password"].value, told["ssl.key.password"].is_sensitive) == (None, True)

    def test_a_broker_with_what_was_set_for_one_listener(self) -> None:
        """Whoever asks for everything sees it, too, and the password of its key hidden."""
        host = ManualHost(
            {
                "listeners": "PLAINTEXT://127.0.0.1:9092,TLS://127.0.0.1:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
                "ssl.keystore.location": "first.pem",
            }
        )
        location, password = (
            f"listener.name.tls.{key}" for key in ("ssl.keystore.location", "ssl.key.password")
        )
        changes = ((location, SET, "second.pem"), (password, SET, "hunter2"))
        assert alter(host, BROKER, "1", *changes).error_code == 0
        for keys in ((), (location, password)):
            told = {config.name: config for config in describe(host, BROKER, "1", *keys).configs}
            assert told[location].value == "second.pem"
            assert (told[password].value, told[password].is_sensitive) == (None, True)
        assert location not in {one.name for one in describe(host, BROKER, "1", "log.dirs").configs}

    @pytest.mark.parametrize(
        ("kind", "name", "code"),
        [
            (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "9", ErrorCode.INVALID_REQUEST),
            (BROKER, "x", ErrorCode.INVALID_REQUEST),
            (LOGGER, "1", ErrorCode.NONE),
            (77, "x", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_resources_that_are_not_there(self, kind: int, name: str, code: ErrorCode) -> None:
        result = describe(ManualHost(), kind, name)
        assert (result.error_code, result.configs) == (code, [])

    def test_all_topics_at_once_each_with_its_own(self) -> None:
        host = ManualHost()
        for number in range(20):
            host.create_topic(f"t{number}", **({"retention_ms": str(number)} if number % 2 else {}))
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=f"t{number}", configuration_keys=None)
            for number in range(20)
        ]
        results = host.ask_patiently(DescribeConfigsRequest(resources=resources), 4).results
        for number, result in enumerate(results):
            told = {config.name: config.value for config in result.configs}
            assert len(told) >= 33
            assert told["retention.ms"] == (str(number) if number % 2 else "604800000")

    @pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "1"), (GROUP, "readers")])
    def test_a_request_for_the_same_without_end_is_answered_in_part(
        self, kind: int, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(describe_configs, "CONFIGS_PER_RESPONSE_MAX", 1_000)
        host = ManualHost()
        host.create_topic("t")
        alter(host, GROUP, "readers", ("consumer.session.timeout.ms", SET, "50000"))
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        results = host.ask_patiently(DescribeConfigsRequest(resources=[resource] * 200), 4).results
        told = sum(len(result.configs) for result in results)
        assert 0 < told <= 1_000
        assert results[0].error_code == 0
        assert results[-1].error_code == ErrorCode.POLICY_VIOLATION


class TestAlter:
    def test_a_change_is_told_in_force_and_there_after_a_restart(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        assert alter(host, TOPIC, "t", ("retention.ms", SET, "77")).error_code == 0
        for each in (host, ManualHost(disks=host.disks, seed=5)):
            (config,) = describe(each, TOPIC, "t", "retention.ms").configs
            assert config.value == "77"
            (partition,) = each.partitions("t")
            assert partition.config.retention_ms == 77
        alter(host, TOPIC, "t", ("retention.ms", DELETE, None))
        (partition,) = host.partitions("t")
        assert partition.config.retention_ms == 604_800_000

    def test_append_and_subtract(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        alter(host, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
        (partition,) = host.partitions("t")
        assert partition.config.cleanup_policy == {"delete", "compact"}
        alter(host, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
        assert partition.config.cleanup_policy == {"compact"}

    def test_a_brokers_change_reaches_topics_that_do_not_say_it_themselves(self) -> None:
        host = ManualHost()
        host.create_topic("own", retention_ms="5")
        host.create_topic("default")
        assert alter(host, BROKER, "", ("log.retention.ms", SET, "70000")).error_code == 0
        (own,) = host.partitions("own")
        (default,) = host.partitions("default")
        assert (own.config.retention_ms, default.config.retention_ms) == (5, 70_000)
        alter(host, BROKER, "1", ("log.retention.ms", SET, "60000"))
        assert default.config.retention_ms == 60_000
        (config,) = describe(host, TOPIC, "default", "retention.ms", include_synonyms=True).configs
        assert [(one.value, one.source) for one in config.synonyms] == [
            ("60000", 2),
            ("70000", 3),
            ("168", 5),
        ]
        (config,) = describe(host, BROKER, "").configs
        assert (config.name, config.value, config.config_source) == ("log.retention.ms", "70000", 3)

    def test_a_dynamic_setting_of_the_node_itself(self) -> None:
        host = ManualHost()
        alter(host, BROKER, "", ("max.connections", SET, "77"))
        assert host.node.settings.max_connections == 77
        alter(host, BROKER, "", ("max.connections", DELETE, None))
        assert host.node.settings.max_connections == 2**31 - 1

    @pytest.mark.parametrize("key", ["max.connections", "max.connection.creation.rate"])
    def test_limits_of_one_listener(self, key: str) -> None:
        """For all brokers, for this one, and in its file, in Kafka's order; and there after a restart."""
        name = f"listener.name.plaintext.{key}"
        host = ManualHost({name: "40"})

        def limit(host: ManualHost) -> int:
            settings = host.node.settings
            limits = {
                "max.connections": settings.listener_max_connections,
                "max.connection.creation.rate": settings.listener_max_connection_creation_rates,
            }
            return limits[key]["PLAINTEXT"]

        assert limit(host) == 40
        for resource, value, source in (("", "30", 3), ("1", "20", 2)):
            assert alter(host, BROKER, resource, (name, SET, value)).error_code == 0
            (config,) = describe(host, BROKER, "1", name, include_synonyms=True).configs
            assert (config.value, config.config_source, config.read_only) == (value, source, False)
            assert limit(host) == int(value)
        host = ManualHost({name: "40"}, disks=host.disks, seed=5)
        assert limit(host) == 20
        assert [one.value for one in config.synonyms] == ["20", "30", "40"]
        (config,) = describe(host, BROKER, "", name).configs
        assert (config.value, config.config_source) == ("30", 3)
        for resource, below in (("1", 30), ("", 40)):
            assert alter(host, BROKER, resource, (name, DELETE, None)).error_code == 0
            assert limit(host) == below

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("listener.name.plaintext.max.connections", "-1"),
            ("listener.name.plaintext.max.connections", "many"),
            ("listener.name.PLAINTEXT.max.connections", "1"),  # nothing would read it
            ("listener.name..max.connections", "1"),
            ("listener.name.plaintext.num.partitions", "1"),
        ],
    )
    def test_other_settings_of_a_listener_are_refused(self, name: str, value: str) -> None:
        host = ManualHost()
        assert alter(host, BROKER, "1", (name, SET, value)).error_code != 0
        assert not host.node.settings.listener_max_connections

    def test_a_value_beyond_all_measure(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        value = "0:1," * CONFIG_CHARACTERS_MAX + "0:1"
        result = alter(host, TOPIC, "t", ("leader.replication.throttled.replicas", SET, value))
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert len(result.error_message) < 1_000

    def test_validate_only(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        assert alter(host, TOPIC, "t", ("retention.ms", SET, "77"), validate_only=True).error_code == 0
        assert alter(host, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True).error_code == 40
        assert host.node.controller.metadata.image.topic_config("t") == {}

    @pytest.mark.parametrize(
        ("kind", "name", "code"),
        [
            (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (TOPIC, "", ErrorCode.INVALID_REQUEST),
            (BROKER, "9", ErrorCode.INVALID_REQUEST),
            (77, "x", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_resources_that_are_not_there(self, kind: int, name: str, code: ErrorCode) -> None:
        key = "retention.ms" if kind == TOPIC else "log.retention.ms"
        result = alter(ManualHost(), kind, name, (key, SET, "1"))
        assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)

    @pytest.mark.parametrize("version", range(3))
    def test_the_old_form_replaces(self, version: int) -> None:
        host = ManualHost()
        host.create_topic("t", retention_ms="5")
        resource = legacy.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="t",
            configs=[legacy.AlterableConfig(name="segment.ms", value="7777")],
        )
        (response,) = host.ask(legacy.AlterConfigsRequest(resources=[resource]), version).responses
        assert response.error_code == 0
        assert host.node.controller.metadata.image.topic_config("t") == {"segment.ms": "7777"}


class TestGroups:
    SESSION = "consumer.session.timeout.ms"

    def test_a_change_is_told_and_there_after_a_restart(self) -> None:
        host = ManualHost()
        assert alter(host, GROUP, "readers", (self.SESSION, SET, "50000")).error_code == 0
        for each in (host, ManualHost(disks=host.disks, seed=5)):
            (config,) = describe(each, GROUP, "readers", self.SESSION, include_synonyms=True).configs
            assert (config.value, config.config_source, config.read_only) == ("50000", 8, False)
            assert [(one.name, one.source) for one in config.synonyms] == [
                (self.SESSION, 8),
                (f"group.{self.SESSION}", 5),
            ]
            assert each.node.controller.metadata.image.group_config("readers") == {self.SESSION: "50000"}
        alter(host, GROUP, "readers", (self.SESSION, DELETE, None))
        assert host.node.controller.metadata.image.group_config("readers") == {}

    def test_a_group_that_nobody_joined_has_all_the_settings(self) -> None:
        told = describe(ManualHost(), GROUP, "nobody")
        assert (told.error_code, len(told.configs)) == (0, 17)

    def test_the_brokers_bounds_are_kept(self) -> None:
        host = ManualHost({"group.consumer.max.session.timeout.ms": "46000"})
        refused = alter(host, GROUP, "readers", (self.SESSION, SET, "46001"))
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "group.consumer.max.session.timeout.ms" in refused.error_message
        assert alter(host, GROUP, "readers", (self.SESSION, SET, "46000")).error_code == 0

    def test_the_old_form_replaces_everything(self) -> None:
        host = ManualHost()
        alter(host, GROUP, "readers", (self.SESSION, SET, "50000"))
        config = legacy.AlterableConfig(name="consumer.heartbeat.interval.ms", value="6000")
        resource = legacy.AlterConfigsResource(resource_type=GROUP, resource_name="readers", configs=[config])
        (response,) = host.ask(legacy.AlterConfigsRequest(resources=[resource]), 2).responses
        assert response.error_code == 0
        assert host.node.controller.metadata.image.group_config("readers") == {
            "consumer.heartbeat.interval.ms": "6000"
        }

    def test_a_group_without_a_name(self) -> None:
        host = ManualHost()
        assert describe(host, GROUP, "").error_code == ErrorCode.INVALID_REQUEST
        assert alter(host, GROUP, "", (self.SESSION, SET, "50000")).error_code == ErrorCode.INVALID_REQUEST

    def test_not_everybody_may(self) -> None:
        host = ManualHost()
        host.node.access.authorizer = Nobody()
        assert describe(host, GROUP, "readers").error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        refused = alter(host, GROUP, "readers", (self.SESSION, SET, "50000"))
        assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert host.node.controller.metadata.image.group_config("readers") == {}
