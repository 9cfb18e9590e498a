"""Idempotent producers: a repetition is answered, a gap is refused, and restarts change nothing."""

from random import Random

import pytest

from headrace.storage.errors import OutOfOrderSequence, StaleProducerEpoch
from headrace.storage.open_files import OpenFiles

INT32_MAX = (1 << 31) - 1


def test_a_repeated_batch_gets_its_first_offsets_and_is_not_written_again(scene):
    scene.open()
    first = scene.write(7, 0, 3)
    scene.append()
    again = scene.write(7, 0, 3)
    assert not first.is_duplicate
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (0, 2)
    assert scene.log.log_end_offset == 4


def test_the_last_five_batches_are_remembered(scene):
    scene.open()
    for sequence in range(6):
        scene.write(7, sequence)
    assert [scene.write(7, sequence).base_offset for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfOrderSequence):
        scene.write(7, 0)


def test_a_repetition_must_have_the_same_length(scene):
    scene.open()
    scene.write(7, 0, 3)
    with pytest.raises(OutOfOrderSequence):
        scene.write(7, 0, 2)


def test_a_gap_is_refused_and_nothing_written(scene):
    scene.open()
    scene.write(7, 0)
    with pytest.raises(OutOfOrderSequence):
        scene.write(7, 2)
    assert scene.log.log_end_offset == 1
    scene.write(7, 1)


def test_an_unknown_producer_may_begin_with_any_sequence(scene):
    scene.open()
    assert scene.write(7, 4711).base_offset == 0


def test_a_new_epoch_begins_with_sequence_zero(scene):
    scene.open()
    scene.write(7, 0)
    with pytest.raises(OutOfOrderSequence):
        scene.write(7, 1, epoch=1)
    scene.write(7, 0, epoch=1)
    with pytest.raises(StaleProducerEpoch):
        scene.write(7, 1, epoch=0)


def test_sequences_wrap_to_zero(scene):
    scene.open()
    scene.write(7, INT32_MAX - 1, 3)  # the largest two, then 0
    assert scene.write(7, 1).base_offset == 3
    assert scene.write(7, INT32_MAX - 1, 3).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        scene.write(7, 3)


@pytest.mark.parametrize("stop", ["clean", "killed", "lost"])
def test_producers_are_known_after_a_restart(scene, stop):
    scene.open()
    for sequence in range(6):
        scene.write(7, sequence)
    scene.write(8, 0, epoch=3)
    if stop == "clean":
        scene.log.close(clean=True)
    scene.files = OpenFiles()
    scene.open(stop, recovery_point=7 if stop == "clean" else 0)
    assert [scene.write(7, sequence).base_offset for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    assert scene.write(7, 6).base_offset == 7
    with pytest.raises(StaleProducerEpoch):
        scene.write(8, 0, epoch=2)


def test_a_damaged_snapshot_is_replaced_by_an_older_one_and_the_log(scene):
    scene.open()
    scene.write(7, 0)
    scene.log.roll(scene.wall_ms)
    scene.write(7, 1)
    scene.log.close(clean=True)
    newest = scene.names(".snapshot")[-1]
    scene.disk.flip(f"orders-0/{newest}", 20, 0xFF)
    scene.files = OpenFiles()
    scene.open(recovery_point=2)
    assert scene.write(7, 1).is_duplicate
    assert scene.write(7, 2).base_offset == 2
    assert newest not in scene.names(".snapshot")


def test_a_snapshot_is_taken_where_a_segment_begins_and_old_spares_go(scene):
    scene.open()
    for sequence in range(6):
        scene.write(7, sequence)
        scene.log.checkpoint()
    scene.log.roll(scene.wall_ms)
    offsets = [int(name[:20]) for name in scene.names(".snapshot")]
    assert offsets[-1] == 6
    assert len(offsets) <= 3


def test_truncation_forgets_what_was_cut_off(scene):
    scene.open()
    for sequence in range(4):
        scene.write(7, sequence)
    scene.log.checkpoint()
    scene.log.truncate_to(2)
    assert scene.names(".snapshot") == []
    with pytest.raises(OutOfOrderSequence):
        scene.write(7, 3)
    assert scene.write(7, 2).base_offset == 2


def test_a_snapshot_of_records_that_were_cut_off_may_come_back_with_a_lost_host(scene):
    """The process is killed after the cut, so no flush makes the removal of the snapshot durable; others
    write where the log was cut; then the host loses power.
    """
    scene.open()
    for sequence in range(5):
        scene.write(7, sequence)
    scene.log.checkpoint()
    scene.flush()
    scene.log.cut_to(3, scene.wall_ms)
    scene.disk, scene.files = scene.disk.crash("killed"), OpenFiles()
    scene.open("killed", recovery_point=3)
    for sequence in range(5):
        scene.write(8, sequence)
    whole, ends = scene.disk, set()
    for seed in range(200):
        scene.disk, scene.files = whole.crash("lost", Random(seed)), OpenFiles()
        is_back = scene.names(".snapshot") != []
        scene.open("lost", recovery_point=3)
        end = scene.log.log_end_offset
        ends.add((end, is_back))
        known = {one.producer_id: one.last_sequence for one in scene.log.producers()}
        if end > 5:
            assert known == {7: 2, 8: end - 4}, seed
    assert {(7, True), (8, True)} & ends, "no seed brings the snapshot and the later records"


def test_silent_producers_expire_and_open_transactions_do_not(scene):
    scene.open(producer_id_expiration_ms=1000)
    scene.write(7, 0)
    scene.write(8, 0, transactional=True)
    scene.wall_ms += 999
    assert scene.log.expire_producers(scene.wall_ms) == 0
    scene.wall_ms += 1
    assert scene.log.expire_producers(scene.wall_ms) == 1
    assert [entry.producer_id for entry in scene.log.producers()] == [8]
    scene.write(7, 99)


def test_what_is_told_of_a_producer(scene):
    scene.open()
    scene.write(7, 5, 2, epoch=1, transactional=True)
    [entry] = scene.log.producers()
    assert (entry.producer_id, entry.epoch, entry.last_sequence, entry.timestamp) == (7, 1, 6, scene.wall_ms)
    assert (entry.coordinator_epoch, entry.transaction_start) == (-1, 0)
