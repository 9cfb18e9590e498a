"""Settings as a user wrote them: checked, complete, and read into typed values.

A key may be spelt as Kafka does (`linger.ms`) or as Python would (`linger_ms`). A key that does not exist is
an error that suggests the closest name: a misspelt setting that is ignored is noticed only in production.
Values may be text, as in a file, or of their own type.

A class of typed values names the key of each field, and gets its default and its value from there:

    @dataclass(slots=True, frozen=True)
    class AdminSettings:
        request_timeout_s: float = seconds("request.timeout.ms")

    settings = typed_values(AdminSettings, configuration)
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from headrace.base.secret import Secret, revealed
from headrace.client.errors import InvalidInput
from headrace.client.settings.keys import OTHER_NAMES, all_keys
from headrace.machines.configs.definition import KEPT_DOC, ConfigKey, ConfigType
from headrace.machines.configs.values import ConfigValue, InvalidConfig, closest, parse_value

T = TypeVar("T")

NUMBER_BITS_MAX = 64  # of any setting; Python refuses to write a number of thousands of digits as text


class InvalidSetting(InvalidInput):
    """A key or a value that is not accepted."""


def given_settings(
    config: str | Mapping[str, object] | None, more: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a client's constructor: bootstrap.servers alone or a mapping, and keywords."""
    if isinstance(config, str):
        config = {"bootstrap.servers": config}
    return {**(config or {}), **more}


class Configuration(Mapping[str, "ConfigValue | Secret"]):
    """Every key with its value, by Kafka's names. Passwords and keys are `Secret`s.

    >>> given = {"bootstrap.servers": "localhost:9092", "linger_ms": 20}
    >>> configuration = Configuration(producer_keys(), given)
    >>> configuration["linger.ms"], configuration["acks"]
    (20, 'all')
    """

    def __init__(self, known: dict[str, ConfigKey], given: Mapping[str, object]) -> None:
        self.given: set[str] = set()  # by the user
        self._values: dict[str, ConfigValue | Secret] = {}
        self._objects: dict[str, object] = {}
        for spelling, value in given.items():
            key = known[canonical_name(known, spelling)]
            if key.name in self.given:
                raise InvalidSetting(f"{key.name} is set twice, once as {spelling}")
            self.given.add(key.name)
            if key.allowed == "object":
                self._objects[key.name] = value
            else:
                read = _read(key, revealed(value) if isinstance(value, Secret) else value)
                is_secret = key.is_sensitive and isinstance(read, str)
                self._values[key.name] = Secret(read) if is_secret else read  # type: ignore[arg-type]
        for name, key in known.items():
            if name not in self._values:
                if key.is_required:
                    raise InvalidSetting(f"{name} is required")
                self._values[name] = parse_value(key, key.default)

    def __getitem__(self, name: str) -> ConfigValue | Secret:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def without_effect(self) -> list[str]:
        """The settings that the user gave and that have no effect: worth a warning."""
        return sorted(name for name in self.given if all_keys()[name].doc == KEPT_DOC)

    def number(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def seconds(self, name: str) -> float:
        """Of a key that ends in `.ms`."""
        return self.number(name) / 1000

    def optional_seconds(self, name: str) -> float | None:
        """The same, of a key where a negative value means none."""
        return None if self.number(name) < 0 else self.seconds(name)

    def flag(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool)
        return value

    def text(self, name: str) -> str:
        """Also of a secret."""
        value = self._values[name]
        if isinstance(value, Secret):
            return value.reveal()
        assert isinstance(value, str)
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._values[name] is None else self.text(name)

    def given_object(self, name: str) -> object | None:
        """Of a key whose value is an object of Python; None if it was not given."""
        return self._objects.get(name)

    def items_of(self, name: str) -> list[str]:
        value = self._values[name]
        assert isinstance(value, list)
        return value


def canonical_name(known: dict[str, ConfigKey], spelling: str) -> str:
    """Kafka's name of a setting that may be spelt as in Python or as in other clients."""
    dotted = spelling.replace("_", ".")
    for name in (dotted, OTHER_NAMES.get(dotted, "")):
        if name in known:
            return name
    raise _unknown(spelling, known)


def _unknown(spelling: str, known: dict[str, ConfigKey]) -> InvalidSetting:
    suggestion = closest(spelling, known)
    if suggestion is not None and "_" in spelling:
        suggestion = suggestion.replace(".", "_")
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    return InvalidSetting(f"unknown setting {spelling}{hint}")


def _read(key: ConfigKey, value: object) -> ConfigValue:
    """From text or from a value of the key's own type."""
    match value:
        case None:
            text = None
        case bool():
            text = "true" if value else "false"
        case str():
            text = value
        case int() if value.bit_length() > NUMBER_BITS_MAX:
            raise InvalidSetting(f"{key.name} cannot be a number of {value.bit_length()} bits")
        case int() | float():
            text = str(value)
        case list() | tuple() if key.type is ConfigType.LIST:
            text = ",".join(str(part) for part in value)
        case _:
            raise InvalidSetting(f"{key.name} cannot be a {type(value).__name__}")
    if text is None and key.default is not None:
        raise InvalidSetting(f"{key.name} cannot be None")
    try:
        return parse_value(key, text)
    except InvalidConfig as error:
        raise InvalidSetting(str(error)) from error


# --- typed values ----------------------------------------------------------------------------------------


def _from_key(name: str, convert: Callable[[Any], Any]) -> Any:
    """A field of a dataclass whose default and value come from a key."""
    key = all_keys()[name]
    default = convert(parse_value(key, key.default))
    return dataclasses.field(default=default, metadata={"key": name, "convert": convert})


def value(name: str) -> Any:
    """The value of a key as it is."""
    return _from_key(name, lambda value: value)


def seconds(name: str) -> Any:
    """The value of a key that ends in `.ms`, in seconds."""
    return _from_key(name, lambda value: value / 1000)


def optional_seconds(name: str) -> Any:
    """The same for a key where a negative value means none."""
    return _from_key(name, lambda value: None if value < 0 else value / 1000)


def typed_values(kind: Callable[..., T], configuration: Configuration, **computed: object) -> T:
    """A `kind` of values, which is a dataclass; `computed` are those that no single key gives."""
    values = {
        field.name: field.metadata["convert"](configuration[field.metadata["key"]])
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if "key" in field.metadata and field.name not in computed
    }
    return kind(**values, **computed)
