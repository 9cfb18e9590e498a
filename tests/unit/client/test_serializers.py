"""Serializers: what goes in comes out, and what does not fit is refused with a reason."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest

from headrace.client.dataclass_serializer import dataclass_json
from headrace.client.serializers import (
    BYTES,
    JSON,
    TEXT,
    NotSerializable,
    Serializer,
    Undecodable,
    msgspec_json,
    msgspec_messagepack,
    pydantic_json,
    serializer_for,
)


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    article: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


@dataclass
class Order:
    number: int
    lines: list[Line]
    placed: datetime
    due: date | None = None
    colour: Colour = Colour.RED
    raw: bytes = b""
    notes: dict[str, float] = field(default_factory=dict)
    place: tuple[float, float] = (0.0, 0.0)
    path: tuple[int, ...] = ()
    follows: Order | None = None
    anything: Any = None


ORDER = Order(
    7,
    [Line("ü", Decimal("9.90"), {"a"})],
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    date(2026, 2, 3),
    Colour.RED,
    b"\x00\xff",
    {"x": 1.5},
    (1.0, 2.0),
    (1, 2, 3),
    Order(6, [], datetime(2026, 1, 1, tzinfo=UTC)),
    {"free": [1, None]},
)


class OrderStruct(msgspec.Struct):
    number: int
    name: str


class OrderModel(pydantic.BaseModel):
    number: int
    name: str


class TestPlain:
    def test_text_and_bytes_and_json(self) -> None:
        assert TEXT.from_bytes(TEXT.to_bytes("grün")) == "grün"
        assert BYTES.from_bytes(BYTES.to_bytes(b"\xff")) == b"\xff"
        assert JSON.to_bytes({"ü": [1, None]}) == '{"ü":[1,null]}'.encode()
        assert JSON.from_bytes(b'{"a": 1.5}') == {"a": 1.5}

    def test_null_stays_null(self) -> None:
        for serializer in (TEXT, BYTES, JSON, dataclass_json(Order)):
            assert serializer.to_bytes(None) is None
            assert serializer.from_bytes(None) is None

    @pytest.mark.parametrize(
        ("serializer", "value"),
        [(TEXT, b"bytes"), (BYTES, "text"), (BYTES, 5), (JSON, object()), (JSON, float("nan"))],
    )
    def test_a_value_that_does_not_fit_is_refused(self, serializer: Serializer[Any], value: Any) -> None:
        with pytest.raises(NotSerializable):
            serializer.to_bytes(value)

    @pytest.mark.parametrize(("serializer", "data"), [(TEXT, b"\xff"), (JSON, b"{"), (JSON, b"\xff")])
    def test_bytes_of_somebody_else_are_told_and_kept(self, serializer: Serializer[Any], data: bytes) -> None:
        with pytest.raises(Undecodable) as told:
            serializer.from_bytes(data)
        assert told.value.data == data

    def test_two_functions_are_enough(self) -> None:
        number = Serializer(serialize=lambda value: b"%d" % value, deserialize=int)
        assert number.from_bytes(number.to_bytes(5)) == 5
        with pytest.raises(NotSerializable):
            number.to_bytes("five")  # type: ignore[arg-type]


class TestDataclasses:
    def test_all_that_is_understood_comes_back(self) -> None:
        orders = dataclass_json(Order)
        assert orders.from_bytes(orders.to_bytes(ORDER)) == ORDER

    def test_fields_of_a_newer_writer_are_passed_over_and_missing_ones_have_defaults(self) -> None:
        lines = dataclass_json(Line)
        assert lines.from_bytes(b'{"article": "a", "price": "1", "weight": 3}') == Line("a", Decimal(1))

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b'{"article": 5, "price": "1"}', "Line.article"),
            (b'{"price": "1"}', "article"),
            (b'{"article": "a", "price": "1", "tags": "abc"}', "Line.tags"),
            (b"[1]", "Line"),
            (b"nonsense", "Expecting"),
        ],
    )
    def test_what_does_not_fit_names_the_field(self, data: bytes, reason: str) -> None:
        with pytest.raises(Undecodable, match=reason):
            dataclass_json(Line).from_bytes(data)

    def test_a_bool_is_no_number(self) -> None:
        document = json.loads(dataclass_json(Order).serialize(ORDER))
        document["number"] = True
        with pytest.raises(Undecodable, match=r"Order\.number"):
            dataclass_json(Order).from_bytes(json.dumps(document).encode())

    def test_another_class_is_refused(self) -> None:
        with pytest.raises(NotSerializable, match="Line is not Order"):
            dataclass_json(Order).to_bytes(Line("a", Decimal(1)))  # type: ignore[arg-type]

    def test_a_type_without_a_form_is_told_when_the_serializer_is_made(self) -> None:
        @dataclass
        class Odd:
            value: complex

        with pytest.raises(TypeError, match="complex"):
            dataclass_json(Odd)


class TestModels:
    def test_msgspec(self) -> None:
        order = OrderStruct(1, "a")
        for serializer in (msgspec_json(OrderStruct), msgspec_messagepack(OrderStruct)):
            assert serializer.from_bytes(serializer.to_bytes(order)) == order
        with pytest.raises(Undecodable, match="int"):
            msgspec_json(OrderStruct).from_bytes(b'{"number": "x", "name": "a"}')

    def test_pydantic(self) -> None:
        serializer = pydantic_json(OrderModel)
        assert serializer.from_bytes(serializer.to_bytes(OrderModel(number=1, name="a"))) == OrderModel(
            number=1, name="a"
        )
        with pytest.raises(Undecodable, match="number"):
            serializer.from_bytes(b'{"number": "x", "name": "a"}')


class TestChoice:
    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (str, "a"),
            (bytes, b"a"),
            (dict, {"a": 1}),
            (list, [1]),
            (Order, ORDER),
            (OrderStruct, OrderStruct(1, "a")),
            (OrderModel, OrderModel(number=1, name="a")),
        ],
    )
    def test_a_type_says_how_it_is_written(self, kind: Any, value: Any) -> None:
        serializer = serializer_for(kind)
        assert serializer.from_bytes(serializer.to_bytes(value)) == value

    def test_others_are_refused(self) -> None:
        with pytest.raises(TypeError, match="Serializer"):
            serializer_for(complex)
