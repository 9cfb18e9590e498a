"""Reads tables with Spark 4.0.0 and the formats' own JVM readers, and writes the rows as plain Parquet files.

    python lake_reader_job.py JARS TABLES

TABLES is JSON: [format, directory of the table, directory to write] of each. Run by test_lake_readers.py with
the interpreter that has Spark 4.0.0.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession

CATALOG = "spark.sql.catalog.headrace"


def main(jars: str, tables: str) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.ui.showConsoleProgress", "false")
        .config(
            "spark.sql.extensions",
            "io.delta.sql.DeltaSparkSessionExtension,"
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    for format, path, output in json.loads(tables):
        frame = iceberg(spark, path) if format == "iceberg" else spark.read.format("delta").load(path)
        frame.coalesce(1).write.parquet(output)
    spark.stop()


def iceberg(spark: SparkSession, path: str) -> DataFrame:
    """The table of a catalog in SQLite. All have one name, so each needs a session of its own."""
    session = spark.newSession()
    session.conf.set(CATALOG, "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set(f"{CATALOG}.type", "jdbc")
    session.conf.set(f"{CATALOG}.uri", f"jdbc:sqlite:{path}/catalog.db")
    session.conf.set(f"{CATALOG}.warehouse", path)
    name = path.rpartition("/")[2]
    return session.table(f"headrace.lake.`{name}`")


if __name__ == "__main__":
    main(*sys.argv[1:])
