"""Where the schema of a serializer is registered, and by which rule it is found there."""

from dataclasses import dataclass

from headrace.machines.schemas import formats
from headrace.machines.schemas.schema import Schema
from headrace.schemas.errors import SchemaError
from headrace.schemas.registry import Registered, Registry
from headrace.schemas.subjects import SubjectNaming, by_topic


@dataclass(slots=True, frozen=True)
class Place:
    topic: str | None = None
    part: str = "value"
    subject: str | None = None  # by its name, whatever the strategy
    naming: SubjectNaming = by_topic
    auto_register: bool = True  # False: the schema must be registered already
    use_latest: bool = False  # write with the newest version, whatever schema was given

    def registered(self, registry: Registry, schema: Schema | None) -> Registered:
        """The version to write with."""
        subject = self._subject(registry, schema)
        if self.use_latest:
            return registry.latest(subject)
        if schema is None:
            raise SchemaError("give a schema, or use_latest=True")
        if self.auto_register:
            return registry.registered(subject, schema)
        return registry.find(subject, schema)._replace(schema=schema)

    def _subject(self, registry: Registry, schema: Schema | None) -> str:
        if self.subject is not None:
            return self.subject
        if self.naming is by_topic:
            if self.topic is None:
                raise SchemaError("say for which topic or subject the serializer is")
            return by_topic(self.topic, self.part, None)
        name = None
        if schema is not None:
            name = formats.parse(schema.type, schema.text, registry.imports(schema)).name
        return self.naming(self.topic or "", self.part, name)
