"""What a user hands to a producer's constructor: settings, and functions, which no settings file has."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.client.serializers import Serializer, serializer_for
from headrace.client.settings.configuration import Configuration, given_settings
from headrace.client.settings.keys import producer_keys

Encode = Callable[[Any], bytes | None]
# How keys and values become bytes: a Serializer, a function, or a type that has a ready one.
Encoding = Serializer[Any] | Callable[[Any], bytes] | type
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]  # topic, key, value, partition count


class Options(NamedTuple):
    configuration: Configuration
    partitioner: Partitioner | None = None
    encode_key: Encode | None = None  # None: bytes and text go as they are
    encode_value: Encode | None = None


def producer_options(
    config: str | Mapping[str, object] | None,
    settings: Mapping[str, object],
    key_serializer: Encoding | None,
    value_serializer: Encoding | None,
) -> Options:
    """`config` is the bootstrap servers, or settings that `settings` add to or replace."""
    given = given_settings(config, settings)
    partitioner = given.get("partitioner")
    if callable(partitioner):
        del given["partitioner"]
    return Options(
        Configuration(producer_keys(), given),
        partitioner if callable(partitioner) else None,
        _encode(key_serializer),
        _encode(value_serializer),
    )


def _encode(encoding: Encoding | None) -> Encode | None:
    if encoding is None:
        return None
    if isinstance(encoding, Serializer):
        return encoding.to_bytes
    if isinstance(encoding, type):
        return serializer_for(encoding).to_bytes
    return Serializer(encoding, bytes).to_bytes
