"""Topics in and out of Spark without a jar: `format("headrace")`, and a session that is ready for it.

    import headrace.spark

    spark = headrace.spark.session("clicks")
    spark.read.format("headrace").option("kafka.bootstrap.servers", servers).load("clicks").show()

What decides (options, offsets, planning, filters) needs neither Spark nor a broker; `source` shows it to
Spark. pyspark is imported only where it is used.
"""

from headrace.spark.session import session

__all__ = ["session"]
