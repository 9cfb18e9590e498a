"""Comparison of a topic's records with those that a test expects, and the diff between them.

An expected record has only the fields that matter: a value, a key and a value, or a `Record` with more. JSON
is compared as JSON, so that the order of an object's fields does not matter.
"""

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.testing.records import Given, Record, as_bytes, as_pair, shown

# Between two looks at a topic: short for a person, long for a broker.
LOOK_AGAIN_S = 0.02

# Lines of a difference: more would hide what it is about. Comparisons that finding one may take: beyond, all
# from the first difference on is told as different.
LINES_MAX = 40
COMPARISONS_MAX = 250_000
PLACE_WIDTH = 10

NOTHING: Any = object()  # no expected record; None is one: a tombstone
Pair = tuple[Given, Record | None]


class Found(NamedTuple):
    """What a look at a topic gave."""

    partitions: int  # 0: there is no such topic
    records: list[Record]


class Expectation:
    def __init__(self, what: str, expected: list[Given], *, in_order: bool | None) -> None:
        self._what = what
        self._expected = expected
        self._in_order = in_order  # None: if the topic has an order, that is, one partition

    def await_from(self, look: Callable[[], Found], timeout_s: float) -> list[Record]:
        """Returns the records once they are as expected; raises AssertionError after the timeout."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = look()
            if self._is_met(found):
                return found.records
            # more than expected never becomes less: there is nothing to wait for
            if len(found.records) > len(self._expected) or time.monotonic() >= deadline:
                raise AssertionError(self._difference(found, timeout_s))
            time.sleep(LOOK_AGAIN_S)

    def _is_ordered(self, found: Found) -> bool:
        return found.partitions <= 1 if self._in_order is None else self._in_order

    def _is_met(self, found: Found) -> bool:
        if len(found.records) != len(self._expected):
            return False
        if self._is_ordered(found):
            return all(map(meets, found.records, self._expected))
        return all(want is not NOTHING for want, _ in _matched(self._expected, found.records))

    def _difference(self, found: Found, timeout_s: float) -> str:
        count = len(self._expected)
        order, compare = ("", _aligned) if self._is_ordered(found) else (" in any order", _matched)
        head = f"{self._what}: expected {count} record{'' if count == 1 else 's'}{order}"
        head += f", found {len(found.records)}" if found.partitions else ", found no such topic"
        if len(found.records) < count:
            head += f" after {timeout_s:g} s"
        lines = []
        for want, got in compare(self._expected, found.records):
            if got is None:
                lines.append(f"  - {'expected':>{PLACE_WIDTH}} {_told(want)}")
            else:
                lines.append(f"  {'+' if want is NOTHING else ' '} {_place(got)} {got}")
        return "\n".join([head, *_shortened(lines), "(- expected and not there, + there and not expected)"])


def _place(record: Record) -> str:
    """Partition and offset."""
    return f"{record.partition}:{record.offset}".rjust(PLACE_WIDTH)


def _told(expected: Given) -> str:
    if isinstance(expected, Record):
        return str(expected)
    pair = as_pair(expected)
    return f"value={_part(expected)}" if pair is None else f"key={_part(pair[0])} value={_part(pair[1])}"


def _part(expected: Any) -> str:
    try:
        return shown(as_bytes(expected))
    except TypeError:  # no JSON: something that compares as it likes, such as mock.ANY
        return repr(expected)


def _shortened(lines: list[str]) -> list[str]:
    """The differences with some lines around them; the other lines are counted."""
    kept: list[str] = []
    left_out = 0
    for number, line in enumerate(lines):
        around = lines[max(0, number - 2) : number + 3]
        if any(not near.startswith("    ") for near in around) and len(kept) < LINES_MAX:
            if left_out:
                kept.append(f"    … {left_out} more")
                left_out = 0
            kept.append(line)
        else:
            left_out += 1
    if left_out:
        kept.append(f"    … {left_out} more")
    return kept


# --- comparing ----------------------------------------------------------------------------------------


def meets(record: Record, expected: Given) -> bool:
    """Whether the record matches the fields that the expected record sets."""
    if isinstance(expected, Record):
        return (
            record.key == expected.key
            and record.value == expected.value
            and expected.headers in ((), record.headers)
            and expected.partition in (None, record.partition)
            and expected.timestamp_ms in (None, record.timestamp_ms)
        )
    pair = as_pair(expected)
    if pair is None:
        return _same(record.value, expected)
    return _same(record.key, pair[0]) and _same(record.value, pair[1])


def _same(data: bytes | None, expected: Any) -> bool:
    if expected is None or isinstance(expected, str | bytes | bytearray | memoryview):
        return data == as_bytes(expected)
    if expected == data:  # mock.ANY and its like
        return True
    if data is None:
        return False
    try:
        return bool(json.loads(data) == expected)
    except ValueError:
        return False


def _matched(expected: list[Given], found: list[Record]) -> list[Pair]:
    """In any order: each found one takes the first expected one that it meets."""
    left = list(expected)
    pairs: list[Pair] = []
    for record in found:
        at = next((at for at, want in enumerate(left) if meets(record, want)), None)
        pairs.append((NOTHING if at is None else left.pop(at), record))
    return pairs + [(want, None) for want in left]


def _aligned(expected: list[Given], found: list[Record]) -> list[Pair]:
    """In order: the longest run of pairs that can be kept (as `diff` does), the rest alone."""
    start = 0
    while start < min(len(expected), len(found)) and meets(found[start], expected[start]):
        start += 1
    wanted, got = expected[start:], found[start:]
    pairs: list[Pair] = list(zip(expected[:start], found[:start]))
    if len(wanted) * len(got) > COMPARISONS_MAX:
        return pairs + [(want, None) for want in wanted] + [(NOTHING, record) for record in got]
    # lengths[i][j]: of the longest common sequence of wanted[i:] and got[j:]
    lengths = [[0] * (len(got) + 1) for _ in range(len(wanted) + 1)]
    for i in reversed(range(len(wanted))):
        for j in reversed(range(len(got))):
            is_pair = meets(got[j], wanted[i])
            lengths[i][j] = (
                lengths[i + 1][j + 1] + 1 if is_pair else max(lengths[i + 1][j], lengths[i][j + 1])
            )
    i = j = 0
    while i < len(wanted) and j < len(got):
        if meets(got[j], wanted[i]):
            pairs.append((wanted[i], got[j]))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            pairs.append((wanted[i], None))
            i += 1
        else:
            pairs.append((NOTHING, got[j]))
            j += 1
    return pairs + [(want, None) for want in wanted[i:]] + [(NOTHING, record) for record in got[j:]]
