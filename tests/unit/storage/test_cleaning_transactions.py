"""Compaction and transactions: aborted data goes, markers follow it, producers stay known."""

from dataclasses import replace
from random import Random

import pytest

from headrace.records.batch import LOG_APPEND_TIME
from headrace.records.builder import LEADER_CHANGE, build_batch, control_batch
from headrace.storage.config import LogConfig
from headrace.storage.errors import StaleProducerEpoch
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import Recovery
from unit.storage.compacting import COMPACT, clean, put, records, seal, stored


@pytest.fixture
def compact(scene):
    scene.config = COMPACT
    scene.open()
    return scene


def kinds(scene):
    """Of each batch its base offset, what it is, and how many records it has."""
    return [
        (header.base_offset, "marker" if header.is_control else "data", header.record_count)
        for header, _ in stored(scene)
    ]


def forget_snapshots(scene):
    for name in scene.names(".snapshot"):
        scene.disk.remove(f"orders-0/{name}")


def reopen(scene, trust="killed"):
    scene.files = OpenFiles()
    scene.open(trust, recovery_point=scene.log.flushed_offset)


def transact(scene, producer, sequence, *pairs, epoch=0):
    put(
        scene,
        *pairs,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def expire(scene):
    scene.wall_ms += scene.log.producer_id_expiration_ms
    assert scene.log.expire_producers(scene.wall_ms) > 0


def test_aborted_data_goes_and_committed_stays(compact):
    put(compact, ("a", "old"))
    transact(compact, 7, 0, ("a", "aborted"), ("b", "aborted"))
    compact.end(7, committed=False)
    transact(compact, 7, 2, ("c", "committed"))
    compact.end(7, committed=True)
    seal(compact)
    clean(compact)
    assert records(compact) == [(0, "a", "old"), (4, "c", "committed")]
    assert compact.log.last_stable_offset(6) == 6


def test_a_transaction_aborted_in_a_later_segment_than_its_data(compact):
    transact(compact, 7, 0, ("a", "aborted"))
    seal(compact)
    put(compact, ("b", "1"))
    seal(compact)
    compact.end(7, committed=False)
    put(compact, ("c", "1"))
    # the marker is in the active segment, which no pass touches
    clean(compact)
    assert records(compact) == [(1, "b", "1"), (3, "c", "1")]
    assert compact.log.aborted_transactions(0, 4) == [(7, 0)]


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_marker_outlives_its_data_by_delete_retention_ms(compact, is_committed):
    transact(compact, 7, 0, ("a", "1"))
    compact.end(7, committed=is_committed)
    put(compact, ("a", "2"))
    seal(compact)
    expire(compact)  # or its last batch would stay for its sequence
    clean(compact)
    assert kinds(compact) == [(1, "marker", 1), (2, "data", 1)], "data was met in this pass"
    assert not stored(compact)[0][0].has_delete_horizon
    put(compact, ("b", "1"))
    seal(compact)
    clean(compact)
    assert kinds(compact)[0] == (1, "marker", 1)
    marker = stored(compact)[0][0]
    assert (marker.has_delete_horizon, marker.base_timestamp) == (True, compact.wall_ms + 1000)
    assert compact.log.aborted_transactions(0, 10) == [], "nothing is left that it could hide"
    for wait_ms, is_kept in ((999, True), (1, False)):
        compact.wall_ms += wait_ms
        put(compact, ("b", "1"))
        seal(compact)
        clean(compact)
        assert (kinds(compact)[0] == (1, "marker", 1)) is is_kept
    reopen(compact, "lost")
    assert compact.log.last_stable_offset(compact.log.log_end_offset) == compact.log.log_end_offset


def test_the_last_batch_of_a_producer_stays_without_its_records(compact):
    put(compact, ("a", "1"), ("b", "1"), producer_id=5, producer_epoch=2, base_sequence=40)
    put(compact, ("a", "2"), ("b", "2"))
    seal(compact)
    clean(compact)
    header = stored(compact)[0][0]
    assert (header.record_count, header.base_offset, header.last_offset) == (0, 0, 1)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (5, 2, 41)
    forget_snapshots(compact)
    reopen(compact)
    compact.write(5, 42, epoch=2)
    with pytest.raises(StaleProducerEpoch):
        compact.write(5, 0, epoch=1)
    expire(compact)
    compact.append()
    seal(compact)
    clean(compact)
    assert stored(compact)[0][0].base_offset > 0


def test_the_marker_that_alone_knows_a_producers_epoch_stays(compact):
    transact(compact, 7, 0, ("a", "1"))
    compact.end(7, committed=True, epoch=1)
    put(compact, ("a", "2"))
    seal(compact)
    for _ in range(4):
        clean(compact)
        compact.wall_ms += 1000
        put(compact, ("b", "1"))
        seal(compact)
    forget_snapshots(compact)
    reopen(compact)
    with pytest.raises(StaleProducerEpoch):
        transact(compact, 7, 1, ("a", "late"), epoch=0)


def test_an_emptied_transactional_batch_leaves_no_transaction_open(compact):
    transact(compact, 7, 0, ("a", "1"))
    compact.end(7, committed=False)
    seal(compact)
    for _ in range(4):
        clean(compact)
        compact.wall_ms += 1000
        put(compact, ("b", "1"))
        seal(compact)
    assert kinds(compact)[:2] == [(0, "data", 0), (1, "marker", 1)]
    forget_snapshots(compact)
    reopen(compact, "lost")
    assert compact.log.first_unstable_offset is None
    transact(compact, 7, 1, ("a", "2"))


def test_control_batches_of_other_kinds_are_left_alone(compact):
    compact.send(control_batch(LEADER_CHANGE, b"\0\0", timestamp=compact.wall_ms), from_client=False)
    put(compact, ("a", "1"), ("a", "2"))
    seal(compact)
    before = stored(compact)[0]
    clean(compact)
    assert stored(compact)[0] == before


# --- answers of a compacted log -----------------------------------------------------------------------------


def test_fetches_from_inside_a_gap_begin_with_the_next_batch(compact):
    for n in range(10):
        put(compact, ("same", str(n)))
        put(compact, (f"k{n}", str(n)))
    seal(compact)
    put(compact, ("last", "1"))
    clean(compact)
    assert [row[0] for row in records(compact)] == [1, 3, 5, 7, 9, 11, 13, 15, 17, 18, 19, 20]
    for offset in range(20):
        span = compact.log.read(offset, max_bytes=1, limit_offset=21, at_least_one=True)
        first = next(one for one, _ in stored(compact) if one.last_offset >= offset)
        assert span.size == first.size
        assert span.read()[:8] == first.base_offset.to_bytes(8, "big")


def test_offsets_of_timestamps_skip_what_is_gone(compact):
    start_ms = compact.wall_ms
    for n in range(20):
        compact.wall_ms = start_ms + n * 10
        put(compact, (f"k{n % 4}", str(n)))
    seal(compact)
    clean(compact)
    for ms, offset in ((0, 16), (165, 17), (190, 19)):
        assert compact.log.offset_for_timestamp(start_ms + ms, 20).offset == offset
    assert compact.log.offset_for_timestamp(start_ms + 191, 20) is None
    assert compact.log.max_timestamp(20)[:2] == (19, start_ms + 190)


def test_offsets_of_timestamps_with_log_append_time(scene):
    scene.config = replace(COMPACT, message_timestamp_type="LogAppendTime")
    scene.open()
    put(scene, ("a", "1"), ("b", "1"), ("c", "1"))
    scene.wall_ms += 10
    put(scene, ("a", "2"), ("d", "1"))
    seal(scene)
    clean(scene)
    first, _ = stored(scene)[0]
    assert first.attributes & LOG_APPEND_TIME
    assert records(scene)[0] == (1, "b", "1")
    assert scene.log.offset_for_timestamp(first.max_timestamp, 5)[:2] == (1, first.max_timestamp)
    assert scene.log.max_timestamp(5)[:2] == (3, first.max_timestamp + 10)


def test_epochs_and_truncation_of_a_compacted_log(compact):
    for epoch in range(4):
        compact.send(build_batch([(compact.wall_ms, b"k", b"%d" % epoch, ())] * 2), leader_epoch=epoch)
    seal(compact)
    put(compact, ("z", "1"))
    clean(compact)
    assert [compact.log.epoch_end_offset(epoch) for epoch in range(4)] == [(0, 2), (1, 4), (2, 6), (3, 9)]
    compact.log.truncate_to(5)
    assert compact.log.log_end_offset == 5
    assert compact.log.first_dirty_offset <= 5
    assert compact.log.epoch_end_offset(2) == (2, 5)
    put(compact, ("k", "again"))
    assert records(compact) == [(5, "k", "again")]


def test_a_policy_that_became_delete_keeps_what_compaction_left(compact):
    for n in range(8):
        put(compact, ("same", str(n)), (f"k{n}", str(n)))
        seal(compact)
    clean(compact)
    before = records(compact)
    compact.config = LogConfig(segment_bytes=100_000, retention_ms=-1)
    for recovery_point in (compact.log.flushed_offset, 0):
        compact.files = OpenFiles()
        compact.log = type(compact.log).open(
            compact.disk,
            "orders-0",
            compact.config,
            files=compact.files,
            recovery=Recovery("lost", recovery_point, 0),
            wall_ms=compact.wall_ms,
        )
        assert records(compact) == before


def test_a_policy_that_became_delete_keeps_everything_behind_an_old_recovery_point(compact):
    """Recovery points are written now and then: segments behind them may have been compacted, and the gaps
    in them are not a sign of a lost write.
    """
    compact.log.configure(replace(COMPACT, segment_bytes=400))
    for n in range(24):  # every other batch stays
        put(compact, ("same", str(n)))
        put(compact, (f"k{n}", str(n)))
    seal(compact)
    clean(compact)
    for n in range(3):
        put(compact, (f"later{n}", str(n)))
    compact.flush()
    before, end = records(compact), compact.log.log_end_offset
    assert len(compact.names(".log")) > 2
    whole = compact.disk
    compact.config = LogConfig(segment_bytes=400, retention_ms=-1)
    for recovery_point in range(end + 1):
        compact.disk, compact.files = whole.crash("lost", Random(recovery_point)), OpenFiles()
        compact.open("lost", recovery_point=recovery_point)
        assert compact.log.log_end_offset == end, recovery_point
        assert records(compact) == before, recovery_point
        assert compact.log.damages == [], recovery_point
