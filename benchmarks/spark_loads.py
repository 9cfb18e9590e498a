"""T13's load: Spark counts the records of a topic and adds up the bytes of their values.

    python spark_loads.py FORMAT BOOTSTRAP TOPIC COUNT [JARS]

Run by its path, since the Python of Spark's own connector has nothing but PySpark. Reads the topic once to
warm up and once by the clock; prints records per second as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark.sql import SparkSession

RECORD_BYTES = 100


def main() -> None:
    format, bootstrap, topic, count, *jars = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.log.level", "ERROR")
    if jars:
        builder = builder.config("spark.jars", jars[0])
    spark = builder.getOrCreate()
    for _ in range(2):
        # made anew: of a frame that was collected before, Spark would only add up what it has kept
        frame = spark.read.format(format).option("kafka.bootstrap.servers", bootstrap)
        frame = frame.option("subscribe", topic).option("startingOffsets", "earliest").load()
        total = frame.selectExpr("count(*) AS records", "sum(length(value)) AS bytes")
        began = time.monotonic()
        (found,) = total.collect()
        seconds = time.monotonic() - began
    if (found.records, found.bytes) != (int(count), int(count) * RECORD_BYTES):
        raise SystemExit(f"{count} records were written, and {found} was read")
    print(json.dumps({"records_per_s": found.records / seconds}))
    spark.stop()


if __name__ == "__main__":
    main()
