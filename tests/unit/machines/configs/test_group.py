"""Settings of groups: what may be set between the broker's bounds, and how it is told; as in Kafka 4.3.1."""

from __future__ import annotations

import pytest

from headrace.machines.configs.definition import KEPT_DOC, broker_config_keys, group_config_keys
from headrace.machines.configs.describe import BrokerLayers, Source, Synonym, describe_group
from headrace.machines.configs.group import check_group_overrides
from headrace.machines.configs.values import InvalidConfig

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_all_of_kafkas_keys_are_there_and_consumers_have_a_text() -> None:
    keys = group_config_keys()
    assert len(keys) == 17
    assert {key.name for key in keys.values() if key.doc != KEPT_DOC} == {
        "consumer.assignment.interval.ms",
        HEARTBEAT,
        SESSION,
    }


def test_defaults_are_those_of_the_brokers_keys() -> None:
    brokers = broker_config_keys()
    for key in group_config_keys().values():
        for name in key.synonyms:
            assert (brokers[name].type, brokers[name].default) == (key.type, key.default), key.name


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({SESSION: "0"}, "Value must be at least 1"),
        (
            {SESSION: "44999"},
            f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {SESSION: "60001"},
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        ({HEARTBEAT: "4999"}, "must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "15001"}, "must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ({SESSION: "abc"}, "Not a number of type INT"),
        ({"nope": "1"}, "Unknown group config name: nope"),
        ({"streams.num.standby.replicas": "9"}, "less than or equal to group.streams.max.standby.replicas"),
        ({"share.auto.offset.reset": "sometime"}, "Value must be earliest, latest, or by_duration"),
        ({"share.auto.offset.reset": "by_duration:P"}, "Value must be earliest, latest, or by_duration"),
        ({"share.auto.offset.reset": "by_duration:PT"}, "Value must be earliest, latest, or by_duration"),
        ({"share.isolation.level": "none"}, "String must be one of"),
        ({"share.delivery.count.limit": "11"}, "less than or equal to group.share.max.delivery.count.limit"),
    ],
)
def test_refused(overrides: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        check_group_overrides(overrides, ())


@pytest.mark.parametrize(
    "overrides",
    [
        {SESSION: "45000", HEARTBEAT: "15000"},
        {"consumer.assignment.interval.ms": "0"},
        {"streams.num.standby.replicas": "2"},
        {"share.auto.offset.reset": "by_duration:P1DT2H3M4.5S"},
        {"share.auto.offset.reset": "by_duration:PT1H"},
        {"share.isolation.level": "read_committed"},
    ],
)
def test_taken(overrides: dict[str, str]) -> None:
    check_group_overrides(overrides, ())
    described = describe_group(overrides, BrokerLayers({}, {}, {}), list(overrides))
    assert {config.name: config.value for config in described} == overrides


def test_the_bounds_are_the_brokers() -> None:
    wider = {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1"}
    check_group_overrides({SESSION: "6000"}, (wider,))
    with pytest.raises(InvalidConfig, match=f"{SESSION} must be greater than {HEARTBEAT}"):
        check_group_overrides({SESSION: "5000"}, (wider,))
    with pytest.raises(InvalidConfig, match=f"{SESSION} must be greater than {HEARTBEAT}"):
        check_group_overrides({SESSION: "3000", HEARTBEAT: "3000"}, (wider,))


def test_what_is_told_with_every_layer() -> None:
    layers = BrokerLayers({}, {}, {"group.consumer.session.timeout.ms": "46000"})
    (config,) = describe_group({SESSION: "50000"}, layers, [SESSION, "nope"])
    assert (config.name, config.value, config.source) == (SESSION, "50000", Source.GROUP)
    assert config.synonyms == [
        Synonym(SESSION, "50000", Source.GROUP),
        Synonym("group.consumer.session.timeout.ms", "46000", Source.STATIC_BROKER),
        Synonym("group.consumer.session.timeout.ms", "45000", Source.DEFAULT),
    ]
    (unset,) = describe_group({}, layers, [SESSION])
    assert (unset.value, unset.source) == ("46000", Source.STATIC_BROKER)
    (alone,) = describe_group({}, layers, ["share.isolation.level"])
    assert alone.synonyms == [Synonym("share.isolation.level", "read_uncommitted", Source.DEFAULT)]
