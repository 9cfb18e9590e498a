"""A topic's settings: what its overrides may be, and what is in force with the broker's defaults underneath.

Texts come in, typed values go out. Layers of the broker are given most specific first: this broker's dynamic
settings, the cluster-wide dynamic ones, the file it was started with.
"""

from collections.abc import Mapping, Sequence

from headrace.machines.configs.definition import (
    COARSER_UNITS,
    ConfigKey,
    broker_config_keys,
    topic_config_keys,
)
from headrace.machines.configs.values import InvalidConfig, Value, parse_value, unknown_key

Layers = Sequence[Mapping[str, str]]


def check_topic_overrides(overrides: Mapping[str, str], defaults: Mapping[str, Value] | None = None) -> None:
    """Raises InvalidConfig at the first override that is unknown, wrong, or at odds with another."""
    keys = topic_config_keys()
    values: dict[str, Value] = {}
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


def broker_value(name: str, layers: Layers) -> Value:
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


def topic_defaults(layers: Layers) -> dict[str, Value]:
    """The settings of a topic that overrides nothing."""
    return {name: default_of(key, layers) for name, key in topic_config_keys().items()}


def default_of(key: ConfigKey, layers: Layers) -> Value:
    if key.synonyms:
        return broker_value(key.synonyms[0], layers)
    return parse_value(key, key.default)


def effective_topic_config(defaults: Mapping[str, Value], overrides: Mapping[str, str]) -> dict[str, Value]:
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
