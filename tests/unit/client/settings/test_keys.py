"""The declared keys: each once, with a text, for the clients that take it; typed values follow them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import headrace.client
from headrace.client.settings import keys
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.consumer import ConsumerSettings, GroupSettings, consumer_settings
from headrace.client.settings.network import AdminSettings, NetworkSettings, admin_settings, network_settings
from headrace.client.settings.producer import SendingSettings, sending_settings
from headrace.machines.configs.definition import KEPT_DOC

SERVERS = {"bootstrap.servers": "localhost:9092"}
SOURCE = Path(headrace.client.__file__).parent


def test_a_key_is_declared_once() -> None:
    lines = (keys.TABLE + keys.KEPT).splitlines()
    declared = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert sorted(declared) == list(keys.all_keys())


def test_every_key_has_a_text_and_clients_that_take_it() -> None:
    for key in keys.all_keys().values():
        assert key.doc.endswith("."), key.name
        assert key.update in ("all", "producer", "consumer"), key.name


def test_clients_take_what_is_for_all_and_their_own() -> None:
    assert "linger.ms" in keys.producer_keys()
    assert "linger.ms" not in keys.consumer_keys()
    assert "group.id" in keys.consumer_keys()
    assert "group.id" not in keys.admin_keys()
    common = keys.admin_keys().keys()
    assert common < keys.producer_keys().keys()
    assert common < keys.consumer_keys().keys()


def test_names_of_other_clients_mean_keys_that_exist() -> None:
    assert set(keys.OTHER_NAMES.values()) <= keys.all_keys().keys()
    assert not keys.OTHER_NAMES.keys() & keys.all_keys().keys()


def test_a_key_that_nobody_reads_is_said_to_have_no_effect() -> None:
    """A setting that is accepted, documented and never read is worse than an unknown one."""
    sources = [path.read_text() for path in SOURCE.rglob("*.py") if path.name != "keys.py"]
    read = {name for text in sources for name in re.findall(r'"([a-z0-9_.]+)"', text)}
    # read by names that are put together
    composed = re.compile(r"ssl\.(key|trust)store\..*|compression\..*\.level")
    silent = {name for name in keys.all_keys() if name not in read and not composed.fullmatch(name)}
    assert silent == {name for name, key in keys.all_keys().items() if key.doc == KEPT_DOC}


@pytest.mark.parametrize(
    ("default", "read"),
    [
        (AdminSettings(), admin_settings(Configuration(keys.admin_keys(), SERVERS))),
        (ConsumerSettings(), consumer_settings(Configuration(keys.consumer_keys(), SERVERS))),
        (SendingSettings(), sending_settings(Configuration(keys.producer_keys(), SERVERS))),
        (
            GroupSettings("g", auto_commit_interval_s=5.0),
            consumer_settings(Configuration(keys.consumer_keys(), SERVERS | {"group.id": "g"})).group,
        ),
    ],
)
def test_defaults_are_those_of_a_configuration_that_says_nothing(default: Any, read: Any) -> None:
    assert default == read


def test_connections_by_default() -> None:
    read = network_settings(Configuration(keys.admin_keys(), SERVERS))
    assert read == NetworkSettings(bootstrap=read.bootstrap)


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        (AdminSettings, keys.admin_keys()),
        (ConsumerSettings, keys.consumer_keys()),
        (GroupSettings, keys.consumer_keys()),
        (NetworkSettings, keys.admin_keys()),
        (SendingSettings, keys.producer_keys()),
    ],
)
def test_fields_name_keys_of_their_client(kind: Any, known: dict[str, Any]) -> None:
    named = {field.metadata["key"] for field in dataclasses.fields(kind) if field.metadata}
    assert named
    assert named <= known.keys()
