"""Base class of small values with named fields, such as the events and effects of a machine.

It is a dataclass without the cost of defining one: thirty dataclasses take as long to define as the rest of a
node's start-up takes to read its metadata. A class gets its `__init__` when its first instance is made; many
are defined at every start, and few of them are used in it.
"""

from collections.abc import Callable
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform()
class Value:
    """Fields are the annotated names of the class, with defaults last. Equal values have the same type."""

    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._names = tuple(cls.__annotations__)
        setattr(cls, "__match_args__", cls._names)  # noqa: B010  # the checker derives it from the fields

    def __init__(self, *values: Any, **named: Any) -> None:
        cls = type(self)
        generated: Any = _initializer(cls)
        cls.__init__ = generated  # type: ignore[method-assign]
        generated(self, *values, **named)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({fields})"


def _initializer(cls: type[Value]) -> Callable[..., None]:
    """Compiles `__init__` with one argument and one store per field."""
    defaults = {f"_{name}": getattr(cls, name) for name in cls._names if hasattr(cls, name)}
    arguments = ", ".join(f"{name}=_{name}" if f"_{name}" in defaults else name for name in cls._names)
    stores = "".join(f"    self.{name} = {name}\n" for name in cls._names) or "    pass\n"
    source = f"def __init__(self, {arguments}):\n{stores}"
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), defaults)  # nosec B102  # source of our own, from names of fields
    made: Callable[..., None] = defaults["__init__"]
    return made
