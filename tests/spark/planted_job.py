"""Shows all that Spark shows of queries: `planted_job.py OPTIONS PLACE` runs them and prints plans, progress,
errors, and the JSON and pages of Spark's own server. Logs are on stderr, the event log is in PLACE.

OPTIONS is a file with JSON: options of a login that works, of another one, and of one that fails.
"""

from __future__ import annotations

import json
import sys
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import headrace.spark
from harness.spark_queries import await_end

SOURCE, TARGET, SINK = "planted-in", "planted-out", "planted-sink"
PAGES = ("SQL/", "StreamingQuery/", "environment/", "jobs/", "stages/", "executors/")
DOCUMENTS = (
    "sql?details=true&planDescription=true&length=100",
    "environment",
    "jobs",
    "stages",
    "allexecutors",
)

LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
logger.spark.name = org.apache.spark
logger.spark.level = info
"""


def tell(what: str, text: str) -> None:
    """The test looks for each of these."""
    assert text, f"{what}: nothing is shown, so nothing is tested"
    print(f"=== {what}\n{text}", flush=True)


def tell_failure(what: str, query: Callable[[], object]) -> None:
    try:
        query()
    except Exception as error:
        tell(what, "".join(traceback.format_exception(error)) + repr(error) + str(error))
    else:
        raise AssertionError(f"{what}: no error")


def explain(what: str, frame: DataFrame) -> None:
    java: Any = frame._jdf
    execution = java.queryExecution()
    tell(what, f"{frame!r} {execution} {execution.analyzed().toJSON()}")
    for mode in ("simple", "extended", "cost", "formatted", "codegen"):
        frame.explain(mode=mode)


def main() -> None:
    options, place = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    events = place / "events"
    events.mkdir()
    logging = place / "log4j2.properties"
    logging.write_text(LOGGING)
    spark = headrace.spark.session(
        "planted",
        master="local[1]",
        config={
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.sql.shuffle.partitions": 1,
            "spark.sql.debug.maxToStringFields": 1000,
        },
    )
    works, other, fails = options["works"], options["other"], options["fails"]

    frame = spark.read.format("headrace").options(**works).load(SOURCE)
    explain("batch", frame)
    rows = frame.selectExpr("number")
    assert rows.count() == 3
    sink = {"topic": TARGET, "txnAppId": SINK, "deliveryGuarantee": "exactly-once"}
    written = frame.selectExpr("struct(number) as value").write.format("headrace")
    written.options(**works, **sink, txnVersion="1").mode("append").save()

    stream = spark.readStream.format("headrace").options(**other, startingOffsets="earliest").load(SOURCE)
    query = (
        stream.select("value")
        .writeStream.format("headrace")
        .queryName("planted")
        .options(**{**works, "valueFormat": "binary"}, **sink | {"txnAppId": f"{SINK}-stream"})
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    await_end(query)
    query.explain(extended=True)
    tell("progress", json.dumps([json.loads(one.json) for one in query.recentProgress]))
    tell("status", f"{query.status} {query!r}")

    reading = spark.read.format("headrace").options(**{**fails, "valueFormat": "binary"})
    tell_failure("failed read", reading.load(SOURCE).collect)
    writing = spark.range(1).selectExpr("'v' as value").write.format("headrace")
    writing = writing.options(**{**fails, "valueFormat": "binary"}, topic=TARGET).mode("append")
    tell_failure("failed write", writing.save)
    unknown = spark.read.format("headrace").options(
        **works, **{"kafka.sasl.pasword": works["kafka.sasl.password"]}
    )
    tell_failure("wrong option", lambda: unknown.load(SOURCE).collect())
    without_registry = {**works, "schema.registry.password": fails["schema.registry.password"]}
    tell_failure(
        "failed registry",
        lambda: spark.read.format("headrace").options(**without_registry).load(SOURCE).count(),
    )

    web = spark.sparkContext.uiWebUrl
    assert web is not None
    base = web.replace(web.split("://")[1].rpartition(":")[0], "127.0.0.1")
    api = f"{base}/api/v1/applications/{spark.sparkContext.applicationId}"
    for name in PAGES:
        tell(f"page {name}", fetched(f"{base}/{name}"))
    for name in DOCUMENTS:
        found = fetched(f"{api}/{name}")
        assert len(json.loads(found)) > 0, name
        tell(f"document {name}", found)
    for execution in json.loads(fetched(f"{api}/sql?length=100")):
        number = execution["id"]
        tell(f"page of execution {number}", fetched(f"{base}/SQL/execution/?id={number}"))
    spark.stop()
    tell("event log", "".join(path.read_text() for path in events.rglob("*") if path.is_file()))
    tell(
        "checkpoint",
        "".join(path.read_text() for path in (place / "checkpoint").rglob("[0-9m]*") if path.is_file()),
    )


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


if __name__ == "__main__":
    main()
