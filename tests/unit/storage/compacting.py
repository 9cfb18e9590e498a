"""A compacted log in short words: what is put into it, and what a pass leaves."""

from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.storage.config import LogConfig
from headrace.storage.jobs import JobKind

COMPACT = LogConfig(
    segment_bytes=100_000,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    index_interval_bytes=100,
    retention_ms=1,
)


def put(scene, *pairs, **options):
    """One batch of (key, value); None as a value is a tombstone."""
    records = [
        (scene.wall_ms + n, key.encode(), None if value is None else value.encode(), ())
        for n, (key, value) in enumerate(pairs)
    ]
    return scene.send(build_batch(records, **options))


def seal(scene):
    scene.log.roll(scene.wall_ms)
    scene.flush()


def clean(scene, **options):
    """One pass, if any is due; its result."""
    job = scene.log.clean_job(scene.wall_ms, scene.log.log_end_offset, **options)
    if job is None:
        return None
    assert job.kind is JobKind.CPU
    result = job.run(scene.disk)
    for doomed in scene.log.complete_cleaning(result, scene.wall_ms):
        doomed.remove_job().run(scene.disk)
    return result


def stored(scene):
    """Every batch as it is read: header and rows."""
    found, offset = [], scene.log.log_start_offset
    while offset < scene.log.log_end_offset:
        span = scene.log.read(offset, max_bytes=1, limit_offset=scene.log.log_end_offset, at_least_one=True)
        if span is None:
            break
        data = span.read()
        for at, header in batches(data):
            found.append((header, read_rows(data, at, header)))
            offset = header.next_offset
    return found


def records(scene):
    return [
        (row[0], row[2].decode(), None if row[3] is None else row[3].decode())
        for header, rows in stored(scene)
        if not header.is_control
        for row in rows
    ]
