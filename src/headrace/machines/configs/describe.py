"""Settings for DescribeConfigs: the current value, its source, and the values of all layers below."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.machines.configs.definition import (
    COARSER_UNITS,
    ConfigKey,
    ConfigType,
    broker_config_keys,
    group_config_keys,
    topic_config_keys,
)
from headrace.machines.configs.reloaded_keys import PREFIX, dynamic_key


class Source(IntEnum):
    """Where a value comes from, in Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    name: str
    value: str | None  # None when it is not set, and always for a secret
    source: Source
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    synonyms: list[Synonym]
    doc: str


class BrokerLayers(NamedTuple):
    """A broker's settings as texts, most specific first."""

    dynamic: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]

    def sources(self) -> tuple[tuple[Source, Mapping[str, str]], ...]:
        return (
            (Source.DYNAMIC_BROKER, self.dynamic),
            (Source.DYNAMIC_DEFAULT_BROKER, self.cluster),
            (Source.STATIC_BROKER, self.static),
        )


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerLayers, wanted: Iterable[str] | None = None
) -> list[Described]:
    return [
        describe_topic_key(key, overrides, broker)
        for key in chosen(topic_config_keys(), wanted)
        if not key.is_internal or key.name in overrides
    ]


def describe_topic_key(key: ConfigKey, overrides: Mapping[str, str], broker: BrokerLayers) -> Described:
    synonyms = overridden(key, overrides, Source.TOPIC)
    if key.synonyms:
        synonyms += broker_synonyms(key.synonyms[0], broker)
    first = in_milliseconds(synonyms[0]) if synonyms else Synonym(key.name, key.default, Source.DEFAULT)
    # a broker key that is not set by itself still has a value: the topic key's own default
    value = key.default if first.value is None else first.value
    return Described(
        key.name, value, first.source, False, key.is_sensitive, key.type, hidden(key, synonyms), key.doc
    )


def describe_group(
    overrides: Mapping[str, str], broker: BrokerLayers, wanted: Iterable[str] | None = None
) -> list[Described]:
    return [describe_group_key(key, overrides, broker) for key in chosen(group_config_keys(), wanted)]


def describe_group_key(key: ConfigKey, overrides: Mapping[str, str], broker: BrokerLayers) -> Described:
    synonyms = overridden(key, overrides, Source.GROUP)
    if key.synonyms:
        synonyms += broker_synonyms(key.synonyms[0], broker)
    else:
        synonyms.append(Synonym(key.name, key.default, Source.DEFAULT))
    first = synonyms[0]
    return Described(
        key.name, first.value, first.source, False, key.is_sensitive, key.type, synonyms, key.doc
    )


def overridden(key: ConfigKey, overrides: Mapping[str, str], source: Source) -> list[Synonym]:
    return [Synonym(key.name, overrides[key.name], source)] if key.name in overrides else []


def describe_broker(
    broker: BrokerLayers, wanted: Iterable[str] | None = None, *, is_cluster_default: bool = False
) -> list[Described]:
    """One broker's settings, or only the cluster-wide dynamic ones that were set."""
    described = []
    for key in chosen(broker_config_keys(), wanted):
        if is_cluster_default:
            if key.name not in broker.cluster:
                continue
            synonyms = [Synonym(key.name, broker.cluster[key.name], Source.DYNAMIC_DEFAULT_BROKER)]
        else:
            synonyms = own_synonyms(key, broker)
            if key.is_internal and not synonyms:
                continue
            if synonyms:
                synonyms = broker_synonyms(key.name, broker)
            elif key.default is not None:
                synonyms = [Synonym(key.name, key.default, Source.DEFAULT)]
        first = synonyms[0] if synonyms else Synonym(key.name, None, Source.DEFAULT)
        described.append(
            Described(
                key.name,
                None if key.is_sensitive else first.value,
                first.source,
                key.is_read_only,
                key.is_sensitive,
                key.type,
                hidden(key, synonyms),
                key.doc,
            )
        )
    if is_cluster_default:
        broker = BrokerLayers({}, broker.cluster, {})
    return described + described_listeners(broker, wanted)


def described_listeners(broker: BrokerLayers, wanted: Iterable[str] | None) -> list[Described]:
    """Dynamic settings of single listeners, which the table does not have."""
    dynamic = {**broker.cluster, **broker.dynamic}
    names = [name for name in sorted(dynamic) if name.startswith(PREFIX)]
    asked = set(wanted or ())
    if asked:
        names = [name for name in names if name in asked]
    keys = broker_config_keys()
    described = []
    for name in names:
        key = keys.get(dynamic_key(name))
        if key is None:
            continue
        layers = [(source, texts[name]) for source, texts in broker.sources() if name in texts]
        synonyms = hidden(key, [Synonym(name, text, source) for source, text in layers])
        value = None if key.is_sensitive else dynamic[name]
        described.append(
            Described(name, value, layers[0][0], False, key.is_sensitive, key.type, synonyms, key.doc)
        )
    return described


def chosen(keys: Mapping[str, ConfigKey], wanted: Iterable[str] | None) -> Iterable[ConfigKey]:
    """The asked keys that exist, in the table's order; all when nobody chose."""
    asked = set(wanted or ())
    if not asked:
        return keys.values()
    return [key for key in keys.values() if key.name in asked]


def own_synonyms(key: ConfigKey, broker: BrokerLayers) -> list[Synonym]:
    return [
        Synonym(key.name, layer[key.name], source) for source, layer in broker.sources() if key.name in layer
    ]


def broker_synonyms(name: str, broker: BrokerLayers) -> list[Synonym]:
    """Every layer that says something about a broker key or its coarser spellings, most specific first."""
    names = [name, *(coarser for coarser, _ in COARSER_UNITS.get(name, ()))]
    keys = broker_config_keys()
    synonyms = [
        Synonym(each, layer[each], source)
        for source, layer in broker.sources()
        for each in names
        if each in layer
    ]
    default = next((each for each in names if keys[each].default is not None), None)
    # like Kafka: the default of a coarser spelling is told only beneath something that was set
    if default is not None and (synonyms or default == name):
        synonyms.append(Synonym(default, keys[default].default, Source.DEFAULT))
    return synonyms


def in_milliseconds(synonym: Synonym) -> Synonym:
    for coarser in COARSER_UNITS.values():
        for name, factor in coarser:
            if name == synonym.name and synonym.value is not None and factor > 1:
                value = int(synonym.value)
                return synonym._replace(value=str(value * factor if value >= 0 else -1))
    return synonym


def hidden(key: ConfigKey, synonyms: list[Synonym]) -> list[Synonym]:
    return [synonym._replace(value=None) for synonym in synonyms] if key.is_sensitive else synonyms
