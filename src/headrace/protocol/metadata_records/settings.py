"""Metadata records about configs and client quotas."""

from __future__ import annotations

from headrace.protocol.notation import BOOL, FLOAT64, INT8, STRING, Data, Struct, array, field


class ConfigRecord(Data, key=4, versions="0", flexible="0+"):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+")


class ClientQuotaRecord(Data, key=14, versions="0", flexible="0+"):
    entity: list[EntityData] = field(array(EntityData))
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)
