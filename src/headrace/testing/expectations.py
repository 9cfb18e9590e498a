"""Comparing what a topic holds with what a test expects, and telling the difference.

An expected record says only what matters of it: a value, a key and a value, or a `Record` with more. JSON is
compared as JSON, so that the order of an object's fields does not matter.
"""

import json
import time
from collections.abc import Callable
from typing import Any

from headrace.testing.records import Given, Record, as_bytes, shown

# Between two looks at a topic: short for a person, long for a broker.
LOOK_AGAIN_S = 0.02

# Lines of a difference: more would hide what it is about.
LINES_MAX = 40


class Expectation:
    def __init__(self, what: str, expected: list[Given], *, in_order: bool) -> None:
        self._what = what
        self._expected = expected
        self._in_order = in_order

    def await_from(self, look: Callable[[], list[Record]], timeout_s: float) -> list[Record]:
        """The records once they are as expected; AssertionError when they are not in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = look()
            if self._is_met(found):
                return found
            if len(found) > len(self._expected) or time.monotonic() >= deadline:
                # more than expected never becomes less: there is nothing to wait for
                raise AssertionError(self._difference(found, timeout_s))
            time.sleep(LOOK_AGAIN_S)

    def _is_met(self, found: list[Record]) -> bool:
        if len(found) != len(self._expected):
            return False
        return all(want is not None and got is not None for want, got in self._paired(found))

    def _paired(self, found: list[Record]) -> list[tuple[Given | None, Record | None]]:
        """Each expected record beside the found one that meets it; alone, each that has no partner."""
        return _aligned(self._expected, found) if self._in_order else _matched(self._expected, found)

    def _difference(self, found: list[Record], timeout_s: float) -> str:
        head = (
            f"{self._what}: expected {_counted(len(self._expected))}"
            f"{'' if self._in_order else ' in any order'}, found {len(found)}"
        )
        if len(found) < len(self._expected):
            head += f" after {timeout_s:g} s"
        lines = []
        for want, got in self._paired(found):
            if want is not None and got is not None:
                lines.append(f"    {_place(got)} {got}")
            elif got is not None:
                lines.append(f"  + {_place(got)} {got}")
            else:
                lines.append(f"  - {'expected':>{PLACE_WIDTH}} {_told(want)}")
        return "\n".join([head, *_shortened(lines), "(- expected and not there, + there and not expected)"])


PLACE_WIDTH = 10


def _counted(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _place(record: Record) -> str:
    """Partition and offset."""
    return f"{record.partition}:{record.offset}".rjust(PLACE_WIDTH)


def _told(expected: Given) -> str:
    match expected:
        case Record():
            return str(expected)
        case (key, value):
            return f"key={shown(as_bytes(key))} value={shown(as_bytes(value))}"
        case _:
            return f"value={shown(as_bytes(expected))}"


def _shortened(lines: list[str]) -> list[str]:
    """What differs, with what stands around it; the rest is counted."""
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
    """Whether the record is what was expected, as far as that was said."""
    match expected:
        case Record():
            return (
                record.key == expected.key
                and record.value == expected.value
                and expected.headers in ((), record.headers)
                and expected.partition in (None, record.partition)
                and expected.timestamp_ms in (None, record.timestamp_ms)
            )
        case (key, value):
            return _same(record.key, key) and _same(record.value, value)
        case _:
            return _same(record.value, expected)


def _same(data: bytes | None, expected: Any) -> bool:
    if expected is None or isinstance(expected, str | bytes | bytearray | memoryview):
        return data == as_bytes(expected)
    if data is None:
        return False
    try:
        return bool(json.loads(data) == expected)
    except ValueError:
        return False


def _matched(expected: list[Given], found: list[Record]) -> list[tuple[Given | None, Record | None]]:
    """In any order: each expected one takes the first found one that meets it."""
    left = list(expected)
    pairs: list[tuple[Given | None, Record | None]] = []
    for record in found:
        at = next((at for at, want in enumerate(left) if meets(record, want)), None)
        pairs.append((None if at is None else left.pop(at), record))
    return pairs + [(want, None) for want in left]


def _aligned(expected: list[Given], found: list[Record]) -> list[tuple[Given | None, Record | None]]:
    """In order: the longest run of pairs that can be kept (as `diff` does), the rest alone."""
    start = 0
    while start < min(len(expected), len(found)) and meets(found[start], expected[start]):
        start += 1
    wanted, got = expected[start:], found[start:]
    pairs: list[tuple[Given | None, Record | None]] = list(zip(expected[:start], found[:start]))
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
            pairs.append((None, got[j]))
            j += 1
    return pairs + [(want, None) for want in wanted[i:]] + [(None, record) for record in got[j:]]
