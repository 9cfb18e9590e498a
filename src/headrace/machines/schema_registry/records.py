"""Records of the `_schemas` topic: JSON keys and values as Confluent's registry writes them.

So each registry can take over the topic of the other. A key has a `keytype` and a subject; a null value is a
tombstone. Unknown key types are skipped, as Confluent's registry skips the one that only Headrace has:
`ID_MAX`, the highest id that was ever assigned, which stays when schemas are deleted.
"""

import json
from typing import Any, NamedTuple

from headrace.schema_formats.schema import Reference, Schema, SchemaType

NUMBER_MAX = 2**31 - 1  # of ids and versions


class Record(NamedTuple):
    key: bytes
    value: bytes | None


class Version(NamedTuple):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema
    is_deleted: bool = False


def schema_record(version: Version) -> Record:
    schema = version.schema
    value: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    if schema.type is not SchemaType.AVRO:
        value["schemaType"] = schema.type.value
    if schema.references:
        value["references"] = [reference._asdict() for reference in schema.references]
    value |= {"schema": schema.text, "deleted": version.is_deleted}
    return Record(_schema_key(version.subject, version.version), _dump(value))


def schema_tombstone(subject: str, version: int) -> Record:
    return Record(_schema_key(subject, version), None)


def delete_subject_record(subject: str, version: int) -> Record:
    """All versions up to this one are deleted softly."""
    return Record(_key("DELETE_SUBJECT", subject, magic=0), _dump({"subject": subject, "version": version}))


def delete_subject_tombstone(subject: str) -> Record:
    return Record(_key("DELETE_SUBJECT", subject, magic=0), None)


def config_record(subject: str | None, level: str | None) -> Record:
    value = None if level is None else _dump({"subject": subject, "compatibilityLevel": level})
    return Record(_key("CONFIG", subject, magic=0), value)


def mode_record(subject: str | None, mode: str | None) -> Record:
    value = None if mode is None else _dump({"subject": subject, "mode": mode})
    return Record(_key("MODE", subject, magic=0), value)


def id_max_record(id_max: int) -> Record:
    """No id up to this one is given again, even when compaction has removed the schema that had it."""
    return Record(_dump({"keytype": "ID_MAX", "magic": 0}), _dump({"id": id_max}))


def _key(kind: str, subject: str | None, *, magic: int) -> bytes:
    return _dump({"keytype": kind, "subject": subject, "magic": magic})


def _schema_key(subject: str, version: int) -> bytes:
    return _dump({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class Unreadable(ValueError):
    """A record of the topic was not written by a registry."""


def read_key(key: bytes) -> dict[str, Any]:
    try:
        found = json.loads(key)
        if not isinstance(found, dict) or not isinstance(found.get("keytype"), str):
            raise Unreadable(f"{key[:100]!r} is not a registry key")
        subject = found.get("subject")
        if subject is not None:
            _check_text(subject)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{key[:100]!r} is not a registry key") from error
    return found


def read_value(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{value[:100]!r} is not a registry value") from error
    if not isinstance(found, dict):
        raise Unreadable(f"{value[:100]!r} is not a registry value")
    return found


def read_version(value: dict[str, Any]) -> Version:
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), read_number(each["version"], least=-1))
            for each in value.get("references") or ()
        )
        kind = SchemaType(value.get("schemaType") or "AVRO")
        schema = Schema(str(value["schema"]), kind, references)
        number, id = read_number(value["version"]), read_number(value["id"])
        subject = str(value["subject"])
        for text in (subject, schema.text, *(text for each in references for text in each[:2])):
            _check_text(text)
        return Version(subject, number, id, schema, bool(value.get("deleted")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"a field is missing in a schema's record: {error!r}") from error


def _check_text(value: object) -> None:
    """JSON can spell half of a surrogate pair, which no answer can contain."""
    if not isinstance(value, str):
        raise Unreadable(f"{value!r:.40} is not text")
    value.encode()  # raises UnicodeEncodeError, a ValueError


def read_number(value: object, *, least: int = 0) -> int:
    """An id or a version, which other registries count with 32 bits."""
    if type(value) is not int or not least <= value <= NUMBER_MAX:
        raise Unreadable(f"{value!r:.40} is neither an id nor a version")
    return value
