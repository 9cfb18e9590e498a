"""Compaction of one log: what stays, what goes, and when."""

import errno
from dataclasses import replace

import pytest

from headrace.records.batch import renew_crc
from headrace.records.builder import build_batch
from headrace.records.reader import batches
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles
from unit.storage.compacting import COMPACT, clean, put, records, seal, stored


@pytest.fixture
def compact(scene):
    scene.config = COMPACT
    scene.open()
    return scene


def test_the_newest_record_of_each_key_stays_with_its_offset(compact):
    put(compact, ("a", "1"), ("b", "1"), ("a", "2"))
    put(compact, ("c", "1"))
    put(compact, ("a", "3"), ("c", "2"))
    seal(compact)
    put(compact, ("b", "9"))
    result = clean(compact)
    assert records(compact) == [(1, "b", "1"), (4, "a", "3"), (5, "c", "2"), (6, "b", "9")]
    assert (result.records_before, result.records_after) == (6, 3)
    assert result.bytes_after < result.bytes_before
    assert compact.log.first_dirty_offset == 6
    header, _ = stored(compact)[0]
    assert (header.base_offset, header.last_offset) == (0, 2)


def test_a_log_without_new_segments_is_not_dirty(compact):
    put(compact, ("a", "1"))
    assert clean(compact) is None
    seal(compact)
    assert clean(compact) is not None
    assert clean(compact) is None


def test_the_dirty_ratio_decides(compact):
    compact.log.configure(replace(COMPACT, min_cleanable_dirty_ratio=0.5))
    put(compact, *((f"k{n}", "x" * 100) for n in range(20)))
    seal(compact)
    assert clean(compact) is not None
    put(compact, ("k1", "y"))
    seal(compact)
    assert clean(compact) is None
    put(compact, *((f"k{n}", "z" * 100) for n in range(20)))
    seal(compact)
    dirt = compact.log.dirt(compact.wall_ms, compact.log.log_end_offset)
    assert 0.5 < dirt.ratio < 0.6
    assert clean(compact) is not None


def test_a_log_that_is_only_deleted_is_never_compacted(compact):
    compact.log.configure(replace(COMPACT, cleanup_policy=frozenset({"delete"})))
    put(compact, ("a", "1"), ("a", "2"))
    seal(compact)
    assert clean(compact) is None


def test_nothing_at_or_beyond_the_high_watermark_or_an_open_transaction_or_the_flush_is_touched(compact):
    put(compact, ("a", "1"))
    seal(compact)
    put(compact, ("a", "2"))
    seal(compact)
    put(compact, ("a", "3"))
    compact.log.roll(compact.wall_ms)
    assert compact.log.dirt(compact.wall_ms, 1).end_offset == 1
    assert compact.log.dirt(compact.wall_ms, 0) is None
    assert compact.log.dirt(compact.wall_ms, 3).end_offset == 2, "the third segment is not flushed"
    compact.flush()
    assert compact.log.dirt(compact.wall_ms, 3).end_offset == 3
    compact.write(7, 0, transactional=True)
    put(compact, ("a", "4"))
    seal(compact)
    assert compact.log.dirt(compact.wall_ms, 5).end_offset == 3
    compact.end(7, committed=True)
    seal(compact)
    assert compact.log.dirt(compact.wall_ms, 6).end_offset == 6


def test_tombstones_stay_for_delete_retention_ms_after_the_first_pass(compact):
    put(compact, ("a", "1"), ("b", "1"))
    put(compact, ("a", None), ("c", "1"))
    seal(compact)
    clean(compact)
    assert records(compact) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    header = stored(compact)[1][0]
    assert header.has_delete_horizon
    assert header.base_timestamp == compact.wall_ms + 1000
    assert [row[1] for row in stored(compact)[1][1]] == [compact.wall_ms, compact.wall_ms + 1]

    compact.wall_ms += 999
    put(compact, ("d", "1"))
    seal(compact)
    clean(compact)
    assert (2, "a", None) in records(compact)
    assert stored(compact)[1][0].base_timestamp == header.base_timestamp, "counted from the first pass"

    compact.wall_ms += 1
    put(compact, ("d", "2"))
    seal(compact)
    clean(compact)
    assert records(compact) == [(1, "b", "1"), (3, "c", "1"), (5, "d", "2")]


