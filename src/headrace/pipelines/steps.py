"""Steps of pipelines: parse, deduplicate, sessionize and enrich. Each takes a DataFrame and returns one.

They look at no schema and no data, so they work where `spark-pipelines` evaluates a file.
"""

from __future__ import annotations

from typing import Any

from headrace.pipelines.expectations import CORRUPT, HEADERS_TYPE, RECORD, literal


def parse(frame: Any, schema: str, *, headers: bool = False) -> Any:
    """Parse the JSON values of records as `format("headrace")` reads them without a `valueFormat`.

    The result has the fields of the schema, `_record`, the original record, which `expect_or_dead` needs, and
    `_corrupt_record`, the text of a value that is not JSON or does not fit the schema. The target does not
    get the last two if the flow has an expectation.

    :param schema: the fields, such as "ad string, price double".
    :param headers: whether the source has `includeHeaders`; dead letters then keep the headers.
    """
    with_corrupt = literal(f"{schema}, {CORRUPT} STRING")
    own = "headers" if headers else f"CAST(array() AS {HEADERS_TYPE})"
    record = ", ".join(
        f"{literal(name)}, {name}" for name in ("topic", "partition", "offset", "timestamp", "key", "value")
    )
    return frame.selectExpr(
        f"named_struct({record}, 'headers', {own}) AS {RECORD}",
        f"from_json(CAST(value AS STRING), {with_corrupt}) AS _parsed",
    ).selectExpr("_parsed.*", RECORD)


def deduplicate(frame: Any, *columns: str, time: str, within: str) -> Any:
    """Leave out rows with the same values in these columns, up to so long after the first one.

    :param time: the column of the event time.
    :param within: how late a copy may come, such as "10 minutes"; Spark keeps the values for so long.
    """
    if not columns:
        raise ValueError("deduplicate() needs at least one column")
    return frame.withWatermark(time, within).dropDuplicatesWithinWatermark(list(columns))


def sessionize(frame: Any, key: str, *, time: str, gap: str, late: str = "0 seconds") -> Any:
    """Join events of one key to sessions: a session ends when no event comes for `gap`.

    The result has the key, `session_start`, `session_end` and `events`, the number of events.

    :param late: how late events may come; a session is final after that.
    """
    from pyspark.sql import functions

    windows = frame.withWatermark(time, late).groupBy(
        functions.session_window(time, gap).alias("_session"), key
    )
    return windows.count().selectExpr(
        key, "_session.start AS session_start", "_session.end AS session_end", "count AS events"
    )


def enrich(frame: Any, records: Any, schema: str, *, on: str, how: str = "left") -> Any:
    """Add the columns of the latest value for a key of a compacted topic.

    Each micro-batch reads the topic again, so a batch that Spark repeats after a failure may find newer
    values.

    :param records: a batch read of the topic: `spark.read.format("headrace").load("users")`.
    :param schema: the fields of its JSON values.
    :param on: the column that has the topic's key as text.
    """
    latest = records.selectExpr("CAST(key AS STRING) AS _key", "value", "partition", "offset").groupBy("_key")
    from pyspark.sql import functions

    values = latest.agg(functions.expr("max_by(value, struct(partition, offset)) AS _value"))
    fields = values.where("_value IS NOT NULL").selectExpr(
        "_key", f"from_json(CAST(_value AS STRING), {literal(schema)}) AS _fields"
    )
    found = fields.selectExpr(f"_key AS `{on}`", "_fields.*")
    return frame.join(found, on, how)
