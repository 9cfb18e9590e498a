"""Values with named fields: made, compared and matched as dataclasses are."""

from __future__ import annotations

import pytest

from headrace.base.values import Value


class Point(Value):
    x: int
    y: int = 2


class Other(Value):
    x: int
    y: int = 2


def test_fields_by_place_and_by_name() -> None:
    assert Point(1, 3) == Point(1, y=3) == Point(x=1, y=3)
    assert Point(1) == Point(1, 2)
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert repr(Point(1)) == "Point(x=1, y=2)"
    point = Point(1)
    point.x = 5
    assert point.x == 5


def test_wrong_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="x"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="4 were given"):
        Point(1, 2, 3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="z"):
        Point(1, z=3)  # type: ignore[call-arg]


def test_a_value_may_have_no_fields() -> None:
    class Nothing(Value):
        """A fact that says all by its type."""

    assert Nothing() == Nothing()
    assert repr(Nothing()) == "Nothing()"


def test_values_are_matched() -> None:
    match Point(1, 7):
        case Point(x, y):
            assert (x, y) == (1, 7)
        case _:
            raise AssertionError
