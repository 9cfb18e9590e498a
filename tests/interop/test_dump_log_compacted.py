"""Kafka's DumpLogSegments over compacted logs: batches with gaps, without records, with a delete horizon, in
all codecs; indexes, snapshots and transaction indexes beside them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.batches import ABORT, COMMIT, TRANSACTIONAL, Batch, Row, marker
from harness.compaction import clean, rows
from harness.log_judge import WALL_MS, open_log
from headrace.storage.config import LogConfig
from headrace.storage.memory_disk import MemoryDisk
from interop.java_tools import DUMP_LOG_COMPLAINTS, JavaTools

DIRECTORY = "orders-0"
CONFIG = LogConfig(
    segment_bytes=6_000,
    index_interval_bytes=200,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
)
PRODUCER, ONCE = 9000, 9001

Found = tuple[Path, list[tuple[int, str]]]  # where the files are; offset and payload of every record


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Found:
    disk = MemoryDisk()
    disk.make_dir(DIRECTORY)
    log = open_log(disk, DIRECTORY, CONFIG, "clean")
    wall_ms, sequence = WALL_MS, 0
    for number in range(270):
        wall_ms += 7
        keys = [b"key-%d" % (number % 17), b"other-%d" % (number % 29), b"wide-%d" % number]
        values = [f"value-{number}-{n}".encode() * 3 for n in range(3)]
        if number % 4 == 3:
            values[0] = None  # type: ignore[call-overload]
        batch = Batch([Row(wall_ms + n, *pair) for n, pair in enumerate(zip(keys, values))], number % 5)
        if number % 6 == 5:
            batch = Batch(batch.rows[:2], number % 5, PRODUCER, 0, sequence, TRANSACTIONAL)
            sequence += 2
        elif number == 10:
            batch = Batch(batch.rows[:2], 0, ONCE, 3, 0)
        log.append(batch.sent(), wall_ms=wall_ms, leader_epoch=0)
        if batch.producer_id == PRODUCER:
            kind = ABORT if number % 4 == 1 else COMMIT
            end = marker(PRODUCER, 0, wall_ms, kind).sent()
            log.append(end, wall_ms=wall_ms, leader_epoch=0, from_client=False)
        if number % 60 == 59:
            log.roll(wall_ms)
            job = log.flush_job()
            assert job is not None
            log.complete_flush(job.run(disk))
            log.configure(replace(CONFIG, segment_bytes=6_000 + 20 * number))
            assert clean(log, disk, wall_ms)
            wall_ms += 400
    left = rows(log)
    assert len(left) < 600
    log.close(clean=True)
    job = log.flush_job()
    assert job is not None
    job.run(disk)
    root = tmp_path_factory.mktemp("compacted")
    for path, data in disk.files():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root / DIRECTORY, [(row.offset, (row.value or b"").decode()) for row in left]


def dump(tools: JavaTools, paths: list[Path], *options: str) -> str:
    assert paths
    outcome = tools("kafka-dump-log", "--files", ",".join(map(str, sorted(paths))), *options)
    assert outcome.code == 0, outcome
    for complaint in DUMP_LOG_COMPLAINTS:
        assert complaint not in outcome.out + outcome.err, outcome.out[outcome.out.find(complaint) :][:800]
    return outcome.out


def test_records_and_gaps(tools: JavaTools, compacted: Found) -> None:
    directory, expected = compacted
    logs = list(directory.glob("*.log"))
    assert len(logs) > 2
    out = dump(tools, logs, "--deep-iteration", "--print-data-log")
    found = re.findall(r"^\| offset: (\d+) .*?(?:payload: (\S*))?$", out, re.MULTILINE)
    records = [(int(offset), payload) for offset, payload in found if (int(offset), payload) in expected]
    assert records == expected
    emptied = (
        rf"lastSequence: 1 producerId: {ONCE} producerEpoch: 3 .* count: 0 |count: 0 .* producerId: {ONCE} "
    )
    assert re.search(emptied, out), "a batch that kept its sequence only"
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", out)
    assert "endTxnMarker: COMMIT" in out
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec} " in out


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes(tools: JavaTools, compacted: Found, suffix: str) -> None:
    indexes = list(compacted[0].glob(f"*.{suffix}"))
    sane = dump(tools, indexes, "--index-sanity-check")
    assert sane.count("passed sanity check.") == len(indexes)
    dump(tools, indexes, "--verify-index-only")


def test_snapshots_and_aborted_transactions(tools: JavaTools, compacted: Found) -> None:
    assert f"producerId: {PRODUCER}" in dump(tools, list(compacted[0].glob("*.snapshot")))
    assert f"producerId: {PRODUCER} firstOffset" in dump(tools, list(compacted[0].glob("*.txnindex")))
