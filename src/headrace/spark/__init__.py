"""Spark support: the data source and sink `format("headrace")`, and a session in which they work.

    import headrace.spark

    spark = headrace.spark.session("clicks")
    spark.read.format("headrace").option("kafka.bootstrap.servers", servers).load("clicks").show()

A micro-batch passes `source` → `planning` → `reading` → `decoding`, then `sink` → `rows`. Options, ranges,
loss, filters and formats need neither Spark nor a broker. pyspark is imported only where it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.spark.spark_session import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """Load `session` on first use: workers import this package and need no session."""
    if name != "session":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headrace.spark.spark_session import session

    return session