def test_min_compaction_lag_spares_the_young(compact):
    compact.log.configure(replace(COMPACT, min_compaction_lag_ms=500))
    put(compact, ("a", "1"))
    seal(compact)
    compact.wall_ms += 400
    put(compact, ("a", "2"))
    seal(compact)
    assert clean(compact) is None
    compact.wall_ms += 150
    assert compact.log.dirt(compact.wall_ms, 2).end_offset == 1
    compact.wall_ms += 400
    clean(compact)
    assert records(compact) == [(1, "a", "2")]


def test_max_compaction_lag_makes_a_pass_due_and_seals_the_segment(compact):
    compact.log.configure(replace(COMPACT, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=5000))
    put(compact, *((f"k{n}", "x" * 100) for n in range(20)))
    seal(compact)
    clean(compact)
    put(compact, ("k1", "y"))
    compact.wall_ms += 5000
    compact.log.roll_if_old(compact.wall_ms)
    assert compact.log.segment_count == 2
    compact.wall_ms += 1
    compact.log.roll_if_old(compact.wall_ms)
    compact.flush()
    assert compact.log.segment_count == 3
    assert clean(compact) is not None
    assert ("k1", "y") in [record[1:] for record in records(compact)]
    assert len(records(compact)) == 20


def test_a_full_map_ends_the_pass_and_the_next_one_goes_on(compact):
    for n in range(30):
        put(compact, (f"key-{n % 15}", str(n)))
        if n % 4 == 3:
            compact.log.roll(compact.wall_ms)
    seal(compact)
    passes = 0
    while clean(compact, map_bytes=5 * 160) is not None:
        passes += 1
        assert compact.log.first_dirty_offset > 0
    assert passes > 3
    assert records(compact) == [(n, f"key-{n % 15}", str(n)) for n in range(15, 30)]


def test_a_tombstone_that_the_map_did_not_reach_has_no_horizon_yet(compact):
    put(compact, ("a", "1"))
    put(compact, ("b", "1"))
    put(compact, ("a", None))
    seal(compact)
    clean(compact, map_bytes=1)
    assert not stored(compact)[-1][0].has_delete_horizon
    assert len(records(compact)) == 3


def test_neighbours_are_merged_into_one_segment_as_long_as_they_fit(compact):
    for n in range(6):
        put(compact, ("same", "x" * 300), (f"k{n}", "y" * 50))
        seal(compact)
    assert compact.log.segment_count == 7
    clean(compact)
    assert compact.log.segment_count == 2
    assert [record[0] for record in records(compact)] == [1, 3, 5, 7, 9, 10, 11]
    compact.log.configure(replace(COMPACT, segment_bytes=600))
    for n in range(6):
        put(compact, (f"new{n}", "x" * 200))
        seal(compact)
    count = compact.log.segment_count
    clean(compact)
    assert 2 < compact.log.segment_count < count
    assert all(len(compact.content(name)) <= 600 for name in compact.names(".log")[1:])


def test_a_segment_of_which_nothing_is_left_still_ends_where_it_did(compact):
    put(compact, ("a", "1"))
    put(compact, ("a", "2"))
    seal(compact)
    put(compact, ("a", "3"))
    seal(compact)
    compact.config = replace(COMPACT, segment_bytes=120)
    compact.log.configure(compact.config)
    clean(compact)
    [(end, rows), (_, newest)] = stored(compact)
    assert (end.base_offset, end.last_offset, end.record_count, rows) == (1, 1, 0, [])
    assert newest[0][3] == b"3"
    compact.files = OpenFiles()
    compact.open("lost", recovery_point=compact.log.flushed_offset)
    assert records(compact) == [(2, "a", "3")]
    assert clean(compact).segments == [], "what is clean is not written again"


def test_records_below_the_log_start_go(compact):
    put(compact, ("a", "1"), ("b", "1"), ("c", "1"))
    seal(compact)
    compact.log.advance_log_start(2, compact.wall_ms)
    clean(compact)
    assert compact.content("00000000000000000000.log").count(b"b") == 0
    assert records(compact) == [(2, "c", "1")]


