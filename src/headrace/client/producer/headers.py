"""Headers as users write them: pairs or a mapping, values as bytes or text."""

from collections.abc import Iterable, Mapping

from headrace.client.serializers import NotSerializable
from headrace.records._codec import Headers

HeaderValue = bytes | str | None
HeadersGiven = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]


def headers_of(given: HeadersGiven) -> Headers:
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((_name(name), _value(name, value)) for name, value in pairs)


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise NotSerializable(f"a header's name is {type(name).__name__}, and must be text")
    return name


def _value(name: str, value: HeaderValue) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise NotSerializable(
        f"the value of header {name!r} is {type(value).__name__}, and must be bytes or text"
    )
