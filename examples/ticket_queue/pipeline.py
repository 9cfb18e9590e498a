"""Requests and answers become tables. The offset of a request is its place in the queue."""

from pyspark import pipelines as dp

from headrace.pipelines import parse

REQUEST = "fan STRING, show STRING"
TICKET = "fan STRING, show STRING, answer STRING, seat BIGINT, waited_ms BIGINT, answered_at_ms BIGINT"


def read(topic, schema):
    records = spark.readStream.format("headrace").option("startingOffsets", "earliest").load(topic)
    return parse(records, schema)


@dp.table(format="headrace_lake")
def requests():
    return read("requests", REQUEST).selectExpr("fan", "show", "_record.offset")


@dp.table(format="headrace_lake")
def tickets():
    return read("tickets", TICKET).selectExpr(
        "fan", "show", "answer", "seat", "waited_ms", "timestamp_millis(answered_at_ms) AS answered_at"
    )
