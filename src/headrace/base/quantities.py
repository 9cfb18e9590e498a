"""Durations and sizes as people write and read them: `retention.ms=7d`, `segment.bytes=1GiB`.

A setting's unit is part of its name (`.ms`, `.hours`, `.bytes`). A plain number is always in that unit, as
in Kafka's own tools; what is printed for people can be typed back.
"""

import re
from collections.abc import Callable

_DURATIONS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHOWN_MS = ("d", "h", "m", "s", "ms")  # a week is shown as 7d
_SIZES = {"": 1, "b": 1}
_SIZES |= {f"{letter}{ending}": 1000**power for power, letter in enumerate("kmgt", 1) for ending in ("", "b")}
_SIZES |= {
    f"{letter}{ending}": 1024**power for power, letter in enumerate("kmgt", 1) for ending in ("i", "ib")
}
_SHOWN_SIZES = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
# The last word of a duration's key, and what its plain numbers count.
_UNITS_OF_KEYS_MS = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}
_NUMBER = re.compile(r"-?\d+")
_DECIMAL = re.compile(r"-?\d+(\.\d+)?")  # of keys that take fractions, such as bytes a second
_PIECE = r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)"
_DURATION = re.compile(rf"{_PIECE}(?:\s*{_PIECE})*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
# Java's largest numbers stand for "no limit"; as a duration or size they would mislead.
_UNLIMITED = {2**31 - 1, 2**63 - 1}


class NotAQuantity(ValueError):
    """The text is neither a number nor a duration or size; the message says what would be."""


def parse_duration_ms(text: str) -> int:
    """90s, 1h30m, 7d → milliseconds."""
    if not _DURATION.fullmatch(text.strip().lower()):
        raise NotAQuantity(f"{text!r} is not a duration; write 500ms, 90s, 15m, 12h, 7d or 1h30m")
    pieces = re.findall(_PIECE, text.lower())
    from fractions import Fraction  # loads decimal too: no broker's start waits for it

    total = sum(Fraction(number) * _DURATIONS_MS[unit] for number, unit in pieces)
    if total.denominator != 1:
        raise NotAQuantity(f"{text!r} is not a whole number of milliseconds")
    return int(total)


def parse_size(text: str) -> int:
    """1000, 1M (10⁶), 64KiB (2¹⁶) → a number of things or bytes."""
    read = _SIZE.fullmatch(text.strip().lower().replace("_", ""))
    if read is None or read[2] not in _SIZES:
        raise NotAQuantity(f"{text!r} is not a size; write 1000, 1M (1,000,000) or 64KiB (65,536)")
    from fractions import Fraction

    return int(Fraction(read[1]) * _SIZES[read[2]])


def setting_value(key: str, text: str) -> str:
    """The value of a setting as brokers take it: a duration or size becomes the number that it means.

    Other keys, and plain numbers, stay as they are: whether they are right is for the broker to say.
    """
    unit_ms = _unit_ms(key)
    if unit_ms is not None and not _NUMBER.fullmatch(text.strip()):
        value, rest = divmod(_read(key, text, parse_duration_ms), unit_ms)
        if rest:
            raise NotAQuantity(f"{key}={text}: not a whole number of {key.rpartition('.')[2]}")
        return str(value)
    if _is_size(key) and not _DECIMAL.fullmatch(text.strip()):
        return str(_read(key, text, parse_size))
    return text


def setting_text(key: str, value: str) -> str:
    """A setting's value for people: 604800000 of retention.ms → 7d. What has no shorter form stays."""
    unit_ms = _unit_ms(key)
    if unit_ms is None and not _is_size(key):
        return value
    if not _NUMBER.fullmatch(value) or len(value) > 20 or int(value) <= 0 or int(value) in _UNLIMITED:
        return value
    return size_text(int(value)) if unit_ms is None else duration_text(int(value) * unit_ms)


def duration_text(milliseconds: int) -> str:
    unit = next(unit for unit in _SHOWN_MS if milliseconds % _DURATIONS_MS[unit] == 0)
    return f"{milliseconds // _DURATIONS_MS[unit]}{unit}"


def size_text(count: int) -> str:
    for unit, size in _SHOWN_SIZES:
        if count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def _unit_ms(key: str) -> int | None:
    return _UNITS_OF_KEYS_MS.get(_canonical(key).rpartition(".")[2])


def _is_size(key: str) -> bool:
    """segment.bytes, log.cleaner.io.max.bytes.per.second"""
    return "bytes" in _canonical(key).split(".")


def _canonical(key: str) -> str:
    return key.lower().replace("_", ".")


def _read(key: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except NotAQuantity as error:
        raise NotAQuantity(f"{key}={text}: {error}") from None
