"""Settings: from a file's texts to what the node goes by."""

from __future__ import annotations

import pytest

from headrace.machines.configs.values import InvalidConfig
from headrace.node.settings import Listener, Settings

LEAST = {"node.id": "3"}


def test_kafkas_defaults() -> None:
    settings = Settings.parse(LEAST)
    assert settings.node_id == 3
    assert settings.process_roles == ("broker", "controller")
    assert settings.listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert settings.advertised_listeners == settings.listeners
    assert (settings.num_partitions, settings.default_replication_factor) == (1, 1)
    assert settings.auto_create_topics_enable
    assert settings.socket_request_max_bytes == 104_857_600
    assert settings.queued_max_request_bytes > 0
    assert settings.unknown == {}


def test_a_kafka_file_of_a_combined_node() -> None:
    settings = Settings.parse(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9093",
            "advertised.listeners": "PLAINTEXT://kafka.example.org:19092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "log.dirs": "/a, /b",
            "metadata.log.dir": "/m",
            "log.flush.interval.ms": "1000",
            "max.connections.per.ip.overrides": "10.0.0.1:5,::1:7",
        }
    )
    assert [listener.name for listener in settings.client_listeners] == ["PLAINTEXT"]
    assert settings.listeners[1] == Listener("CONTROLLER", "::1", 9093, "PLAINTEXT")
    assert settings.advertised("PLAINTEXT").host == "kafka.example.org"
    assert settings.inter_broker_listener_name == "PLAINTEXT"
    assert (settings.log_dirs, settings.metadata_log_dir) == (("/a", "/b"), "/m")
    assert settings.log_flush_interval_ms == 1000
    assert settings.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 7}
    assert settings.unknown == {}


def test_unknown_keys_are_kept_with_what_was_perhaps_meant() -> None:
    settings = Settings.parse(LEAST | {"num.partitons": "3", "listener.name.x.ssl.keystore.type": "PEM"})
    assert settings.unknown == {"num.partitons": "num.partitions"}


def test_free_ports_and_names_are_filled_in_once_bound() -> None:
    settings = Settings.parse(LEAST | {"listeners": "PLAINTEXT://:0"})
    bound = settings.bound({"PLAINTEXT": 5555}, "here.example.org")
    assert bound.listeners == (Listener("PLAINTEXT", "", 5555, "PLAINTEXT"),)
    assert bound.advertised_listeners == (Listener("PLAINTEXT", "here.example.org", 5555, "PLAINTEXT"),)


def test_dynamic_settings_lie_over_the_files_and_listeners_stay() -> None:
    settings = Settings.parse(LEAST | {"listeners": "PLAINTEXT://:0", "max.connections": "10"})
    bound = settings.bound({"PLAINTEXT": 5555}, "here")
    over = bound.overlaid({}, {"max.connections": "77"})
    assert over.max_connections == 77
    assert over.advertised_listeners == bound.advertised_listeners
    assert bound.overlaid({"max.connections": "5"}, {"max.connections": "77"}).max_connections == 5
    assert bound.overlaid({}, {}).max_connections == 10


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({}, "node.id"),
        (LEAST | {"num.partitions": "0"}, "num.partitions"),
        (LEAST | {"num.io.threads": "many"}, "num.io.threads"),
        (LEAST | {"listeners": "9092"}, "expected NAME://host:port"),
        (LEAST | {"listeners": "PLAINTEXT://:99999"}, "expected NAME://host:port"),
        (LEAST | {"listeners": "FOO://:9092"}, "listener.security.protocol.map"),
        (LEAST | {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "twice"),
        (LEAST | {"listener.security.protocol.map": "A:NOPE"}, "NAME:PROTOCOL"),
        (LEAST | {"advertised.listeners": "SSL://x:1"}, "not one of the client listeners"),
        (LEAST | {"max.connections.per.ip.overrides": "x"}, "address:count"),
        (
            LEAST | {"listeners": "CONTROLLER://:1", "controller.listener.names": "CONTROLLER"},
            "at least one listener",
        ),
    ],
)
def test_refused(texts: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        Settings.parse(texts)
    assert says in str(raised.value)


def test_the_old_name_of_the_node_id() -> None:
    assert Settings.parse({"broker.id": "4"}).node_id == 4
