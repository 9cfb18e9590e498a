"""A stand-in for pyspark: what `headrace.spark` imports of it, for tests that need no Spark and no JVM.

Schemas are Arrow's, and columns are binary, strings or numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pyarrow as pa

_OURS = ("headrace.spark.source", "headrace.spark.sink", "headrace.spark.rows")  # import pyspark


class DataSource:
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options


class DataSourceReader:
    def pushFilters(self, filters: list[Any]) -> list[Any]:
        return filters


class InputPartition:
    def __init__(self, value: Any) -> None:
        self.value = value


class TaskContext:
    """Of the first task of a query's first micro-batch."""

    properties = {"streaming.sql.batchId": "0", "sql.streaming.queryId": "query", "spark.jobGroup.id": "run"}

    @classmethod
    def get(cls) -> TaskContext:
        return cls()

    def partitionId(self) -> int:
        return 0

    def taskAttemptId(self) -> int:
        return 0

    def getLocalProperty(self, name: str) -> str:
        return self.properties[name]


def _class(name: str) -> type:
    return type(name, (), {})


_KINDS = {
    name: _class(name)
    for name in (
        *("ArrayType", "BinaryType", "DataType", "IntegerType", "LongType", "MapType", "ShortType"),
        *("StringType", "TimestampNTZType", "TimestampType"),
    )
}
ReadAllAvailable = _class("ReadAllAvailable")


class StructField:
    def __init__(self, field: pa.Field) -> None:
        self.arrow = field
        self.name = field.name
        kinds = {pa.binary(): "BinaryType", pa.string(): "StringType"}
        self.dataType = _KINDS[kinds.get(field.type, "LongType")]()


class StructType:
    def __init__(self, fields: pa.Schema | list[StructField]) -> None:
        self.fields = [each if isinstance(each, StructField) else StructField(each) for each in fields]

    def fieldNames(self) -> list[str]:
        return [field.name for field in self.fields]


def _to_arrow_schema(schema: StructType, timezone: str) -> pa.Schema:
    return pa.schema([field.arrow for field in schema.fields])


_MODULES: dict[str, dict[str, Any]] = {
    "pyspark": {"TaskContext": TaskContext},
    "pyspark.sql": {},
    "pyspark.sql.datasource": {
        "DataSource": DataSource,
        "DataSourceReader": DataSourceReader,
        "InputPartition": InputPartition,
        **{
            name: _class(name)
            for name in (
                *("DataSourceStreamReader", "DataSourceArrowWriter", "DataSourceStreamArrowWriter"),
                "WriterCommitMessage",
            )
        },
    },
    "pyspark.sql.pandas": {},
    "pyspark.sql.pandas.types": {"from_arrow_schema": StructType, "to_arrow_schema": _to_arrow_schema},
    "pyspark.sql.streaming": {},
    "pyspark.sql.streaming.datasource": {
        "ReadAllAvailable": ReadAllAvailable,
        **{
            name: _class(name)
            for name in (
                *("ReadLimit", "ReadMaxBytes", "ReadMaxRows", "ReadMinRows", "SupportsTriggerAvailableNow"),
            )
        },
    },
    "pyspark.sql.types": {"StructField": StructField, "StructType": StructType, **_KINDS},
}


@contextmanager
def pyspark_stand_in() -> Iterator[None]:
    """In the block `headrace.spark` sees this pyspark; afterwards it is imported again."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_replaced(name)}
    for name, contents in _MODULES.items():
        sys.modules[name] = module = ModuleType(name)
        vars(module).update(contents)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _is_replaced(name)]:
            del sys.modules[name]
        sys.modules.update(kept)


def _is_replaced(name: str) -> bool:
    return name in _OURS or name == "pyspark" or name.startswith("pyspark.")
