"""DescribeConfigs' facts, as Apache Kafka 4.3.1 told them for the same settings."""

from headrace.machines.configs.definition import broker_config_keys
from headrace.machines.configs.describe import (
    BrokerLayers,
    Described,
    Source,
    Synonym,
    describe_broker,
    describe_topic,
)

NOTHING = BrokerLayers({}, {}, {})


def one(described: list[Described], name: str) -> Described:
    (found,) = [config for config in described if config.name == name]
    return found


def test_all_of_kafkas_topic_keys_and_our_own_are_told() -> None:
    names = [config.name for config in describe_topic({}, NOTHING)]
    assert len([name for name in names if not name.startswith("headrace.")]) == 33
    assert names.count("headrace.sealed.compression.type") == 1
    assert "internal.segment.bytes" not in names


def test_all_of_kafkas_broker_keys_are_told() -> None:
    names = [config.name for config in describe_broker(NOTHING)]
    assert len([name for name in names if not name.startswith("headrace.")]) == 340
    assert names == sorted(names)


def test_a_brokers_default_and_a_key_without_one() -> None:
    (threads,) = describe_broker(NOTHING, ["num.io.threads"])
    assert (threads.value, threads.source) == ("8", Source.DEFAULT)
    assert threads.synonyms == [Synonym("num.io.threads", "8", Source.DEFAULT)]
    none = [key.name for key in broker_config_keys().values() if key.default is None and not key.is_internal]
    (unset,) = describe_broker(NOTHING, none[:1])
    assert (unset.value, unset.source, unset.synonyms) == (None, Source.DEFAULT, [])


def test_a_default_with_its_synonym() -> None:
    config = one(describe_topic({}, NOTHING), "segment.bytes")
    assert (config.value, config.source) == ("1073741824", Source.DEFAULT)
    assert config.synonyms == [Synonym("log.segment.bytes", "1073741824", Source.DEFAULT)]


def test_a_broker_key_that_is_not_set_is_no_synonym() -> None:
    config = one(describe_topic({}, NOTHING), "segment.ms")
    assert (config.value, config.source, config.synonyms) == ("604800000", Source.DEFAULT, [])


def test_every_layer_is_a_synonym_most_specific_first() -> None:
    layers = BrokerLayers({"log.retention.ms": "60000"}, {"log.retention.ms": "70000"}, {})
    config = one(describe_topic({"retention.ms": "1000"}, layers), "retention.ms")
    assert (config.value, config.source) == ("1000", Source.TOPIC)
    assert config.synonyms == [
        Synonym("retention.ms", "1000", Source.TOPIC),
        Synonym("log.retention.ms", "60000", Source.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "70000", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    ]


def test_a_coarser_unit_is_told_in_milliseconds_for_the_topic() -> None:
    layers = BrokerLayers({}, {}, {"log.retention.hours": "5"})
    config = one(describe_topic({}, layers), "retention.ms")
    assert (config.value, config.source) == ("18000000", Source.STATIC_BROKER)
    assert config.synonyms[0] == Synonym("log.retention.hours", "5", Source.STATIC_BROKER)


def test_a_secret_is_never_told() -> None:
    layers = BrokerLayers({}, {}, {"ssl.key.password": "hunter2"})
    config = one(describe_broker(layers), "ssl.key.password")
    assert config.is_sensitive
    assert config.value is None
    assert config.source is Source.STATIC_BROKER
    assert "hunter2" not in repr(describe_broker(layers))


def test_the_cluster_wide_resource_tells_only_what_was_set() -> None:
    layers = BrokerLayers({}, {"log.retention.ms": "70000"}, {"num.partitions": "3"})
    (config,) = describe_broker(layers, is_cluster_default=True)
    assert (config.name, config.value) == ("log.retention.ms", "70000")
    assert config.synonyms == [Synonym("log.retention.ms", "70000", Source.DYNAMIC_DEFAULT_BROKER)]


def test_chosen_keys_and_unknown_ones() -> None:
    described = describe_topic({}, NOTHING, ["segment.ms", "nope", "retention.ms"])
    assert [config.name for config in described] == ["retention.ms", "segment.ms"]
    assert len(describe_topic({}, NOTHING, [])) > 30


def test_read_only_is_what_needs_a_restart() -> None:
    described = describe_broker(NOTHING)
    assert one(described, "num.partitions").is_read_only
    assert not one(described, "log.retention.ms").is_read_only
    assert not one(described, "listeners").is_read_only


def test_dynamic_settings_of_one_listener_are_told_and_secrets_are_not() -> None:
    file, key = "listener.name.a.ssl.keystore.location", "listener.name.a.ssl.keystore.key"
    layers = BrokerLayers({file: "new.pem", key: "secret"}, {}, {file: "old.pem"})
    told = {config.name: config for config in describe_broker(layers)}
    assert (told[file].value, told[file].source) == ("new.pem", Source.DYNAMIC_BROKER)
    assert [one.value for one in told[file].synonyms] == ["new.pem", "old.pem"]
    assert told[key].is_sensitive
    assert "secret" not in str(told[key])
    assert [config.name for config in describe_broker(layers, [key])] == [key]
    assert file not in {config.name for config in describe_broker(layers, is_cluster_default=True)}
