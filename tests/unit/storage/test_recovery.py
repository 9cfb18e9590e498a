"""What a restart trusts, what it looks at again, and that it keeps exactly the valid prefix."""

from itertools import pairwise

import pytest

from headrace.records.batch import assign
from headrace.records.builder import build_batch
from headrace.storage import compaction
from headrace.storage.config import LogConfig
from headrace.storage.errors import DamagedBatch
from headrace.storage.faulty_disk import FaultyDisk
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import Recovery

ACTIVE = "00000000000000000000.log"


def fill(scene, count=20, **options):
    scene.config = LogConfig(**{"index_interval_bytes": 300, **options})
    scene.open()
    for _ in range(count):
        scene.append(2, size=30)
    scene.log.checkpoint()


def reopened(scene, trust, **options):
    scene.files = OpenFiles()
    return scene.open(trust, **options)


def test_a_clean_log_is_opened_without_looking_into_any_file(scene):
    fill(scene, segment_bytes=800)
    scene.log.close(clean=True)
    scene.disk = FaultyDisk(scene.disk)
    reopened(scene, "clean", recovery_point=40)
    assert [call.operation for call in scene.disk.calls] == ["list"]
    assert scene.log.log_end_offset == 40
    assert scene.bases() == list(range(0, 40, 2))


@pytest.mark.parametrize("trust", ["killed", "lost"])
def test_everything_written_is_found_again(scene, trust):
    fill(scene, segment_bytes=800)
    reopened(scene, trust)
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (0, 40)
    assert scene.bases() == list(range(0, 40, 2))
    scene.append()
    assert scene.log.log_end_offset == 41


def test_after_a_kill_only_the_end_of_the_active_segment_is_walked(scene):
    fill(scene, count=400, segment_bytes=30_000)
    scene.disk = FaultyDisk(scene.disk)
    reopened(scene, "killed")
    reads = [call for call in scene.disk.calls if call.operation == "read" and ".log" in call.path]
    assert {call.path for call in reads} == {f"orders-0/{scene.names('.log')[-1]}"}
    assert scene.log.log_end_offset == 800


def test_sealed_segments_below_the_recovery_point_are_not_read_after_a_loss(scene):
    fill(scene, count=100, segment_bytes=2000)
    scene.flush()
    point = scene.log.flushed_offset
    sealed = scene.names(".log")[:-2]
    damaged = f"orders-0/{sealed[0]}"
    scene.disk.flip(damaged, 70, 0xFF)  # an old checksum is wrong now, and nobody asks
    reopened(scene, "lost", recovery_point=point)
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (0, 200)


@pytest.mark.parametrize("trust", ["killed", "lost"])
def test_a_torn_batch_is_cut_off_wherever_it_was_torn(scene, trust):
    fill(scene, count=3)
    whole = scene.content(ACTIVE)
    size = len(whole) // 3
    for left in range(2 * size, 3 * size):
        disk = MemoryDisk()
        disk.make_dir("orders-0")
        file = disk.open(f"orders-0/{ACTIVE}", create=True)
        file.append(whole[:left])
        scene.disk = disk
        reopened(scene, trust)
        assert scene.log.log_end_offset == 4
        assert len(scene.content(ACTIVE)) == 2 * size


def test_a_wrong_checksum_ends_the_log_of_a_lost_machine(scene):
    fill(scene, count=3)
    size = len(scene.content(ACTIVE)) // 3
    scene.disk.flip(f"orders-0/{ACTIVE}", 2 * size + 80, 0x01)
    reopened(scene, "lost")
    assert scene.bases() == [0, 2]


def test_a_wrong_checksum_that_no_kill_explains_costs_one_batch(scene):
    fill(scene, count=3)
    size = len(scene.content(ACTIVE)) // 3
    scene.disk.flip(f"orders-0/{ACTIVE}", 2 * size + 80, 0x01)
    reopened(scene, "killed")
    assert scene.log.log_end_offset == 6
    assert len(scene.content(ACTIVE)) == 3 * size
    (damage,) = scene.log.damages
    assert damage.path == f"orders-0/{ACTIVE}"
    with pytest.raises(DamagedBatch):
        scene.log.read(4, max_bytes=1, limit_offset=6, at_least_one=True)


def test_what_lies_behind_a_broken_segment_goes_with_it(scene):
    """Nothing of it was flushed: what is left of a lost host's log is a beginning of it."""
    fill(scene, count=30, segment_bytes=800)
    second = scene.names(".log")[1]
    scene.disk.flip(f"orders-0/{second}", 100, 0x01)
    reopened(scene, "lost", recovery_point=2)
    assert scene.log.log_end_offset == int(second[:20])
    assert scene.names(".log") == [scene.names(".log")[0], second]
    assert all(int(name[:20]) <= int(second[:20]) for name in scene.names(".snapshot"))


def test_a_segment_that_is_missing_in_the_unflushed_part_ends_the_log(scene):
    fill(scene, count=30, segment_bytes=800)
    names = scene.names(".log")
    for suffix in (".log", ".index", ".timeindex"):
        scene.disk.remove("orders-0/" + names[2].replace(".log", suffix))
    reopened(scene, "lost")
    assert scene.log.log_end_offset == int(names[2][:20])
    assert scene.names(".log") == names[:2]


