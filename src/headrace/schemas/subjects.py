"""Subjects: their names by Confluent's three strategies, and how a serializer's schema gets its version."""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.schema_formats import formats
from headrace.schema_formats.schema import Schema
from headrace.schemas.errors import SchemaError
from headrace.schemas.registry import Registered, Registry

# topic, part ("key" or "value") and the record's full name, in that order
SubjectNaming = Callable[[str, str, str | None], str]


def by_topic(topic: str, part: str, record: str | None) -> str:
    """One type of record per topic: clicks-value."""
    return f"{topic}-{part}"


def by_record(topic: str, part: str, record: str | None) -> str:
    """One subject per type of record, for all topics: shop.Click."""
    return _named(record)


def by_topic_and_record(topic: str, part: str, record: str | None) -> str:
    """One subject per topic and type of record: clicks-shop.Click."""
    return f"{topic}-{_named(record)}"


def _named(record: str | None) -> str:
    if record is None:
        raise SchemaError("this naming strategy needs the name of the record, and the schema has none")
    return record


@dataclass(slots=True, frozen=True)
class Registration:
    """Where a serializer's schema is registered, or found."""

    topic: str | None = None
    part: str = "value"
    subject: str | None = None  # by its name, whatever the strategy
    naming: SubjectNaming = by_topic
    auto_register: bool = True  # False: the schema must be registered already
    use_latest: bool = False  # write with the newest version, whatever schema was given

    def resolve(self, registry: Registry, schema: Schema | None) -> Registered:
        """The version to write with."""
        subject = self._subject(registry, schema)
        if self.use_latest:
            return registry.latest(subject)
        if schema is None:
            raise SchemaError("the serializer needs a schema, or use_latest=True")
        if self.auto_register:
            return registry.register_version(subject, schema)
        return registry.find(subject, schema)._replace(schema=schema)

    def _subject(self, registry: Registry, schema: Schema | None) -> str:
        if self.subject is not None:
            return self.subject
        if self.naming is by_topic:
            if self.topic is None:
                raise SchemaError("the serializer needs a topic or a subject")
            return by_topic(self.topic, self.part, None)
        name = None
        if schema is not None:
            name = formats.parse(schema.type, schema.text, registry.imports(schema)).name
        return self.naming(self.topic or "", self.part, name)
