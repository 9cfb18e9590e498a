"""A query that copies a topic exactly once, and kills itself, a worker or the broker where it is told to.

Run as a program by test_kill_matrix, again and again until it ends well: `kill_job.py <directory>`, where
`plan.json` says what is to be done. A kill leaves a file behind, so that it happens once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import headrace.spark
from headrace.spark.sink import BATCH_ID, StreamWriter
from headrace.spark.sink_options import SinkOptions, sink_options
from headrace.spark.source import HeadraceSource

POINTS = (
    "before the first produce",
    "between two produces",
    "after the last produce",
    "after a task's commit message",
    "before the commit record",
    "after the commit record",
    "before Spark's commit log",
    "while joining on restart",
)


class Executioner:
    """Knows which kill is due at which point of which batch."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def passes(self, point: str, batch: int) -> None:
        place = Path(self.directory)
        plan = json.loads((place / "plan.json").read_text())
        for number, kill in enumerate(plan["kills"]):
            is_due = kill["point"] == point and (batch >= kill["batch"] or point == POINTS[7])
            if is_due and self._is_first(place / f"killed-{number}"):
                self._kill(kill["victim"], place)

    def _is_first(self, mark: Path) -> bool:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _kill(self, victim: str, place: Path) -> None:
        if victim == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        for pid in (place / f"{victim}.pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


class KillingWriter(StreamWriter):
    def __init__(self, options: SinkOptions, schema: StructType, directory: str, is_restart: bool) -> None:
        super().__init__(options, schema)
        self._executioner = Executioner(directory)
        self._is_restart = is_restart

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty(BATCH_ID) or 0)
        passes = self._executioner.passes

        def watched() -> Iterator[Any]:
            for number, rows in enumerate(iterator):
                if number < 2:
                    passes(POINTS[number], batch_id)
                yield rows
            passes(POINTS[2], batch_id)

        if self._is_restart:
            passes(POINTS[7], batch_id)
        written = super().write(watched())
        passes(POINTS[3], batch_id)
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._executioner.passes(POINTS[4], batchId)
        super().commit(messages, batchId)
        self._executioner.passes(POINTS[5], batchId)
        self._executioner.passes(POINTS[6], batchId)


class KillingSource(HeadraceSource):
    @classmethod
    def name(cls) -> str:
        return "killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        given = dict(self.options)
        directory, is_restart = given.pop("directory"), given.pop("isrestart") == "true"
        options = sink_options(given, is_stream=True, overwrite=False)
        return KillingWriter(options, schema, directory, is_restart)


def main(directory: Path) -> None:
    plan = json.loads((directory / "plan.json").read_text())
    checkpoint = directory / "checkpoint"
    is_restart = (checkpoint / "offsets").exists()
    session = headrace.spark.session(
        "kill-job",
        master="local[2, 4]",
        config={
            "spark.ui.enabled": "false",
            "spark.sql.execution.arrow.maxRecordsPerBatch": 2,
            "spark.sql.shuffle.partitions": 2,
        },
    )
    session.sparkContext.setLogLevel("OFF")
    java = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    (directory / "driver.pids").write_text(f"{java} {os.getpid()}")
    session.dataSource.register(KillingSource)
    rows = (
        session.readStream.format("headrace")
        .option("kafka.bootstrap.servers", plan["servers"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", plan["rows_per_batch"])
        .load(plan["source"])
    )
    query = (
        rows.selectExpr("CAST(value AS string) AS value")
        .writeStream.format("killing")
        .option("kafka.bootstrap.servers", plan["servers"])
        .option("kafka.linger.ms", 0)
        .option("topic", plan["target"])
        .option("checkpointLocation", str(checkpoint))
        .option("directory", str(directory))
        .option("isRestart", str(is_restart).lower())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
