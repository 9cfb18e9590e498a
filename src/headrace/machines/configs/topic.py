"""Settings of a topic: the checks of its overrides, and the current values over the broker's defaults.

Texts come in, typed values go out. The broker's layers are passed with the most specific first: this broker's
dynamic settings, the cluster-wide dynamic settings, the file it was started with.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from headrace.machines.configs.definition import (
    COARSER_UNITS,
    ConfigKey,
    broker_config_keys,
    topic_config_keys,
)
from headrace.machines.configs.values import ConfigValue, InvalidConfig, parse_value, unknown_key

Layers = Sequence[Mapping[str, str]]


def check_topic_overrides(
    overrides: Mapping[str, str], defaults: Mapping[str, ConfigValue] | None = None
) -> None:
    """Raises InvalidConfig at the first override that is unknown, wrong, or at odds with another."""
    keys = topic_config_keys()
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        key = keys.get(name)
        if key is None:
            raise unknown_key("topic", name, keys)
        values[name] = parse_value(key, text)
    if values.get("remote.storage.enable"):
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    if "min.compaction.lag.ms" in values or "max.compaction.lag.ms" in values:
        under = defaults if defaults is not None else topic_defaults(())
        least = values.get("min.compaction.lag.ms", under["min.compaction.lag.ms"])
        most = values.get("max.compaction.lag.ms", under["max.compaction.lag.ms"])
        assert isinstance(least, int)
        assert isinstance(most, int)
        if least > most:
            raise InvalidConfig(
                "conflict topic config setting "
                f"min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
            )


def broker_value(name: str, layers: Layers) -> ConfigValue:
    """What a broker key comes to: the most specific layer that sets it, a coarser unit, or the default."""
    key = broker_config_keys()[name]
    for layer in layers:
        if name in layer:
            return parse_value(key, layer[name])
    for coarser, factor in COARSER_UNITS.get(name, ()):
        value = broker_value(coarser, layers)
        if value is not None:
            assert isinstance(value, int)
            # a negative time is "for ever" in every unit, and factor 1 keeps the largest long
            return value * factor if value >= 0 else -1
    return parse_value(key, key.default)


def topic_defaults(layers: Layers) -> dict[str, ConfigValue]:
    """The settings of a topic that overrides nothing."""
    defaults = dict(_without_settings())
    keys, decide = topic_config_keys(), _deciding()
    for layer in layers:
        for name in layer:
            if name in decide:  # most brokers set none of these
                topic_key = decide[name]
                defaults[topic_key] = default_of(keys[topic_key], layers)
    return defaults


@cache
def _without_settings() -> dict[str, ConfigValue]:
    """The settings of a topic of a broker that sets nothing."""
    return {name: default_of(key, ()) for name, key in topic_config_keys().items()}


@cache
def _deciding() -> dict[str, str]:
    """The broker's keys that decide a default, each with the setting of a topic that has this default."""
    decide: dict[str, str] = {}
    for name, key in topic_config_keys().items():
        if key.synonyms:
            broker_key = key.synonyms[0]
            for each in (broker_key, *(coarser for coarser, _ in COARSER_UNITS.get(broker_key, ()))):
                assert each not in decide, f"{each} decides about {name} and {decide[each]}"
                decide[each] = name
    return decide


def default_of(key: ConfigKey, layers: Layers) -> ConfigValue:
    if key.synonyms:
        return broker_value(key.synonyms[0], layers)
    return parse_value(key, key.default)


def effective_topic_config(
    defaults: Mapping[str, ConfigValue], overrides: Mapping[str, str]
) -> dict[str, ConfigValue]:
    """The settings of one topic, given `topic_defaults` of its broker.

    Overrides were checked when they were written; a key that is not known (a newer version wrote it) is left
    out.
    """
    keys = topic_config_keys()
    values = dict(defaults)
    for name, text in overrides.items():
        if name in keys:
            values[name] = parse_value(keys[name], text)
    if values.get("internal.segment.bytes") is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    return values