@pytest.mark.parametrize("damage", ["missing", "torn", "zeros"])
@pytest.mark.parametrize("trust", ["killed", "lost"])
def test_indexes_are_rebuilt_when_they_cannot_be_trusted(scene, trust, damage):
    fill(scene, count=40)
    scene.log.close(clean=True)
    index = scene.names(".index")[0]
    before = scene.content(index), scene.content(index.replace(".index", ".timeindex"))
    assert before[0]
    if damage == "missing":
        scene.disk.remove(f"orders-0/{index}")
    else:
        file = scene.disk.open(f"orders-0/{index}")
        size = file.size()
        file.truncate(size - 3 if damage == "torn" else 0)
        if damage == "zeros":
            file.append(bytes(size))
    reopened(scene, trust)
    assert scene.log.log_end_offset == 80
    assert scene.bases() == list(range(0, 80, 2))
    scene.log.close(clean=True)
    assert (scene.content(index), scene.content(index.replace(".index", ".timeindex"))) == before


def test_leader_epochs_are_read_from_batches_when_their_file_is_lost(scene):
    scene.open()
    for epoch in (1, 1, 4):
        scene.append(leader_epoch=epoch)
    scene.disk.remove("orders-0/leader-epoch-checkpoint")
    reopened(scene, "lost")
    assert scene.log.latest_epoch == 4
    assert scene.log.epoch_end_offset(1) == (1, 2)


def test_files_that_a_crash_left_half_done_are_cleared_away(scene):
    fill(scene, segment_bytes=800)
    first = scene.names(".log")[0]
    orphan = "00000000000000009999.index"
    for name in (first + ".deleted", first + ".cleaned", "00000000000000000000.index.tmp", orphan):
        scene.disk.open(f"orders-0/{name}", create=True).append(b"x")
    reopened(scene, "killed")
    assert [name for name in scene.names() if name.count(".") > 1 or name == orphan] == []
    assert scene.bases() == list(range(0, 40, 2))


def test_a_start_offset_beyond_what_was_recovered_gives_an_empty_log_there(scene):
    fill(scene, count=5)
    reopened(scene, "lost", log_start=50)
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (50, 50)
    scene.append()
    assert scene.bases() == [50]
    reopened(scene, "killed", log_start=50)
    assert scene.bases() == [50]


def test_unflushed_batches_are_lost_with_the_machine_and_flushed_ones_are_not(scene):
    fill(scene, count=5)
    scene.flush()
    flushed = scene.log.flushed_offset
    for _ in range(5):
        scene.append(2, size=30)

    class Unlucky:
        def randrange(self, stop):
            return 0

        def randbytes(self, n):
            return bytes(n)

    scene.disk = scene.disk.crash("lost", Unlucky())
    reopened(scene, "lost", recovery_point=flushed)
    assert scene.log.log_end_offset == flushed
    assert scene.bases() == list(range(0, flushed, 2))


@pytest.mark.parametrize("claimed", [0, 3])
def test_a_clean_end_that_nobody_has_checked_is_compared_with_the_log(scene, claimed):
    """A recovery point without a checksum, as Kafka writes it: the log goes on behind it, also when it is the
    offset with which the active segment begins.
    """
    scene.open()
    for _ in range(2):
        scene.append(3)
    scene.log.close(clean=True)
    recovery = Recovery("clean", claimed, is_checked=False)
    log = PartitionLog.open(
        scene.disk, "orders-0", scene.config, files=OpenFiles(), recovery=recovery, wall_ms=scene.wall_ms
    )
    assert log.log_end_offset == 6


def test_a_segment_that_was_merged_away_and_came_back_goes_and_others_stay(scene):
    """A lost machine forgot the removal of the second segment. The third one looks merged by nothing."""
    scene.config = LogConfig(segment_bytes=100_000, cleanup_policy=frozenset({"compact"}))
    scene.open()
    for keys in ((b"a", b"b"), (b"a", b"c"), (b"d",), (b"e",)):
        for key in keys:
            scene.send(build_batch([(scene.wall_ms, key, b"%d" % scene.log.log_end_offset, ())]))
        scene.log.roll(scene.wall_ms)
        scene.flush()
    old = {name: data for name, data in scene.disk.files() if "/00000000000000000002." in name}
    segments = [compaction._source(*pair) for pair in pairwise(scene.log.segments.items)]
    job = scene.log.clean_job(scene.wall_ms, scene.log.log_end_offset)
    job.sources = segments[:2]
    for doomed in scene.log.complete_cleaning(job.run(scene.disk), scene.wall_ms):
        doomed.remove_job().run(scene.disk)
    assert scene.bases() == [1, 2, 3, 4, 5]
    for name, data in old.items():
        scene.disk.open(name, create=True).append(data)
    reopened(scene, "lost", recovery_point=6)
    assert scene.bases() == [1, 2, 3, 4, 5]
    assert [segment.base_offset for segment in scene.log.segments.items] == [0, 4, 5, 6]


def archived(offset, count):
    """Batches as they lie in a file: the value of a record."""
    copies = [bytearray(build_batch([(0, b"key", b"archived", ())])) for _ in range(count)]
    for number, copy in enumerate(copies):
        assign(memoryview(copy), 0, offset + number, 0)
    return b"".join(copies)


@pytest.mark.parametrize("count", [1, 40], ids=["one", "many"])
@pytest.mark.parametrize("trust", ["killed", "lost"])
def test_batches_in_a_record_of_a_batch_that_was_not_written_whole_are_no_batches_of_the_log(
    scene, trust, count
):
    """A large batch is written in pieces, and a stop comes between two of them."""
    scene.open()
    scene.append(3)
    large = build_batch([(scene.wall_ms, None, archived(50, count) + bytes(5_000), ())])
    whole = memoryview(bytearray(large))
    for _ in range(2):
        assert not scene.log.write_ahead(whole, wall_ms=scene.wall_ms, leader_epoch=0, piece_bytes=1_000)
    reopened(scene, trust)
    assert (scene.log.log_end_offset, scene.log.damages) == (3, [])
    assert scene.send(large).base_offset == 3
