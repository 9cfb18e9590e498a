"""The notation in which Kafka's messages are declared.

A message is a class whose body names its fields in wire order; each field says its type and the versions
that carry it. One class holds the fields of all versions. The declaration is all there is: the compiler
turns it into one flat encode and one flat decode function per version; `__init__` is generated when a class
is first instantiated.

    class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
        group_id: str = field(STRING)
        group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)

Values are plain and mutable: uuid is 16 bytes, `records` is a buffer that nobody opened. A tagged struct is
None when it does not travel (all its fields have their defaults), so that the usual response allocates
nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, dataclass_transform

ZERO_UUID = bytes(16)
NO_VERSION = 1 << 15  # above every int16 version


class Versions(NamedTuple):
    """An inclusive range of versions; empty when first > last."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NEVER = Versions(NO_VERSION, -1)


def version_range(text: str) -> Versions:
    """Reads "3", "3-7", "3+" or "none"."""
    if text == "none":
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), NO_VERSION)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class Primitive(NamedTuple):
    """A type without fields; `code` is the struct letter of a fixed-width one."""

    name: str
    code: str
    width: int
    default: object


BOOL = Primitive("bool", "?", 1, False)
INT8 = Primitive("int8", "b", 1, 0)
INT16 = Primitive("int16", "h", 2, 0)
UINT16 = Primitive("uint16", "H", 2, 0)
INT32 = Primitive("int32", "i", 4, 0)
INT64 = Primitive("int64", "q", 8, 0)
FLOAT64 = Primitive("float64", "d", 8, 0.0)
UUID = Primitive("uuid", "16s", 16, ZERO_UUID)
STRING = Primitive("string", "", 0, "")
BYTES = Primitive("bytes", "", 0, b"")
RECORDS = Primitive("records", "", 0, None)


class Array(NamedTuple):
    """A list of one element type."""

    element: Primitive | type[Struct]


def array(element: Primitive | type[Struct]) -> Array:
    return Array(element)


class _Absent:
    """The value of an argument that was not given."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()


class Field:
    """One declared field; `name` is filled in by the class that holds it."""

    __slots__ = ("default", "ignorable", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        kind: Primitive | Array | type[Struct],
        versions: Versions,
        nullable: Versions,
        default: Any,
        ignorable: bool,
        tag: int | None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = versions
        self.nullable = nullable
        self.ignorable = ignorable
        self.tag = tag
        self.default = natural_default(kind, is_tagged=tag is not None) if default is ABSENT else default

    def stands_in(self, version: int) -> bool:
        """Whether the field has a place of its own in this version, outside of the tag buffer."""
        return self.tag is None and version in self.versions

    def is_tagged_in(self, version: int) -> bool:
        return self.tag is not None and version in self.versions

    @property
    def is_tagged_null_struct(self) -> bool:
        """A tagged struct that may be null travels as a null, while the blank struct is left out; its mark of
        presence is 0 or 1, where outside of the tag buffer it is -1 or 1.
        """
        return self.tag is not None and self.nullable != NEVER and isinstance(self.kind, Declaration)

    @property
    def default_factory(self) -> Callable[[], Any] | None:
        """What makes the default where each message needs its own: lists and structs."""
        if self.default is list:
            return list
        return self.default if isinstance(self.default, Declaration) else None

    def make_default(self) -> Any:
        factory = self.default_factory
        return self.default if factory is None else factory()


def natural_default(kind: Primitive | Array | type[Struct], *, is_tagged: bool) -> Any:
    if isinstance(kind, Primitive):
        return kind.default
    if isinstance(kind, Array):
        return list
    return None if is_tagged else kind


def field(
    kind: Primitive | Array | type[Struct],
    carried: str = "0+",
    *,
    nullable: str = "none",
    default: Any = ABSENT,
    ignorable: bool = False,
    tag: int | None = None,
) -> Any:
    """Declares a field: its type, the versions that carry it, and how it may be left out.

    With a tag it travels in the tag buffer, and only if it is not its default.
    """
    return Field(kind, version_range(carried), version_range(nullable), default, ignorable, tag)


@dataclass_transform(kw_only_default=True)
class Declaration(type):
    """Turns a class body of fields into slots, and keeps the fields in `__fields__`."""

    __fields__: tuple[Field, ...]

    def __new__(
        meta,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        **facts: Any,
    ) -> Declaration:
        declared = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key, value in declared.items():
            value.name = key
            del namespace[key]
        namespace["__slots__"] = tuple(declared)
        cls = super().__new__(meta, name, bases, namespace, **facts)
        cls.__fields__ = tuple(declared.values())
        return cls


class Struct(metaclass=Declaration):
    """A value with declared fields, made with keywords; what is not given has its default."""

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        generated: Any = _initializer(cls)
        cls.__init__ = generated  # type: ignore[method-assign]
        generated(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in type(self).__fields__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        told = (
            f"{field.name}={value!r}"
            for field in type(self).__fields__
            if (value := getattr(self, field.name)) != field.make_default()
        )
        return f"{type(self).__name__}({', '.join(told)})"


class Message(Struct):
    """A struct that stands alone: it knows its versions, and the first flexible one."""

    KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[Versions] = NEVER
    FLEXIBLE: ClassVar[Versions] = NEVER

    def __init_subclass__(cls, *, key: int = -1, versions: str = "none", flexible: str = "none") -> None:
        cls.KEY = key
        cls.VERSIONS = version_range(versions)
        cls.FLEXIBLE = version_range(flexible)


class Request(Message):
    """What a client sends; KEY is its API key."""


class Response(Message):
    """What answers the request of the same KEY."""


class Data(Message):
    """A message outside the request protocol: in a record's key or value, or inside a bytes field."""


def _initializer(cls: type[Struct]) -> Callable[..., None]:
    """Compiles `__init__` with one keyword and one store per field."""
    scope: dict[str, Any] = {"ABSENT": ABSENT}
    arguments: list[str] = []
    stores: list[str] = []
    for number, declared in enumerate(cls.__fields__):
        name = declared.name
        factory = declared.default_factory
        if factory is None:
            scope[f"d{number}"] = declared.default
            arguments.append(f"{name}=d{number}")
            stores.append(f"    self.{name} = {name}")
        else:
            scope[f"f{number}"] = factory
            fresh = "[]" if factory is list else f"f{number}()"
            arguments.append(f"{name}=ABSENT")
            stores.append(f"    self.{name} = {fresh} if {name} is ABSENT else {name}")
    star = ", *, " if arguments else ""
    source = f"def __init__(self{star}{', '.join(arguments)}):\n" + ("\n".join(stores) or "    pass") + "\n"
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), scope)  # nosec B102  # source of our own
    made: Callable[..., None] = scope["__init__"]
    return made
