"""Cases of `headrace pipeline test`: records given to topics, and rows expected in topics and tables.

    name: two clicks on one ad
    given:
      clicks:
        - {key: u1, value: {ad: a1}}
    expect:
      clicks-per-ad:
        - {key: a1, value: {clicks: 2}}

The order of rows does not count. A record is compared by the fields that the case names; a value that is a
mapping is JSON. Rows of tables are mappings of columns, compared by the columns that the case names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.pipelines.errors import ProjectError

RECORD_FIELDS = ("key", "value", "headers", "partition", "timestamp_ms")


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    file: str
    given: Mapping[str, list[dict[str, Any]]]
    expect: Mapping[str, list[dict[str, Any]]]


def load_cases(file: Path) -> list[Case]:
    import yaml

    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise ProjectError(f"{file}: not YAML: {error}") from None
    return [parse_case(read, str(file)) for read in documents if read is not None]


def parse_case(read: Any, file: str) -> Case:
    if not isinstance(read, dict) or set(read) - {"name", "given", "expect"} or "expect" not in read:
        raise ProjectError(f"{file}: a case has the fields name, given and expect")
    name = str(read.get("name") or Path(file).stem)
    parts = []
    for part in ("given", "expect"):
        rows = read.get(part) or {}
        if not isinstance(rows, dict) or not all(isinstance(one, list) for one in rows.values()):
            raise ProjectError(f"{file}: case {name}: {part} must map topics or tables to lists of rows")
        for target, ones in rows.items():
            if not all(isinstance(one, dict) for one in ones):
                raise ProjectError(f"{file}: case {name}: a row of {target} in {part} is not a mapping")
        parts.append(rows)
    for topic, ones in parts[0].items():
        unknown = {field for one in ones for field in one} - set(RECORD_FIELDS)
        if unknown:
            raise ProjectError(
                f"{file}: case {name}: a record of {topic} has the field {sorted(unknown)[0]}; known are "
                f"{', '.join(RECORD_FIELDS)}"
            )
    return Case(name, file, parts[0], parts[1])


def record_bytes(value: Any) -> bytes | None:
    """A key or value of a given record: a mapping or list is written as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value, default=str).encode()


def differences(target: str, expected: list[dict[str, Any]], found: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each expected row that is missing, and for each row that nobody expected."""
    left = list(found)
    lines = []
    for row in expected:
        match = next((one for one in left if _matches(row, one)), None)
        if match is None:
            lines.append(f"{target}: missing {_shown(row)}")
        else:
            left.remove(match)
    return lines + [f"{target}: not expected {_shown(one)}" for one in left]


def _matches(expected: Any, found: Any) -> bool:
    if isinstance(found, bytes | bytearray) and not isinstance(expected, bytes):
        return _matches(expected, _decoded(bytes(found), as_json=not isinstance(expected, str)))
    if isinstance(expected, dict) and isinstance(found, Mapping):
        return all(name in found and _matches(value, found[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(map(_matches, expected, found))
    if isinstance(expected, str) and found is not None and not isinstance(found, str | dict | list):
        return expected == str(found)
    return bool(expected == found)


def _decoded(data: bytes, *, as_json: bool) -> Any:
    text = data.decode("utf-8", "backslashreplace")
    if not as_json:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shown(row: Mapping[str, Any]) -> str:
    plain = {
        name: _decoded(bytes(value), as_json=True) if isinstance(value, bytes | bytearray) else value
        for name, value in row.items()
        if value is not None and value != ()
    }
    return json.dumps(plain, default=str, ensure_ascii=False)
