"""Uploads, renditions and dead letters become tables, so that the state of each clip is a query."""

from pyspark import pipelines as dp

from headrace.pipelines import parse

REASON = "CAST(filter(_record.headers, h -> h.key = 'headrace.dead_letter.reason')[0].value AS STRING)"


def read(topic, schema):
    records = spark.readStream.format("headrace").option("startingOffsets", "earliest")
    return parse(records.option("includeHeaders", "true").load(topic), schema, headers=True)


@dp.table(format="headrace_lake")
def uploads():
    return read("uploads", "clip STRING").select("clip")


@dp.table(format="headrace_lake")
def renditions():
    return read("rendered", "clip STRING, rendition STRING, file STRING, sha256 STRING").select(
        "clip", "rendition", "file", "sha256"
    )


@dp.table(format="headrace_lake")
def failures():
    return read("jobs_dead", "clip STRING, rendition STRING").selectExpr(
        "clip", "rendition", f"{REASON} AS reason"
    )
