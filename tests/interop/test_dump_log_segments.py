"""Kafka's DumpLogSegments reads what our storage wrote and finds nothing to complain about: all codecs,
idempotent and transactional producers, indexes, snapshots; after a clean stop, kill -9, the loss of the
machine, truncation and recompression.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from harness.batches import ABORT, COMMIT, TRANSACTIONAL, Batch, Row, marker
from harness.log_judge import open_log
from headrace.storage.config import LogConfig
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.recovery import Trust
from interop.java_tools import DUMP_LOG_COMPLAINTS, JavaTools

DIRECTORY = "orders-0"
WALL_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=4_000, index_interval_bytes=200, retention_ms=-1)
PLAIN, IDEMPOTENT, TRANSACTIONS = -1, 7000, 8000


class Writer:
    """Fills a log with some of everything, and knows what it wrote."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_dir(DIRECTORY)
        self.disk.sync_dir("")
        self.wall_ms = WALL_MS
        self.values: list[str] = []
        self.sequences = {IDEMPOTENT: 0, TRANSACTIONS: 0}
        self.log = self.opened("clean", 0)

    def opened(self, trust: Trust, recovery_point: int) -> PartitionLog:
        return open_log(
            self.disk, DIRECTORY, CONFIG, trust, recovery_point=recovery_point, wall_ms=self.wall_ms
        )

    def write(self, batches: int) -> None:
        for number in range(batches):
            producer = (PLAIN, IDEMPOTENT, TRANSACTIONS)[number % 3]
            self.append(codec=number % 5, producer=producer, count=1 + number % 4)
            if producer == TRANSACTIONS:
                self.end_transaction(ABORT if number % 2 else COMMIT)

    def append(self, *, codec: int, producer: int, count: int) -> None:
        self.wall_ms += 13
        rows = []
        for n in range(count):
            value = f"value-{len(self.values):06}"
            rows.append(Row(self.wall_ms + n - 20, b"key", value.encode() * 3))
            self.values.append(value)
        batch = Batch(rows, codec)
        if producer >= 0:
            attributes = TRANSACTIONAL if producer == TRANSACTIONS else 0
            batch = Batch(rows, codec, producer, 0, self.sequences[producer], attributes)
            self.sequences[producer] += count
        self.log.append(batch.sent(), wall_ms=self.wall_ms, leader_epoch=0)

    def end_transaction(self, kind: int) -> None:
        self.log.append(
            marker(TRANSACTIONS, 0, self.wall_ms, kind).sent(),
            wall_ms=self.wall_ms,
            leader_epoch=0,
            from_client=False,
        )

    def flush(self) -> None:
        job = self.log.flush_job()
        if job is not None:
            self.log.complete_flush(job.run(self.disk))

    def stop(self) -> None:
        self.log.close(clean=True)
        self.flush()


def stopped(writer: Writer) -> None:
    writer.stop()


def killed(writer: Writer) -> None:
    writer.disk = writer.disk.crash("killed")
    writer.log = writer.opened("killed", 0)
    writer.write(4)
    writer.stop()


def machine_lost(writer: Writer) -> None:
    writer.flush()
    flushed = writer.log.log_end_offset
    kept = len(writer.values)
    writer.write(9)
    writer.disk = writer.disk.crash("lost", Random(3))
    writer.log = writer.opened("lost", flushed)
    assert writer.log.log_end_offset >= flushed
    del writer.values[kept:]
    writer.log.truncate_to(flushed)
    writer.sequences = {PLAIN: 0, IDEMPOTENT: 0, TRANSACTIONS: 0}
    writer.append(codec=4, producer=PLAIN, count=3)
    writer.stop()


def truncated(writer: Writer) -> None:
    end, kept = writer.log.log_end_offset, len(writer.values)
    writer.append(codec=2, producer=PLAIN, count=4)
    writer.append(codec=0, producer=PLAIN, count=4)
    writer.log.truncate_to(end)
    del writer.values[kept:]
    writer.append(codec=3, producer=PLAIN, count=2)
    writer.stop()


def recompressed(writer: Writer) -> None:
    writer.flush()
    writer.log.configure(replace(CONFIG, sealed_compression_type="zstd"))
    done = 0
    while (job := writer.log.recompress_job()) is not None:
        writer.log.complete_recompression(job.run(writer.disk))
        done += 1
    assert done > 2
    writer.stop()


@pytest.fixture(
    scope="module",
    params=[stopped, killed, machine_lost, truncated, recompressed],
    ids=lambda end: end.__name__,
)
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    writer = Writer()
    writer.write(150)
    request.param(writer)
    root = tmp_path_factory.mktemp(request.param.__name__)
    for path, data in writer.disk.files():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root / DIRECTORY, writer.values


def dump(tools: JavaTools, paths: list[Path], *options: str) -> str:
    assert paths
    outcome = tools("kafka-dump-log", "--files", ",".join(map(str, sorted(paths))), *options)
    assert outcome.code == 0, outcome
    for complaint in DUMP_LOG_COMPLAINTS:
        assert complaint not in outcome.out + outcome.err, outcome.out[outcome.out.find(complaint) :][:800]
    # of a file that does not begin with offset 0 it always says that its first offset does not follow -1
    firsts = {int(path.stem) for path in paths}
    for before, after in re.findall(r"(-?\d+) is followed by (\d+)", outcome.out + outcome.err):
        assert before == "-1", f"{before} is followed by {after}"
        assert int(after) in firsts
    return outcome.out


def test_all_records_in_order(tools: JavaTools, written: tuple[Path, list[str]]) -> None:
    directory, values = written
    logs = list(directory.glob("*.log"))
    assert len(logs) > 3
    out = dump(tools, logs, "--deep-iteration", "--print-data-log")
    assert re.findall(r"payload: (value-\d{6})", out) == values
    assert "endTxnMarker: ABORT" in out
    assert "endTxnMarker: COMMIT" in out


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes(tools: JavaTools, written: tuple[Path, list[str]], suffix: str) -> None:
    indexes = list(written[0].glob(f"*.{suffix}"))
    sane = dump(tools, indexes, "--index-sanity-check")
    assert sane.count("passed sanity check.") == len(indexes)
    dump(tools, indexes, "--verify-index-only")
    entries = re.findall(r"^(?:offset|timestamp): (\d+)", dump(tools, indexes), re.MULTILINE)
    assert len(entries) > 20


def test_snapshots_and_aborted_transactions(tools: JavaTools, written: tuple[Path, list[str]]) -> None:
    snapshots = dump(tools, list(written[0].glob("*.snapshot")))
    assert re.search(rf"producerId: {IDEMPOTENT} producerEpoch: 0 .*lastSequence: \d+", snapshots)
    aborted = dump(tools, list(written[0].glob("*.txnindex")))
    assert re.search(rf"version: 0 producerId: {TRANSACTIONS} firstOffset: \d+ lastOffset: \d+", aborted)
