"""State machine of the schema registry: subjects, versions and ids of schemas.

It *decides* (from a request to records and a reply) and *replays* (records in the order of the log). Only
replay changes its state; a restart replays the same records. A schema has the same id in every subject, and
keeps it for ever, because data that was written with it may exist longer than its subject.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.machines.schema_registry import errors, records
from headrace.machines.schema_registry.records import Record, Version
from headrace.schema_formats.formats import Level, parse, violations
from headrace.schema_formats.protobuf.schema import text_of
from headrace.schema_formats.schema import Imports, InvalidSchema, Parsed, Reference, Schema, SchemaType

DEFAULT_LEVEL = Level.BACKWARD
READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
LATEST = -1

# Parsed schemas kept in memory; comparing with all versions of a subject asks for them again and again.
PARSED_MAX = 1_000

# Schemas that one refers to, directly and through others: each is read when it is registered.
REFERENCED_MAX = 500


class RegistryDecision(NamedTuple):
    reply: Any
    records: tuple[Record, ...] = ()


@dataclass(slots=True)
class Subject:
    versions: dict[int, Version] = field(default_factory=dict)  # in the order of their numbers

    def alive(self, *, with_deleted: bool = False) -> list[Version]:
        return [one for one in self.versions.values() if with_deleted or not one.is_deleted]


class Registry:
    def __init__(self) -> None:
        self._subjects: dict[str, Subject] = {}
        self._ids: dict[int, Schema] = {}
        self._users: dict[int, set[str]] = {}  # the subjects of each id, also those that it had
        self._by_fingerprint: dict[bytes, int] = {}
        self._guids: dict[str, int] = {}
        self.id_max = 0  # ids are never given twice, also not after their subjects are gone
        self._levels: dict[str | None, Level] = {}
        self._modes: dict[str | None, str] = {}
        self._parsed: dict[Schema, Parsed] = {}

    # --- replay -------------------------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Replays a record. Raises Unreadable, and changes nothing, if it is not a registry's record."""
        key = records.read_key(record.key)
        value = None if record.value is None else records.read_value(record.value)
        subject = key.get("subject")
        match key["keytype"]:
            case "SCHEMA":
                if value is None:
                    self._forget(str(subject), records.read_number(key.get("version")))
                else:
                    self._learn(records.read_version(value))
            case "DELETE_SUBJECT":
                if value is not None:
                    self._delete_softly(str(subject), value.get("version"))
            case "CLEAR_SUBJECT":
                self._subjects.pop(str(subject), None)
            case "ID_MAX":
                if value is not None:
                    self.id_max = max(self.id_max, records.read_number(value.get("id")))
            case "CONFIG":
                level = None if value is None else value.get("compatibilityLevel")
                if isinstance(level, str) and level in Level.__members__:
                    self._levels[subject] = Level(level)
                elif level is None:
                    self._levels.pop(subject, None)
            case "MODE":
                mode = None if value is None else value.get("mode")
                if mode in MODES:
                    self._modes[subject] = mode
                elif mode is None:
                    self._modes.pop(subject, None)

    def _learn(self, version: Version) -> None:
        versions = self._subjects.setdefault(version.subject, Subject()).versions
        is_newest = not versions or version.version > next(reversed(versions))
        versions[version.version] = version
        if not is_newest:
            self._subjects[version.subject].versions = dict(sorted(versions.items()))
        self._ids[version.id] = version.schema
        self._users.setdefault(version.id, set()).add(version.subject)
        self.id_max = max(self.id_max, version.id)
        self._by_fingerprint.setdefault(fingerprint(version.schema), version.id)
        self._guids[guid(version.schema)] = version.id

    def _forget(self, subject: str, version: int) -> None:
        known = self._subjects.get(subject)
        if known is not None:
            known.versions.pop(version, None)
            if not known.versions:
                del self._subjects[subject]

    def _delete_softly(self, subject: str, up_to: Any) -> None:
        known = self._subjects.get(subject)
        if known is not None:
            for number, version in known.versions.items():
                if type(up_to) is not int or number <= up_to:
                    known.versions[number] = version._replace(is_deleted=True)

    # --- questions ----------------------------------------------------------------------------------------

    def subjects(self, *, with_deleted: bool = False, only_deleted: bool = False) -> list[str]:
        return sorted(
            name
            for name, subject in self._subjects.items()
            if (with_deleted or bool(subject.alive()) != only_deleted)
        )

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[Version]:
        known = self._subjects.get(subject)
        found = [] if known is None else known.alive(with_deleted=with_deleted)
        if not found:
            raise errors.subject_not_found(subject)
        return found

    def version(self, subject: str, number: int, *, with_deleted: bool = False) -> Version:
        found = self.versions(subject, with_deleted=with_deleted)
        if number == LATEST:
            return found[-1]
        for one in found:
            if one.version == number:
                return one
        raise errors.version_not_found(number)

    def schema(self, id: int) -> Schema:
        if id not in self._ids:
            raise errors.schema_not_found(id)
        return self._ids[id]

    def id_of_guid(self, guid: str) -> int:
        if guid not in self._guids:
            raise errors.schema_not_found(guid)
        return self._guids[guid]

    def uses_of(self, id: int, *, with_deleted: bool = False) -> list[Version]:
        """The versions that have this schema."""
        self.schema(id)
        return [one for one in self.all(with_deleted=with_deleted) if one.id == id]

    def subjects_of(self, id: int) -> list[str]:
        """The subjects that have this schema, or had it: data that was written with it may still be there."""
        return sorted(self._users.get(id, ()))

    def all(self, *, with_deleted: bool = False) -> Iterator[Version]:
        for name in sorted(self._subjects):
            yield from self._subjects[name].alive(with_deleted=with_deleted)

    def referrers(self, subject: str, number: int) -> list[int]:
        """Ids of the schemas that refer to that version."""
        return sorted(
            {
                one.id
                for one in self.all()
                if any((each.subject, each.version) == (subject, number) for each in one.schema.references)
            }
        )

    def level(self, subject: str | None = None) -> Level | None:
        return self._levels.get(subject) or (DEFAULT_LEVEL if subject is None else None)

    def level_for(self, subject: str) -> Level:
        return self._levels.get(subject) or self._levels.get(None) or DEFAULT_LEVEL

    def mode(self, subject: str | None = None) -> str | None:
        return self._modes.get(subject) or (READWRITE if subject is None else None)

    def mode_for(self, subject: str) -> str:
        everywhere = self._modes.get(None, READWRITE)
        if everywhere == READONLY_OVERRIDE:
            return everywhere
        return self._modes.get(subject, everywhere)

    def find(self, subject: str, schema: Schema, *, with_deleted: bool = False) -> Version:
        """The version of the subject that has this schema."""
        found = self.versions(subject, with_deleted=with_deleted)
        canonical = self.parsed(schema).canonical
        for one in reversed(found):
            if self._is_same(one.schema, schema, canonical):
                return one
        raise errors.schema_not_found()

    def violations(self, subject: str, schema: Schema, number: int | None = None) -> list[str]:
        """Why the schema may not follow what the subject has: by its level against its versions, or against
        one version alone.
        """
        fresh = self.parsed(schema)
        level = self.level_for(subject)
        known = self._subjects.get(subject)
        older = [] if known is None else known.alive()
        if number is not None:
            if number == LATEST and not older:
                return []
            older = [self.version(subject, number)]
        try:
            return violations(level, fresh, [self.parsed(one.schema) for one in older])
        except InvalidSchema as error:
            raise errors.invalid_schema(error) from error

    # --- decisions ----------------------------------------------------------------------------------------

    def register(
        self, subject: str, schema: Schema, *, id: int | None = None, number: int | None = None
    ) -> RegistryDecision:
        """The reply is the Version that the schema has or gets. An id and a number are given only when
        schemas are imported from another registry.
        """
        mode = self.mode_for(subject)
        if mode not in (READWRITE, IMPORT):
            raise errors.not_permitted(f"Subject '{subject}' is in read-only mode")
        if mode != IMPORT and (id is not None or number is not None):
            raise errors.not_permitted(
                f"Subject '{subject}' is not in import mode: it takes no id or version"
            )
        if schema.type is SchemaType.PROTOBUF:
            schema = schema._replace(text=self._proto_text(schema.text))
        parsed = self.parsed(schema)
        known = self._subjects.get(subject)
        everything = [] if known is None else known.alive(with_deleted=True)
        for one in everything:
            if (
                not one.is_deleted
                and self._is_same(one.schema, schema, parsed.canonical)
                and id in (None, one.id)
            ):
                return RegistryDecision(one)
        if mode != IMPORT:
            found = self.violations(subject, schema)
            if found:
                raise errors.incompatible(subject, found)
        if id is None:
            id = self._by_fingerprint.get(fingerprint(schema), self.id_max + 1)
            if id > records.NUMBER_MAX:
                raise errors.no_more_ids()
        elif id in self._ids and fingerprint(self._ids[id]) != fingerprint(schema):
            raise errors.not_permitted(f"Overwrite new schema with id {id} is not permitted.")
        newest = everything[-1].version if everything else 0
        version = Version(subject, number or newest + 1, id, schema)
        if version.version > records.NUMBER_MAX:
            raise errors.invalid_version(version.version)
        kept: tuple[Record, ...] = (records.schema_record(version),)
        if known is not None and version.version in known.versions:
            # an import takes the place of a version, whose record compaction removes
            kept = (records.id_max_record(self.id_max), *kept)
        return RegistryDecision(version, kept)

    def delete_subject(self, subject: str, *, is_permanent: bool) -> RegistryDecision:
        """The reply is the list of deleted versions."""
        self._writable(subject)
        known = self._subjects.get(subject)
        if known is None:
            raise errors.subject_not_found(subject)
        alive = known.alive()
        for one in known.alive(with_deleted=True):
            if self.referrers(subject, one.version):
                raise errors.referenced(subject, one.version)
        if not is_permanent:
            if not alive:
                raise errors.subject_soft_deleted(subject)
            numbers = [one.version for one in alive]
            return RegistryDecision(numbers, (records.delete_subject_record(subject, numbers[-1]),))
        if alive:
            raise errors.subject_not_soft_deleted(subject)
        gone = tuple(records.schema_tombstone(subject, number) for number in known.versions)
        settings = (records.config_record(subject, None), records.mode_record(subject, None))
        kept = records.id_max_record(self.id_max)  # compaction removes the schemas, and with them their ids
        return RegistryDecision(
            list(known.versions), (kept, *gone, records.delete_subject_tombstone(subject), *settings)
        )

    def delete_version(self, subject: str, number: int, *, is_permanent: bool) -> RegistryDecision:
        self._writable(subject)
        version = self.version(subject, number, with_deleted=number != LATEST)
        if self.referrers(subject, version.version):
            raise errors.referenced(subject, version.version)
        if is_permanent:
            if not version.is_deleted:
                raise errors.version_not_soft_deleted(subject, version.version)
            kept = records.id_max_record(self.id_max)
            return RegistryDecision(
                version.version, (kept, records.schema_tombstone(subject, version.version))
            )
        if version.is_deleted:
            raise errors.version_soft_deleted(subject, version.version)
        gone = version._replace(is_deleted=True)
        return RegistryDecision(version.version, (records.schema_record(gone),))

    def set_level(self, subject: str | None, level: object) -> RegistryDecision:
        name = level.upper() if isinstance(level, str) else ""
        if name not in Level.__members__:
            raise errors.invalid_level(level)
        return RegistryDecision(Level(name), (records.config_record(subject, name),))

    def unset_level(self, subject: str | None) -> RegistryDecision:
        """The reply is the level that was set."""
        if subject is not None and subject not in self._levels:
            raise errors.no_level(subject)
        return RegistryDecision(self.level(subject), (records.config_record(subject, None),))

    def set_mode(self, subject: str | None, mode: object, *, is_forced: bool = False) -> RegistryDecision:
        if mode not in MODES:
            raise errors.invalid_mode(mode)
        affected = self.subjects() if subject is None else [subject] if subject in self.subjects() else []
        if mode == IMPORT and affected and not is_forced:
            raise errors.not_permitted(
                "Cannot import since found existing subjects; delete them first, or say force=true"
            )
        return RegistryDecision(mode, (records.mode_record(subject, str(mode)),))

    def unset_mode(self, subject: str | None) -> RegistryDecision:
        if subject is not None and subject not in self._modes:
            raise errors.no_mode(subject)
        return RegistryDecision(self.mode(subject), (records.mode_record(subject, None),))

    def _writable(self, subject: str) -> None:
        if self.mode_for(subject) in (READONLY, READONLY_OVERRIDE):
            raise errors.not_permitted(f"Subject '{subject}' is in read-only mode")

    # --- schemas ------------------------------------------------------------------------------------------

    def parsed(self, schema: Schema) -> Parsed:
        found = self._parsed.get(schema)
        if found is None:
            try:
                found = parse(schema.type, schema.text, self.imports(schema))
            except InvalidSchema as error:
                raise errors.invalid_schema(error) from error
            if len(self._parsed) >= PARSED_MAX:
                self._parsed.clear()
            self._parsed[schema] = found
        return found

    def imports(self, schema: Schema) -> Imports:
        """The texts that a schema refers to, each behind those that it refers to itself."""
        found: dict[str, str] = {}
        self._gather(schema.references, found, set())
        return list(found.items())

    def _gather(
        self, references: tuple[Reference, ...], found: dict[str, str], under_way: set[tuple[str, int]]
    ) -> None:
        for name, subject, number in references:
            if name in found:
                continue
            if (subject, number) in under_way or len(found) >= REFERENCED_MAX:
                raise errors.invalid_schema(f"the references of {subject} go round in circles")
            known = self._subjects.get(subject)
            version = None if known is None else known.versions.get(number)
            if number == LATEST and known is not None and known.alive():
                version = known.alive()[-1]
            if version is None:
                raise errors.no_reference(subject, number)
            self._gather(version.schema.references, found, under_way | {(subject, number)})
            found[name] = version.schema.text

    def _is_same(self, one: Schema, other: Schema, canonical: str) -> bool:
        if one == other:
            return True
        if one.type != other.type or one.references != other.references:
            return False
        return self.parsed(one).canonical == canonical

    @staticmethod
    def _proto_text(text: str) -> str:
        try:
            return text_of(text)
        except InvalidSchema as error:
            raise errors.invalid_schema(error) from error

    def check(self) -> None:
        """Invariants: ids are of schemas that are known, and versions are in order."""
        for name, subject in self._subjects.items():
            assert list(subject.versions) == sorted(subject.versions), name
            for version in subject.versions.values():
                assert version.id in self._ids
                assert version.id <= self.id_max

    def state(self) -> Any:
        """All that replay made, for comparing two registries."""
        return self._subjects, self._ids, self._levels, self._modes


def fingerprint(schema: Schema) -> bytes:
    """Schemas that are the same by the letter have the same."""
    digest = hashlib.md5(schema.text.encode(), usedforsecurity=False)
    if schema.type is not SchemaType.AVRO:
        digest.update(b"\0" + schema.type.value.encode())
    for reference in schema.references:
        digest.update(f"\0{reference.name}\0{reference.subject}\0{reference.version}".encode())
    return digest.digest()


def guid(schema: Schema) -> str:
    """The name of a schema that is the same in every registry; it stands in records' headers."""
    text = fingerprint(schema).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
