"""Frames of topics by options, and their rows as plain values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import Row

from harness.registry_broker import RegistryBroker


def load(
    spark: SparkSession,
    registry_broker: RegistryBroker,
    topic: str,
    options: Mapping[str, str],
    schema: str | None = None,
) -> DataFrame:
    reader = (
        spark.read.format("headrace")
        .option("kafka.bootstrap.servers", registry_broker.servers)
        .options(**options)
    )
    return (reader if schema is None else reader.schema(schema)).load(topic)


def save(
    frame: DataFrame, registry_broker: RegistryBroker, topic: str | None, options: Mapping[str, str]
) -> None:
    writer = (
        frame.write.format("headrace")
        .option("kafka.bootstrap.servers", registry_broker.servers)
        .options(**options)
    )
    writer.mode("append").save(topic)


def fields(frame: DataFrame) -> list[dict[str, Any]]:
    """What values are made of, row by row in the order of the log."""
    names = [name for name in frame.columns if not name.startswith("_")]
    instants = {field.name for field in frame.schema if field.dataType.typeName() == "timestamp"}
    rows = [plain(row) for row in frame.collect()]  # Spark would read twice to sort them
    return [
        {name: _instant(row[name]) if name in instants else row[name] for name in names}
        for row in sorted(rows, key=lambda row: row["_offset"])
    ]


def _instant(moment: dt.datetime | None) -> dt.datetime | None:
    """Spark shows instants by the local clock, without saying so."""
    return None if moment is None else moment.astimezone(dt.UTC)


def plain(value: Any) -> Any:
    if isinstance(value, Row):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value
