"""What compaction costs in CPU time: one pass over a dirty log on a real disk, beside its parts alone.

    python -m benchmarks.cleaner_bench [megabytes]

Three logs: keys that come again and again (nearly all goes), keys of which half were overwritten, and keys
that come once (everything stays, and is only read).
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from headrace.records.builder import build_batch
from headrace.records.compiled import COMPILED
from headrace.records.compression import Codec
from headrace.records.reader import batches, read_keys
from headrace.server.disk import RealDisk
from headrace.storage.config import LogConfig
from headrace.storage.disk import Disk, read_whole
from headrace.storage.log import PartitionLog
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import Recovery

DIRECTORY = "bench-0"
WALL_MS = 1_700_000_000_000
BATCH_RECORDS = 200
VALUE_BYTES = 100
CONFIG = LogConfig(
    segment_bytes=16 * 1024 * 1024,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    validate_records=False,
)


def write(disk: Disk, size: int, keys: Iterator[int], codec: int) -> PartitionLog:
    disk.make_dir(DIRECTORY)
    log = PartitionLog.open(
        disk, DIRECTORY, CONFIG, files=OpenFiles(), recovery=Recovery("clean"), wall_ms=WALL_MS
    )
    log.configure(replace(CONFIG, cleanup_policy=frozenset({"delete"})))  # appends need not open batches
    rng = Random(1)
    pool = rng.randbytes(1_000_000)
    while log.size_bytes < size:
        at = rng.randrange(len(pool) - VALUE_BYTES * BATCH_RECORDS)
        values = (pool[at + n * VALUE_BYTES : at + (n + 1) * VALUE_BYTES] for n in range(BATCH_RECORDS))
        rows = [(WALL_MS, b"key-%010d" % next(keys), value, ()) for value in values]
        log.append(memoryview(bytearray(build_batch(rows, codec=codec))), wall_ms=WALL_MS, leader_epoch=0)
    log.configure(CONFIG)
    log.roll(WALL_MS)
    job = log.flush_job()
    assert job is not None
    log.complete_flush(job.run(disk))
    return log


def again_and_again() -> Iterator[int]:
    rng = Random(2)
    while True:
        yield rng.randrange(10_000)


def half() -> Iterator[int]:
    number = 0
    while True:
        yield number
        if number % 2:
            yield number - 1
        number += 1


def once() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def measure(name: str, size: int, keys: Iterator[int], codec: Codec) -> None:
    with tempfile.TemporaryDirectory() as root:
        disk = RealDisk(root)
        log = write(disk, size, keys, codec)
        job = log.clean_job(WALL_MS, log.log_end_offset, map_bytes=1 << 30)
        assert job is not None
        started = time.process_time()
        result = job.run(disk)
        seconds = time.process_time() - started
        megabytes = result.bytes_before / 1e6
        print(
            f"{name:18} {codec.name.lower():7} {megabytes:7.1f} → {result.bytes_after / 1e6:7.1f} MB  "
            f"{seconds:6.2f} s  {megabytes / seconds:7.1f} MB/s  "
            f"{result.records_before / seconds / 1e6:6.2f} M rec/s"
        )


def measure_parts(size: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        disk = RealDisk(root)
        write(disk, size, once(), Codec.NONE)
        paths = [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(".log")]
        started = time.process_time()
        for path in paths:
            data = read_whole(disk, path)
            copy = disk.open(path + ".copy", create=True)
            copy.append(data)
            copy.sync()
            copy.close()
        seconds = time.process_time() - started
        print(f"{'a plain copy':26} {size / 1e6:7.1f} MB  {seconds:6.2f} s  {size / 1e6 / seconds:7.1f} MB/s")
        started = time.process_time()
        count = 0
        for path in paths:
            data = read_whole(disk, path)
            for position, header in batches(data):
                count += len(read_keys(data, position, header))
        seconds = time.process_time() - started
        print(
            f"{'keys alone':26} {size / 1e6:7.1f} MB  {seconds:6.2f} s  {count / seconds / 1e6:7.2f} M rec/s"
        )


def main() -> None:
    size = int(sys.argv[1]) * 1_000_000 if len(sys.argv) > 1 else 64_000_000
    compiled = "compiled" if COMPILED else "interpreted"
    print(f"records of {VALUE_BYTES} bytes in batches of {BATCH_RECORDS}, record codec {compiled}")
    measure_parts(size)
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        measure("again and again", size, again_and_again(), codec)
        measure("half overwritten", size, half(), codec)
        measure("each key once", size, once(), codec)


if __name__ == "__main__":
    main()
