"""A record may hold whole batches, copied from a segment say: recovery never takes them for the log's own."""

import pytest

from headrace.records.batch import assign
from headrace.records.builder import build_batch
from headrace.storage.config import LogConfig
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles

ACTIVE = "00000000000000000000.log"


def copied(offset, count=3, step=2):
    """Batches with the offsets from `offset` on, as they stand in a segment."""
    whole = b""
    for number in range(count):
        batch = bytearray(build_batch([(1_700_000_000_000, b"k", b"inner%d" % number, ())] * step))
        assign(memoryview(batch), 0, offset + number * step, 0)
        whole += batch
    return whole


def holder(scene, *offsets):
    """A batch whose records hold others."""
    rows = [(scene.wall_ms, b"key", b"before" + copied(offset) + b"after", ()) for offset in offsets]
    return build_batch(rows)


def cut(scene, whole, size, trust, **options):
    disk = MemoryDisk()
    disk.make_dir("orders-0")
    disk.open(f"orders-0/{ACTIVE}", create=True).append(whole[:size])
    scene.disk, scene.files = disk, OpenFiles()
    scene.open(trust, **options)


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize(
    ("trust", "recovery_point"), [("killed", 0), ("killed", 2), ("lost", 0), ("lost", 2)]
)
def test_a_batch_that_was_cut_short_anywhere_is_cut_off(scene, trust, recovery_point, policy):
    scene.config = LogConfig(cleanup_policy=frozenset({policy}))
    scene.open()
    scene.append(2)
    start = len(scene.content(ACTIVE))
    scene.send(holder(scene, 0, 2, 3, 4, 1000))
    whole = scene.content(ACTIVE)
    found = set()
    for size in range(start, len(whole)):
        cut(scene, whole, size, trust, recovery_point=recovery_point)
        log = scene.log
        found.add((log.log_end_offset, len(scene.content(ACTIVE)), tuple(log.damages)))
    assert found == {(2, start, ())}


@pytest.mark.parametrize(("trust", "recovery_point"), [("killed", 0), ("lost", 0), ("lost", 2)])
def test_a_damaged_length_costs_no_other_batch(scene, trust, recovery_point):
    """It leads past the end of the file, as if the write of the batch had been cut short; but the checksum
    is right, up to where the next batch begins.
    """
    scene.open()
    scene.append(2)
    start = len(scene.content(ACTIVE))
    scene.send(holder(scene, 0, 3, 7))
    scene.append(2)
    scene.append(2)
    whole = bytearray(scene.content(ACTIVE))
    whole[start + 9] ^= 0x01  # a length of 64 KB more
    cut(scene, bytes(whole), len(whole), trust, recovery_point=recovery_point)
    if recovery_point:
        assert scene.log.log_end_offset == 2  # the valid prefix of what was not flushed
    else:
        assert (scene.log.log_end_offset, len(scene.content(ACTIVE))) == (9, len(whole))
        assert [damage.offset for damage in scene.log.damages] == [2]
        assert [scene.log.read(at, max_bytes=1, limit_offset=9, at_least_one=True).size for at in (5, 7)]


def test_a_damaged_record_in_the_last_batch_does_not_show_what_other_records_hold(scene):
    scene.open()
    scene.append(2)
    scene.send(holder(scene, 3, 7))
    whole = bytearray(scene.content(ACTIVE))
    whole[-3] ^= 0x01
    cut(scene, bytes(whole), len(whole), "killed")
    assert (scene.log.log_end_offset, len(scene.content(ACTIVE))) == (4, len(whole))
    assert [damage.offset for damage in scene.log.damages] == [2]


def test_a_batch_behind_a_gap_is_cut_off_as_well(scene):
    """Compaction removed the records in between, and some of its own, on the leader that it comes from."""
    scene.config = LogConfig(cleanup_policy=frozenset({"compact"}))
    scene.open()
    scene.append(2)
    start = len(scene.content(ACTIVE))
    batch = bytearray(scene.batch(3))
    assign(memoryview(batch), 0, 300, 0)
    scene.log.append_as_follower(memoryview(batch), leader_epoch=0, allows_gaps=True, wall_ms=scene.wall_ms)
    whole = scene.content(ACTIVE)
    assert len(whole) == start + len(batch)
    for size in range(start, len(whole)):
        cut(scene, whole, size, "killed")
        log = scene.log
        assert (log.log_end_offset, len(scene.content(ACTIVE)), log.damages) == (2, start, [])
