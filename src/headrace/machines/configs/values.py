"""Parsing and checking of a setting's text; appending to and subtracting from lists.

A wrong value raises `InvalidConfig`. Its message names the key, the value and the allowed values, similar to
Kafka's message, because tools show it to people.
"""

import re

from headrace.machines.configs.definition import ConfigKey, ConfigType

ConfigValue = bool | int | float | str | list[str] | None

INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
INTEGER = re.compile(r"[+-]?[0-9]+")
THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")
RESET = re.compile(
    r"earliest|latest|by_duration:P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?"
)


class InvalidConfig(Exception):
    """A setting is not accepted; the message says why."""


def parse_list(text: str) -> list[str]:
    text = text.strip()
    return [part.strip() for part in text.split(",")] if text else []


def parse_value(key: ConfigKey, text: str | None) -> ConfigValue:
    """The typed value of a setting's text, checked against what the key allows."""
    if text is None:
        return None
    value = parse_text(key, text)
    check_allowed(key, value)
    return value


def parse_text(key: ConfigKey, text: str) -> ConfigValue:
    match key.type:
        case ConfigType.BOOLEAN:
            lowered = text.strip().lower()
            if lowered not in ("true", "false"):
                raise refused(key, text, "Expected value to be either true or false")
            return lowered == "true"
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            trimmed = text.strip()
            bits = INTEGER_BITS[key.type]
            # the length is checked first: int() of a megabyte of digits takes minutes
            if len(trimmed) > 20 or not INTEGER.fullmatch(trimmed):
                raise refused(key, text, f"Not a number of type {key.type.name}")
            number = int(trimmed)
            if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
                raise refused(key, text, f"Not a number of type {key.type.name}")
            return number
        case ConfigType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise refused(key, text, "Not a number of type DOUBLE") from None
        case ConfigType.LIST:
            parts = parse_list(text)
            if "" in parts:
                raise InvalidConfig(f"Configuration '{key.name}' values must not be empty.")
            return parts
        case ConfigType.PASSWORD:
            return text
        case _:
            return text.strip()


def check_allowed(key: ConfigKey, value: ConfigValue) -> None:
    allowed = key.allowed
    if allowed == "*":
        return
    if allowed == "replicas":
        check_throttled_replicas(key, value)
    elif allowed == "reset":
        if not RESET.fullmatch(str(value)):
            raise refused(key, value, "Value must be earliest, latest, or by_duration:PnDTnHnMn.nS")
    elif allowed.endswith("}"):
        any_case = allowed.startswith("~")
        choices = allowed.strip("~{}").split(",")
        for part in value if isinstance(value, list) else [str(value)]:
            if (part.lower() if any_case else part) not in choices:
                raise refused(key, part, f"String must be one of: {', '.join(choices)}")
    else:
        check_range(key, value)


def check_range(key: ConfigKey, value: ConfigValue) -> None:
    assert isinstance(value, int | float), f"{key.name} has a range and no number"
    bounds, _, also = key.allowed.partition("|")
    low, _, high = bounds.partition("..")
    if also:
        if not float(low) <= value <= float(high) and value != float(also):
            raise refused(key, value, f"Value must be between {low} and {high} or equal to {also}")
    elif low and not value >= float(low):
        raise refused(key, value, f"Value must be at least {low}")
    elif high and not value <= float(high):
        raise refused(key, value, f"Value must be no more than {high}")


def check_throttled_replicas(key: ConfigKey, value: ConfigValue) -> None:
    assert isinstance(value, list)
    if value not in ([], ["*"]) and not all(THROTTLED_REPLICA.fullmatch(part) for part in value):
        wanted = "'*' or a list of partition:broker pairs such as 0:1,1:2"
        raise refused(key, ",".join(value), f"{key.name} must be {wanted}")


def refused(key: ConfigKey, value: ConfigValue, reason: str) -> InvalidConfig:
    shown = "[hidden]" if key.is_sensitive else value
    return InvalidConfig(f"Invalid value {shown} for configuration {key.name}: {reason}")


def closest(name: str, known: dict[str, ConfigKey]) -> str | None:
    """The known key that is most similar."""
    import difflib  # only a misspelling pays for loading it

    names = [key.name for key in known.values() if not key.is_internal]
    found = difflib.get_close_matches(name[:100].lower().replace("_", "."), names, n=1, cutoff=0.75)
    return found[0] if found else None


def unknown_key(what: str, name: str, known: dict[str, ConfigKey]) -> InvalidConfig:
    suggestion = closest(name, known)
    hint = f" (did you mean {suggestion}?)" if suggestion else ""
    return InvalidConfig(f"Unknown {what} config name: {name}{hint}")


def appended(current: str | None, added: str) -> str:
    """The list with what it does not hold yet at its end."""
    parts = parse_list(current or "")
    return ",".join(parts + [part for part in parse_list(added) if part not in parts])


def subtracted(current: str | None, removed: str) -> str:
    unwanted = parse_list(removed)
    return ",".join(part for part in parse_list(current or "") if part not in unwanted)
