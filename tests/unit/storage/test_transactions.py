"""Open transactions hold the last stable offset back; aborted ones are told to whoever reads over them."""

from random import Random

import pytest

from headrace.records.errors import InvalidBatch
from headrace.storage.config import LogConfig
from headrace.storage.errors import CoordinatorFenced, DiskFull, InvalidTransactionState, StaleProducerEpoch
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles
from headrace.storage.producer_state import ProducerState
from headrace.storage.transaction_index import ENTRY


def stable(scene):
    return scene.log.last_stable_offset(scene.log.log_end_offset)


def test_the_oldest_open_transaction_bounds_the_stable_offset(scene):
    scene.open()
    scene.append()
    scene.write(7, 0, transactional=True)  # offset 1
    scene.write(8, 0, transactional=True)
    scene.write(7, 1, transactional=True)
    assert scene.log.first_unstable_offset == 1
    assert stable(scene) == 1
    scene.end(7, committed=True)
    assert stable(scene) == 2
    scene.end(8, committed=False)
    assert stable(scene) == scene.log.log_end_offset == 6
    assert scene.log.first_unstable_offset is None


def test_an_end_counts_only_below_the_high_watermark(scene):
    scene.open()
    scene.write(7, 0, transactional=True)
    scene.end(7, committed=True)
    scene.append()
    assert scene.log.last_stable_offset(1) == 0
    assert scene.log.last_stable_offset(2) == 2
    assert scene.log.last_stable_offset(3) == 3


def test_aborted_transactions_that_touch_a_range(scene):
    scene.config = LogConfig(segment_bytes=400)
    scene.open()
    scene.write(7, 0, transactional=True)  # 0
    scene.write(8, 0, transactional=True)  # 1
    scene.end(7, committed=False)  # 2
    scene.write(7, 1, transactional=True)  # 3
    scene.end(8, committed=True)  # 4
    scene.append(size=100)  # 5
    scene.end(7, committed=False)  # 6
    assert scene.log.segment_count > 1
    assert scene.log.aborted_transactions(0, 7) == [(7, 0), (7, 3)]
    assert scene.log.aborted_transactions(3, 7) == [(7, 3)]
    assert scene.log.aborted_transactions(0, 3) == [(7, 0)]
    assert scene.log.aborted_transactions(5, 6) == [(7, 3)]
    assert scene.log.aborted_transactions(0, 0) == []


@pytest.mark.parametrize("stop", ["clean", "killed", "lost"])
def test_all_of_it_is_known_after_a_restart(scene, stop):
    scene.open()
    scene.write(7, 0, transactional=True)
    scene.end(7, committed=False)
    scene.write(8, 0, transactional=True)
    if stop == "clean":
        scene.log.close(clean=True)
    scene.files = OpenFiles()
    scene.open(stop, recovery_point=3 if stop == "clean" else 0)
    assert scene.log.aborted_transactions(0, 3) == [(7, 0)]
    assert stable(scene) == 2
    scene.end(8, committed=False)
    assert scene.log.aborted_transactions(0, 4) == [(7, 0), (8, 2)]


