"""Metadata records about the log itself: feature levels, transactions of records, and empty records."""

from __future__ import annotations

from headrace.protocol.notation import INT8, INT16, STRING, Data, field


class FeatureLevelRecord(Data, key=12, versions="0", flexible="0+"):
    name: str = field(STRING)
    feature_level: int = field(INT16)


class NoOpRecord(Data, key=20, versions="0", flexible="0+"):
    """No fields: the record only moves the log forward."""


class BeginTransactionRecord(Data, key=23, versions="0", flexible="0+"):
    name: str | None = field(STRING, nullable="0+", default=None, tag=0)


class EndTransactionRecord(Data, key=24, versions="0", flexible="0+"):
    """No fields: the records since the last BeginTransactionRecord take effect together."""


class AbortTransactionRecord(Data, key=25, versions="0", flexible="0+"):
    reason: str | None = field(STRING, nullable="0+", default=None, tag=0)


class ZkMigrationStateRecord(Data, key=21, versions="0", flexible="0+"):
    zk_migration_state: int = field(INT8)