def test_compaction_alone_lets_nothing_go_by_time_or_size(compact):
    compact.log.configure(replace(COMPACT, retention_bytes=1))
    put(compact, ("a", "1"))
    seal(compact)
    compact.wall_ms += 10_000
    assert compact.log.retire(compact.wall_ms) == []
    compact.log.configure(replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"})))
    assert len(compact.log.retire(compact.wall_ms)) == 1
    assert compact.log.log_start_offset == 1


@pytest.mark.parametrize("codec", range(5))
def test_codecs_stay_and_whole_batches_are_copied_as_they_are(compact, codec):
    put(compact, *((f"k{n}", "value " * 20) for n in range(10)), codec=codec)
    put(compact, ("k3", "new"), ("other", "x"), codec=codec)
    seal(compact)
    before = compact.content("00000000000000000000.log")
    clean(compact)
    after = compact.content("00000000000000000000.log")
    kept = [header for header, _ in stored(compact)]
    assert [header.codec for header in kept] == [codec, codec]
    assert [header.record_count for header in kept] == [9, 2]
    assert before.endswith(after[-kept[1].size :])
    assert after != before


def test_a_batch_that_cannot_be_opened_stays_and_the_pass_goes_on(compact):
    put(compact, ("a", "1"))
    broken = bytearray(build_batch([(compact.wall_ms, b"a", b"x" * 500, ())], codec=1))
    broken[70:80] = bytes(10)
    renew_crc(broken, 0)
    compact.log.configure(replace(COMPACT, cleanup_policy=frozenset({"delete"})))
    compact.send(bytes(broken))
    damaged = build_batch([(compact.wall_ms, b"a", b"damaged", ())])
    compact.send(damaged)
    compact.log.configure(COMPACT)
    put(compact, ("a", "2"))
    seal(compact)
    compact.disk.flip(
        "orders-0/00000000000000000000.log", compact.content("00000000000000000000.log").index(b"damaged"), 1
    )
    clean(compact)
    left = compact.content("00000000000000000000.log")
    assert left.count(b"eamaged") == 1
    assert bytes(broken)[100:] in left
    headers = [header.base_offset for _, header in batches(left, check=False)]
    assert headers == [1, 2, 3]


def test_records_without_a_key_go(compact):
    compact.log.configure(replace(COMPACT, cleanup_policy=frozenset({"delete"})))
    compact.send(build_batch([(compact.wall_ms, None, b"x", ()), (compact.wall_ms, b"k", b"y", ())]))
    compact.log.configure(COMPACT)
    seal(compact)
    clean(compact)
    assert records(compact) == [(1, "k", "y")]


def test_a_result_that_comes_after_the_log_was_cut_or_its_segments_went_is_thrown_away(compact):
    def ordered():
        put(compact, ("a", "1"))
        seal(compact)
        put(compact, ("a", "2"))
        seal(compact)
        return compact.log.clean_job(compact.wall_ms, compact.log.log_end_offset)

    result = ordered().run(compact.disk)
    compact.log.truncate_to(1)
    assert compact.log.complete_cleaning(result, compact.wall_ms) == []
    assert records(compact) == [(0, "a", "1")]
    assert [name for name in compact.names() if name.count(".") > 1] == []

    job = ordered()
    result = job.run(compact.disk)
    for doomed in compact.log.advance_log_start(compact.log.log_end_offset, compact.wall_ms):
        doomed.remove_job().run(compact.disk)
    assert compact.log.complete_cleaning(result, compact.wall_ms) == []
    assert [name for name in compact.names() if name.count(".") > 1] == []
    assert job.run(compact.disk).segments == [], "what it was to read is gone"
    assert [name for name in compact.names() if name.count(".") > 1] == []


def test_a_start_takes_no_segment_for_a_log_that_was_cut_since(compact):
    put(compact, ("a", "1"))
    put(compact, ("a", "2"))
    seal(compact)
    put(compact, ("b", "1"))
    seal(compact)
    assert compact.log.clean_job(compact.wall_ms, 3).run(compact.disk).segments
    compact.log.truncate_to(1)
    put(compact, ("c", "1"))
    compact.disk, compact.files = compact.disk.crash("killed"), OpenFiles()
    compact.open("killed")
    assert records(compact) == [(0, "a", "1"), (1, "c", "1")]
    assert [name for name in compact.names() if name.count(".") > 1] == []


def test_batches_larger_than_what_is_read_at_a_time(compact):
    config = replace(COMPACT, segment_bytes=10_000_000)
    compact.log.configure(
        replace(config, cleanup_policy=frozenset({"delete"}))
    )  # takes large batches at once
    for n in range(6):
        put(compact, (f"k{n % 2}", "x" * 200_000), ("small", str(n)))
        put(compact, (f"k{n}", "y"))
    compact.log.configure(config)
    seal(compact)
    clean(compact, io_bytes=0)
    assert [row[0] for row in records(compact)] == [8, 11, 12, 14, 15, 16, 17]


def test_readers_and_writers_go_on_while_segments_are_swapped(compact):
    put(compact, ("a", "1"))
    put(compact, ("a", "2"), ("b", "1"))
    seal(compact)
    put(compact, ("c", "1"))
    seal(compact)
    span = compact.log.read(0, max_bytes=10_000, limit_offset=4, at_least_one=True)
    before = span.read()
    job = compact.log.clean_job(compact.wall_ms, 4)
    result = job.run(compact.disk)
    put(compact, ("d", "1"))
    compact.log.complete_cleaning(result, compact.wall_ms)
    assert span.read() == before
    assert [record[0] for record in records(compact)] == [1, 2, 3, 4]


@pytest.mark.parametrize("renames", range(10))
def test_a_swap_that_a_full_disk_interrupts_is_read_as_before_and_finished_later(scene, renames):
    scene.disk = disk = FaultyDisk(MemoryDisk())
    scene.config = COMPACT
    scene.open()
    for number in range(3):
        put(scene, ("a", str(number)), (f"b{number}", "x"))
        seal(scene)
    put(scene, ("z", "9"))
    before = records(scene)
    result = scene.log.clean_job(scene.wall_ms, scene.log.log_end_offset).run(disk)
    assert [one.merged for one in result.segments] == [[2, 4]]
    disk.faults.append(Fault(Fail(errno.ENOSPC), "rename", skip=renames))
    doomed = scene.log.complete_cleaning(result, scene.wall_ms)
    after = [one for one in before if one[1] != "a" or one[2] == "2"]
    assert records(scene) in (before, after)
    put(scene, ("y", "1"))
    doomed += scene.log.retire(scene.wall_ms)
    assert records(scene) == [*after, (7, "y", "1")]
    assert not scene.log.is_offline
    for one in doomed:
        one.remove_job().run(disk)
    assert scene.names(".deleted") == []


@pytest.mark.parametrize("renames", range(20))
def test_what_several_swaps_leave_is_removed_wherever_a_full_disk_interrupts_them(scene, renames):
    """The files of those that came before the interruption waited for the next start."""
    scene.disk = disk = FaultyDisk(MemoryDisk())
    scene.config = COMPACT
    scene.open()
    for number in range(8):
        put(scene, ("a", str(number)), (f"b{number}", "x" * 50))
        seal(scene)
    scene.log.configure(replace(COMPACT, segment_bytes=450))
    result = scene.log.clean_job(scene.wall_ms, scene.log.log_end_offset).run(disk)
    assert [len(one.merged) for one in result.segments].count(0) == 0 < len(result.segments) - 1
    disk.faults.append(Fault(Fail(errno.ENOSPC), "rename", skip=renames))
    doomed = scene.log.complete_cleaning(result, scene.wall_ms)
    doomed += scene.log.retire(scene.wall_ms)
    for one in doomed:
        one.remove_job().run(disk)
    assert scene.names(".deleted") == scene.names(".swap") == []


@pytest.mark.parametrize("damage", [{8: 0x80}, {8: 0xFF, 9: 0xFF, 10: 0xFF, 11: None}])
def test_a_start_takes_no_segment_whose_length_is_damaged(compact, damage):
    put(compact, ("a", "1"), ("b", "1"))
    put(compact, ("a", "2"))
    seal(compact)
    put(compact, ("z", "9"))
    before = records(compact)
    compact.log.clean_job(compact.wall_ms, compact.log.log_end_offset).run(compact.disk)
    path = "orders-0/00000000000000000000.log.swap"
    low = compact.disk.open(path).read(11, 1)[0]
    for position, mask in damage.items():  # a negative length, and the one that leads nowhere
        compact.disk.flip(path, position, low ^ 0xF4 if mask is None else mask)
    compact.open("killed", recovery_point=3)
    assert records(compact) == before