@pytest.mark.parametrize("damage", ["removed", "torn"])
def test_a_damaged_transaction_index_is_made_anew_after_a_loss(scene, damage):
    scene.open()
    for _ in range(3):
        scene.write(7, scene.log.log_end_offset // 2, transactional=True)
        scene.end(7, committed=False)
    [name] = scene.names(".txnindex")
    before = scene.content(name)
    if damage == "removed":
        scene.disk.remove(f"orders-0/{name}")
    else:
        scene.disk.open(f"orders-0/{name}").truncate(len(before) - 5)
    scene.files = OpenFiles()
    scene.open("lost")
    assert scene.content(name) == before
    assert scene.log.aborted_transactions(0, 6) == [(7, 0), (7, 2), (7, 4)]


@pytest.mark.parametrize("durable", [0, 1, 2])
@pytest.mark.parametrize("kept_bytes", range(1, ENTRY.size))
def test_half_an_entry_of_the_transaction_index_may_survive_a_lost_host(scene, durable, kept_bytes):
    """The rest of it is zeros then: it names offsets at which no transaction ended."""
    scene.open()
    for number in range(3):
        scene.write(7 + number, 0, transactional=True)
        scene.end(7 + number, committed=False)
    [name] = scene.names(".txnindex")
    before = scene.content(name)
    file = scene.disk.open(f"orders-0/{name}")
    file.truncate(durable * ENTRY.size + kept_bytes)
    file.append(bytes(len(before) - file.size()))
    scene.files = OpenFiles()
    scene.open("lost", recovery_point=2 * durable)
    assert scene.content(name) == before
    assert scene.log.aborted_transactions(0, 6) == [(7, 0), (8, 2), (9, 4)]


def test_the_first_abort_of_a_segment_outlives_a_lost_machine(scene):
    """It makes a file: once the log has begun to be flushed, the file's name has to be made durable, too."""
    scene.open()
    scene.write(7, 0, transactional=True)
    scene.flush()
    scene.end(7, committed=False)
    scene.flush()
    assert_outlived(scene)


def test_an_abort_outlives_a_kill_and_a_lost_machine(scene):
    """What is durable in an index is not written again after a kill: that would not be durable."""
    scene.open()
    scene.write(7, 0, transactional=True)
    scene.end(7, committed=False)
    scene.flush()
    scene.files = OpenFiles()
    scene.open("killed", recovery_point=2)
    assert scene.log.aborted_transactions(0, 2) == [(7, 0)]
    assert_outlived(scene)


def assert_outlived(scene):
    left = scene.disk
    for seed in range(10):  # which decides what of the rest is spared
        scene.disk, scene.files = left.crash("lost", Random(seed)), OpenFiles()
        scene.open("lost", recovery_point=2)
        assert scene.log.aborted_transactions(0, 2) == [(7, 0)]


def test_markers_of_old_epochs_are_refused(scene):
    scene.open()
    scene.write(7, 0, epoch=2, transactional=True)
    with pytest.raises(StaleProducerEpoch):
        scene.end(7, committed=True, epoch=1)
    scene.end(7, committed=True, epoch=2, coordinator_epoch=5)
    with pytest.raises(CoordinatorFenced):
        scene.end(7, committed=True, epoch=2, coordinator_epoch=4)


def test_a_marker_may_raise_the_epoch_and_the_next_write_begins_anew(scene):
    scene.open()
    scene.write(7, 0, transactional=True)
    scene.end(7, committed=False, epoch=1)
    with pytest.raises(StaleProducerEpoch):
        scene.write(7, 1, epoch=0, transactional=True)
    scene.write(7, 0, epoch=1, transactional=True)


def test_a_plain_write_into_an_open_transaction_is_refused(scene):
    scene.open()
    scene.write(7, 0, transactional=True)
    with pytest.raises(InvalidTransactionState):
        scene.write(7, 1)


def test_clients_may_not_write_markers(scene):
    scene.open()
    scene.end(7, committed=True)
    with pytest.raises(InvalidBatch):
        scene.send(scene.content("00000000000000000000.log"))


def test_truncation_opens_a_transaction_again(scene):
    scene.open()
    scene.write(7, 0, transactional=True)
    scene.end(7, committed=False)
    scene.append()
    scene.log.truncate_to(1)
    assert scene.log.aborted_transactions(0, 1) == []
    assert scene.log.first_unstable_offset == 0


def test_a_full_disk_leaves_no_abort_without_its_marker(scene):
    scene.open()
    scene.write(7, 0, transactional=True)
    scene.log.close(clean=False)
    memory = scene.disk
    assert isinstance(memory, MemoryDisk)
    scene.disk = FaultyDisk(memory, [Fault(Fail(28, written=5), "append", ".log")])
    scene.files = OpenFiles()
    scene.open("killed")
    with pytest.raises(DiskFull):
        scene.end(7, committed=False)
    assert scene.log.aborted_transactions(0, 10) == []
    assert scene.log.first_unstable_offset == 0
    scene.end(7, committed=False)
    assert scene.log.aborted_transactions(0, 10) == [(7, 0)]


def test_many_ended_transactions_that_nobody_asked_about_take_little_room():
    state = ProducerState()
    for number in range(5000):
        state.add_batch(7, 0, number, 2 * number, 0, 0, 0, is_transactional=True)
        state.end_transaction(7, 0, 0, 2 * number + 1, 0, 0)
    assert state.last_stable_offset(1) <= 0
    assert state.last_stable_offset(9999) == 9998
    assert state.last_stable_offset(10_000) == 10_000


def test_an_aborted_transaction_of_a_leader_is_indexed(scene):
    scene.open()
    scene.write(7, 0, transactional=True)
    scene.append()
    scene.end(7, committed=False)
    data = scene.content("00000000000000000000.log")
    follower = type(scene)()
    follower.open()
    follower.log.append_batches(memoryview(bytearray(data)), wall_ms=scene.wall_ms)
    assert follower.log.aborted_transactions(0, 10) == [(7, 0)]
    assert follower.log.first_unstable_offset is None
    assert follower.content("00000000000000000000.log") == data


def test_a_followers_full_disk_leaves_it_where_it_was(scene):
    scene.open()
    scene.write(7, 0, transactional=True)
    scene.end(7, committed=False)
    data = memoryview(bytearray(scene.content("00000000000000000000.log")))
    follower = type(scene)()
    follower.disk = FaultyDisk(MemoryDisk(), [Fault(Fail(28, written=5), "append", ".txnindex")])
    follower.open()
    with pytest.raises(DiskFull):
        follower.log.append_batches(data, wall_ms=scene.wall_ms)
    assert follower.log.log_end_offset == 1
    assert follower.log.first_unstable_offset == 0
    size = len(scene.batch(producer_id=7, producer_epoch=0, base_sequence=0))
    follower.log.append_batches(data[size:], wall_ms=scene.wall_ms)
    assert follower.log.aborted_transactions(0, 10) == [(7, 0)]
