"""Every declared message in every version, and values for them: by hypothesis, or random from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from headrace.protocol.api import APIS, message_types
from headrace.protocol.coordinator_records import GROUP_RECORDS, TRANSACTION_RECORDS
from headrace.protocol.messages import consumer_protocol, control_records
from headrace.protocol.metadata_records import RECORD_TYPES
from headrace.protocol.notation import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Message,
    Primitive,
    Struct,
)

DATA_MESSAGES: tuple[type[Message], ...] = (
    consumer_protocol.ConsumerProtocolSubscription,
    consumer_protocol.ConsumerProtocolAssignment,
    control_records.ControlRecordKey,
    control_records.EndTxnMarker,
    control_records.LeaderChangeMessage,
    control_records.SnapshotHeaderRecord,
    control_records.SnapshotFooterRecord,
    control_records.KRaftVersionRecord,
    control_records.VotersRecord,
)


def request_and_response_types() -> Iterator[type[Message]]:
    for api in APIS.values():
        yield from message_types(api)


def coordinator_record_types() -> Iterator[type[Message]]:
    for kinds in (GROUP_RECORDS, TRANSACTION_RECORDS):
        for key, value in kinds.values():
            yield from (key, value)


def every_type() -> list[type[Message]]:
    return [
        *request_and_response_types(),
        *DATA_MESSAGES,
        *RECORD_TYPES.values(),
        *coordinator_record_types(),
    ]


def every_version() -> list[tuple[type[Message], int]]:
    return [
        (kind, version)
        for kind in every_type()
        for version in range(kind.VERSIONS.first, kind.VERSIONS.last + 1)
    ]


def name_of(value: object) -> str:
    """The test id of a message type or a version."""
    return value.__name__ if isinstance(value, type) else f"v{value}"


_PRIMITIVES: dict[Primitive, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT8: st.integers(-(2**7), 2**7 - 1),
    INT16: st.integers(-(2**15), 2**15 - 1),
    UINT16: st.integers(0, 2**16 - 1),
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**63), 2**63 - 1),
    FLOAT64: st.floats(allow_nan=False),
    UUID: st.binary(min_size=16, max_size=16),
    # now and then long enough for a length of two bytes in the compact form
    STRING: st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(("ä" * 70, "x" * 300)),
    BYTES: st.binary(max_size=8) | st.just(b"\0" * 200),
    RECORDS: st.binary(max_size=8) | st.just(b"\1" * 200),
}


def carried(kind: type[Struct], version: int) -> list[Field]:
    return [field for field in kind.__fields__ if version in field.versions]


def messages(kind: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Values of all fields that the version carries."""
    return st.builds(kind, **{field.name: _values(field, version) for field in carried(kind, version)})


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    kind = field.kind
    if isinstance(kind, Array):
        values = st.lists(_of(kind.element, version), max_size=3)
    else:
        values = _of(kind, version)
    if field.tag is not None and not isinstance(kind, (Primitive, Array)) and version not in field.nullable:
        # a tagged struct full of defaults does not travel, and comes back as None
        blank = kind()
        return st.none() | values.filter(lambda value: value != blank)
    return st.none() | values if version in field.nullable else values


def _of(kind: Primitive | type[Struct], version: int) -> st.SearchStrategy[Any]:
    return _PRIMITIVES[kind] if isinstance(kind, Primitive) else messages(kind, version)


def sample(kind: type[Struct], version: int, rng: random.Random) -> Any:
    """One tame value: positive numbers, known error codes, nothing empty. Strict decoders take it too."""
    return kind(**{field.name: _tame(field, version, rng) for field in carried(kind, version)})


def _tame(field: Field, version: int, rng: random.Random) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    kind = field.kind
    if isinstance(kind, Array):
        return [_tame_one(kind.element, field.name, version, rng) for _ in range(rng.randint(1, 2))]
    return _tame_one(kind, field.name, version, rng)


def _tame_one(kind: Primitive | type[Struct], name: str, version: int, rng: random.Random) -> Any:
    if not isinstance(kind, Primitive):
        return sample(kind, version, rng)
    if kind is BOOL:
        return rng.random() < 0.5
    if kind is FLOAT64:
        return rng.randint(1, 1000) / 8
    if kind is STRING:
        return "".join(rng.choices("abcö", k=rng.randint(1, 5)))
    if kind in (BYTES, RECORDS):
        return rng.randbytes(rng.randint(1, 5))
    if kind is UUID:
        return rng.randbytes(15) + b"\1"
    return rng.randint(1, 100)
