"""Topics in and out of Spark without a jar: `format("headrace")`, and a session that is ready for it.

    import headrace.spark

    spark = headrace.spark.session("clicks")
    spark.read.format("headrace").option("kafka.bootstrap.servers", servers).load("clicks").show()

What decides (options, offsets, planning, filters) needs neither Spark nor a broker; `source` shows it to
Spark. pyspark is imported only where it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.spark.spark_session import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """Loaded when it is first used: workers come by here, and have no need of a session."""
    if name != "session":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headrace.spark.spark_session import session

    return session
