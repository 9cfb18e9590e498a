"""AlterClientQuotas (key 49): limits are set or removed."""

from __future__ import annotations

from headrace.protocol.notation import (
    BOOL,
    FLOAT64,
    INT16,
    INT32,
    STRING,
    Request,
    Response,
    Struct,
    array,
    field,
)


class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+")


class OpData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = field(array(EntryData))
    validate_only: bool = field(BOOL)


class EntryResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    entity: list[EntityData] = field(array(EntityData))


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32)
    entries: list[EntryResult] = field(array(EntryResult))
