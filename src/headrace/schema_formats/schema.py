"""A schema in a registry: its type, its text, and its references to other schemas."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class SchemaType(StrEnum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Reference(NamedTuple):
    """Another schema that this one needs: how it is called inside, and which version of which subject it
    is.
    """

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[Reference, ...] = ()


# Schemas that another one refers to, by the name that it uses; each after those that it needs itself.
Imports = Sequence[tuple[str, str]]


class InvalidSchema(ValueError):
    """The text is not a schema of its kind; the message says where and why."""


class TooComplex(InvalidSchema):
    """Comparing two schemas would take too long for a broker that has other clients."""


class Parsed(Protocol):
    """What every kind of schema can be asked."""

    @property
    def name(self) -> str | None:
        """Of the record, as `record` subject names use it; None: it has none."""
        ...

    @property
    def canonical(self) -> str:
        """The same text for the same schema, however it was laid out."""
        ...


# Pairs of types compared for one question. A schema of a thousand fields asks for a few thousand; unions of
# unions can ask for any number, and take some 160 µs for each (3.2 s for all of these, on a busy host).
COMPARISONS_MAX = 20_000


class Budget:
    """Counts what a comparison costs."""

    __slots__ = ("_left",)

    def __init__(self, left: int = COMPARISONS_MAX) -> None:
        self._left = left

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooComplex("the schemas are too complex to compare")
