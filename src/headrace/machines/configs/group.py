"""Settings of a group: the checks of its overrides, within the bounds that the broker sets.

The broker's key for `consumer.session.timeout.ms` is `group.consumer.session.timeout.ms`. Its bounds are
`group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`. The names of other keys
follow the same rule; not all keys have bounds.
"""

from collections.abc import Mapping

from headrace.machines.configs.definition import ConfigKey, broker_config_keys, group_config_keys
from headrace.machines.configs.topic import Layers, broker_value, default_of
from headrace.machines.configs.values import ConfigValue, InvalidConfig, parse_value, unknown_key

KINDS = ("consumer", "share", "streams")


def check_group_overrides(overrides: Mapping[str, str], layers: Layers) -> None:
    """Raises InvalidConfig at the first override that is unknown, wrong, out of bounds, or at odds with
    another.
    """
    keys = group_config_keys()
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        key = keys.get(name)
        if key is None:
            raise unknown_key("group", name, keys)
        values[name] = parse_value(key, text)
        check_bounds(key, values[name], layers)
    for kind in KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if number(keys[session], values, layers) <= number(keys[heartbeat], values, layers):
            raise InvalidConfig(f"{session} must be greater than {heartbeat}")


def check_bounds(key: ConfigKey, value: ConfigValue, layers: Layers) -> None:
    least, most = bound(key, "min"), bound(key, "max")
    if least is not None and compared(value) < compared(broker_value(least, layers)):
        raise InvalidConfig(f"{key.name} must be greater than or equal to {least}")
    if most is not None and compared(value) > compared(broker_value(most, layers)):
        raise InvalidConfig(f"{key.name} must be less than or equal to {most}")


def bound(key: ConfigKey, which: str) -> str | None:
    """The broker key that bounds this one."""
    kind, _, rest = key.name.partition(".")
    name = f"group.{kind}.{which}.{rest.removeprefix('num.')}"
    return name if name in broker_config_keys() else None


def number(key: ConfigKey, values: Mapping[str, ConfigValue], layers: Layers) -> int:
    """The value in force."""
    return compared(values[key.name] if key.name in values else default_of(key, layers))


def compared(value: ConfigValue) -> int:
    assert isinstance(value, int), f"{value} has bounds and is not a number"
    return value
