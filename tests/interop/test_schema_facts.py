"""Our declarations beside the definitions inside Kafka's own jars, fact by fact.

The jars come from Maven through the harness, or from the folder that HEADRACE_KAFKA_LIBS names.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import kafka
from harness.messages import every_type
from headrace.protocol.messages.control_records import ControlRecordKey
from headrace.protocol.notation import (
    ZERO_UUID,
    Array,
    Field,
    Message,
    Primitive,
    Struct,
    Versions,
    version_range,
)

# restated when they are served
LATER = re.compile("Share|Streams|Telemetry")
# part of framing, or read by nobody outside of Kafka
ELSEWHERE = {"RequestHeader", "ResponseHeader", "DefaultPrincipalData"}
RENAMED = {"ControlRecordTypeSchema": ControlRecordKey.__name__}


def jar(name: str) -> Path:
    if "HEADRACE_KAFKA_LIBS" in os.environ:
        return Path(os.environ["HEADRACE_KAFKA_LIBS"]) / f"{name}-{kafka.VERSION}.jar"
    kafka.classpath()
    return kafka.LIBS / f"{name}-{kafka.VERSION}.jar"


def read_definitions(name: str, folder: str) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(jar(name)) as opened:
        for member in opened.namelist():
            if member.startswith(folder) and member.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", opened.read(member).decode(), flags=re.MULTILINE)
                yield json.loads(text)


@pytest.fixture(scope="module")
def definitions() -> dict[str, dict[str, Any]]:
    """By name; those that Kafka itself has retired ("none") are left out."""
    found = [
        *read_definitions("kafka-clients", "common/message/"),
        *read_definitions("kafka-metadata", "common/metadata/"),
        *read_definitions("kafka-group-coordinator", "common/message/"),
        *read_definitions("kafka-transaction-coordinator", "common/message/"),
    ]
    return {
        RENAMED.get(each["name"], each["name"]): each for each in found if each["validVersions"] != "none"
    }


def snake(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def their_default(definition: dict[str, Any]) -> Any:
    """The default in Python; None stands for a struct's own defaults as well."""
    # Kafka's generator takes a null without quotes for no default at all
    kind, told = definition["type"], definition.get("default")
    told = "" if told is None else str(told)
    if told == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "bool":
        return told.lower() == "true"
    if kind == "float64":
        return float(told or 0)
    if re.fullmatch("u?int[0-9]+", kind):
        return int(told or "0", 0)
    return {"string": told, "bytes": b"", "uuid": ZERO_UUID}.get(kind)


def our_default(field: Field) -> Any:
    made = field.make_default()
    return None if isinstance(made, Struct) else made


def carried(versions: Versions, valid: Versions) -> set[int]:
    """Keys of coordinators' records say "0" where others say "0+": the same, while 0 is the last."""
    return {version for version in range(valid.first, valid.last + 1) if version in versions}


def check_fields(
    ours: tuple[Field, ...],
    theirs: list[dict[str, Any]],
    valid: Versions,
    common: dict[str, list[dict[str, Any]]],
    where: str,
) -> None:
    assert [field.name for field in ours] == [snake(each["name"]) for each in theirs], where
    for field, definition in zip(ours, theirs):
        at = f"{where}.{field.name}"
        versions = definition.get("versions") or definition["taggedVersions"]
        assert carried(field.versions, valid) == carried(version_range(versions), valid), at
        assert field.nullable == version_range(definition.get("nullableVersions", "none")), at
        assert field.ignorable == definition.get("ignorable", False), at
        assert field.tag == definition.get("tag"), at
        assert definition.get("taggedVersions", versions) == versions, at
        ours_made, theirs_made = our_default(field), their_default(definition)
        assert (type(ours_made), ours_made) == (type(theirs_made), theirs_made), at
        check_kind(field.kind, definition, valid, common, at)


def check_kind(
    kind: Primitive | Array | type[Struct],
    definition: dict[str, Any],
    valid: Versions,
    common: dict[str, list[dict[str, Any]]],
    where: str,
) -> None:
    told = definition["type"]
    assert told.startswith("[]") == isinstance(kind, Array), where
    element, name = (kind.element if isinstance(kind, Array) else kind), told.removeprefix("[]")
    if isinstance(element, Primitive):
        assert element.name == name, where
    else:
        check_fields(element.__fields__, definition.get("fields") or common[name], valid, common, where)


OUR_OWN = 30_000  # API keys from here on are Headrace's


def kafkas_types() -> list[type[Message]]:
    return [kind for kind in every_type() if kind.KEY < OUR_OWN and "sinks" not in kind.__module__]


@pytest.mark.parametrize("kind", kafkas_types(), ids=lambda kind: kind.__name__)
def test_declaration_states_kafkas_facts(kind: type[Message], definitions: dict[str, dict[str, Any]]) -> None:
    definition = definitions[kind.__name__]
    assert definition.get("apiKey", -1) == kind.KEY
    assert version_range(definition["validVersions"]) == kind.VERSIONS
    assert version_range(definition["flexibleVersions"]) == kind.FLEXIBLE
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    check_fields(kind.__fields__, definition["fields"], kind.VERSIONS, common, kind.__name__)


def test_nothing_is_forgotten(definitions: dict[str, dict[str, Any]]) -> None:
    ours = {kind.__name__ for kind in every_type()}
    missing = definitions.keys() - ours - ELSEWHERE
    assert not {name for name in missing if not LATER.search(name)}
