"""From what Arrow hands over to what an encoder takes: functions over Python's values, put together once.

None is "as it is": most columns need nothing, and what is not called costs nothing.
"""

from collections.abc import Callable
from typing import Any

Shape = Callable[[Any], Any] | None


def unless_null(shape: Shape) -> Shape:
    return None if shape is None else lambda value: None if value is None else shape(value)


def each(shape: Shape) -> Shape:
    """Of the items of a list."""
    shape = unless_null(shape)
    return None if shape is None else lambda values: [shape(value) for value in values]


def pairs(shape: Shape) -> Shape:
    """A dict of pairs, which is how Arrow hands over maps; the shape is that of its values."""
    shape = unless_null(shape)
    return dict if shape is None else lambda values: {key: shape(value) for key, value in values}


def fields(shapes: dict[str, Shape]) -> Shape:
    """Of a dict's fields, in place: it was made for us."""
    needed = [(name, shape) for name, shape in shapes.items() if shape is not None]
    if not needed:
        return None

    def shaped(value: dict[str, Any]) -> dict[str, Any]:
        for name, shape in needed:
            if (found := value[name]) is not None:
                value[name] = shape(found)
        return value

    return shaped
