"""What a user of Spark's own Kafka connector does: writes a topic, reads it, and copies it with a stream.

    python stock_spark_job.py BOOTSTRAP JARS DIRECTORY

Run by its path in the virtual environment of that Spark; prints what it counted as JSON.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

COUNT = 1_000
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    # nothing runs long enough here to be worth more than a first compilation
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


def main() -> None:
    bootstrap, jars, directory = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = SparkSession.builder.master("local[2]").config(map={"spark.jars": jars, **SETTINGS}).getOrCreate()
    kafka = {"kafka.bootstrap.servers": bootstrap}

    rows = spark.range(COUNT).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    rows.write.format("kafka").options(**kafka).option("topic", "written").save()

    read = spark.read.format("kafka").options(**kafka).option("subscribe", "written").load()
    found = read.selectExpr("count(*) AS records", "count(DISTINCT value) AS values").first()

    stream = spark.readStream.format("kafka").options(**kafka).option("subscribe", "written")
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 300).load()
    query = stream.select("key", "value").writeStream.format("kafka").options(**kafka)
    query = query.option("topic", "copied").option("checkpointLocation", f"{directory}/checkpoint")
    copying = query.trigger(availableNow=True).start()
    copying.awaitTermination()
    copied = spark.read.format("kafka").options(**kafka).option("subscribe", "copied").load()
    committed = spark.read.format("kafka").options(**kafka).option("subscribe", "transactional")
    committed = committed.option("kafka.isolation.level", "read_committed").load()

    told = {
        "records": found.records,
        "values": found["values"],
        "batches": len([one for one in copying.recentProgress if one.numInputRows]),
        "copied": copied.select("value").distinct().count(),
        "committed": sorted(row.value.decode() for row in committed.collect()),
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main()
