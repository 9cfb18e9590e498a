"""A data directory: whose it is, how its last stop is judged, and what its small files say."""

import errno
from random import Random

import pytest

from harness.log_directories import open_log_directory
from headrace.base.ids import id_text
from headrace.records.builder import build_batch
from headrace.storage.config import LogConfig
from headrace.storage.disk import read_whole
from headrace.storage.errors import DamagedProperties, InconsistentTopicId, LogOffline, WrongDirectory
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles
from headrace.storage.partition_directories import DOOMED

WALL_MS = 1_700_000_000_000
DIRECTORY_ID = bytes(range(16))
TOPIC_ID = bytes(range(16, 32))


def open_directory(disk, *, boot_id="boot-1", node_id=1, cluster_id="cluster", files=None):
    return open_log_directory(
        disk,
        "data",
        node_id=node_id,
        cluster_id=cluster_id,
        directory_id_if_new=DIRECTORY_ID,
        boot_id=boot_id,
        files=OpenFiles() if files is None else files,
    )


def open_log(directory, partition=0, *, topic="orders", topic_id=TOPIC_ID):
    return directory.open_log(topic, partition, topic_id, LogConfig(), WALL_MS)


def append(log, count=1):
    batch = build_batch([(WALL_MS, b"k", b"v", ())] * count)
    log.append(memoryview(bytearray(batch)), wall_ms=WALL_MS, leader_epoch=0)


def test_a_new_directory_says_whose_it_is():
    disk = MemoryDisk()
    assert open_directory(disk).directory_id == DIRECTORY_ID
    lines = read_whole(disk, "meta.properties").decode().splitlines()
    assert set(lines) == {
        "version=1",
        "cluster.id=cluster",
        "node.id=1",
        f"directory.id={id_text(DIRECTORY_ID)}",
    }


def test_a_directory_with_partitions_that_lost_its_properties_is_not_new():
    disk = MemoryDisk()
    append(open_log(open_directory(disk)))
    disk.remove("meta.properties")
    before = dict(disk.files())
    with pytest.raises(DamagedProperties, match=r"data has partitions, but no meta\.properties"):
        open_directory(disk)
    assert dict(disk.files()) == before


def test_names_like_those_of_partitions_do_not_make_a_directory_old():
    """An empty directory, which nobody has written to, and somebody's file."""
    disk = MemoryDisk()
    disk.make_dir("orders-0")
    disk.open("notes-1", create=True).append(b"x")
    assert open_directory(disk).directory_id == DIRECTORY_ID


def test_kafkas_meta_properties_are_understood():
    disk = MemoryDisk()
    text = b"#\n#Sun Nov 15 22:33:25 UTC 2026\nnode.id=1\ndirectory.id=VCsBaqH0K--WGxADuYvmDg\n"
    disk.open("meta.properties", create=True).append(text + b"version=1\ncluster.id=cluster\n")
    assert id_text(open_directory(disk).directory_id) == "VCsBaqH0K--WGxADuYvmDg"


@pytest.mark.parametrize("other", [{"node_id": 2}, {"cluster_id": "another"}])
def test_another_nodes_directory_is_refused(other):
    disk = MemoryDisk()
    open_directory(disk)
    with pytest.raises(WrongDirectory):
        open_directory(disk, **other)


def test_the_last_stop_is_judged_by_marker_and_boot_id():
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(open_log(directory))
    assert open_directory(disk).trust == "killed"
    assert open_directory(disk, boot_id="boot-2").trust == "lost"
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(open_log(directory))
    directory.close_clean({("orders", 0): 1})
    assert read_whole(disk, ".kafka_cleanshutdown").startswith(b'{"version":0')
    again = open_directory(disk)
    assert again.trust == "clean"
    assert not disk.exists(".kafka_cleanshutdown")
    assert open_log(again).log_end_offset == 1
    assert again.high_watermark("orders", 0) == 1
    assert open_directory(disk).trust == "killed"


def test_a_lost_machine_stays_lost_until_every_log_was_recovered():
    disk = MemoryDisk()
    directory = open_directory(disk)
    for partition in (0, 1):
        append(open_log(directory, partition))
    second = open_directory(disk, boot_id="boot-2")
    open_log(second, 0)
    assert open_directory(disk, boot_id="boot-2").trust == "lost"
    open_log(second, 1)
    assert open_directory(disk, boot_id="boot-2").trust == "killed"


@pytest.mark.parametrize("has_jobs", [False, True])
def test_a_kill_soon_after_the_loss_of_the_machine_has_lost_nothing_more(has_jobs):
    """The high watermark on the disk speaks of records that the host lost before they were flushed."""
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = open_log(directory)
    append(log, 3)
    log.complete_flush(log.flush_job().run(disk))
    size = disk.open("orders-0/00000000000000000000.log").size()
    append(log, 2)
    directory.checkpoint({("orders", 0): 5})
    disk.open("orders-0/00000000000000000000.log").truncate(size)
    lost = open_directory(disk, boot_id="boot-2")
    if has_jobs:
        lost.checkpoint_job({})  # that is written later, or never
    assert open_log(lost).log_end_offset == 3
    killed = open_directory(disk, boot_id="boot-2")
    assert killed.trust == ("lost" if has_jobs else "killed")
    again = open_log(killed)
    assert (again.log_end_offset, again.damages) == (3, [])


@pytest.mark.parametrize("written", [0, 5])
def test_a_note_of_distrust_that_was_cut_short_is_one(written):
    disk = FaultyDisk(MemoryDisk())
    directory = open_directory(disk)
    append(open_log(directory))
    disk.faults.append(Fault(Fail(errno.ENOSPC, written), "append", ".headrace_boot_id"))
    assert not directory.distrust()
    disk.calls.clear()
    again = open_directory(disk)
    assert again.trust == "lost"
    assert open_log(again).log_end_offset == 1
    written_again = "orders-0/00000000000000000000.log.tmp"
    assert any(call.operation == "append" and call.path == written_again for call in disk.calls)


def test_a_log_not_opened_since_a_kill_is_not_vouched_for():
    """Logs open late: a clean stop must not turn an old recovery point into the log's end."""
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = open_log(directory)
    append(log, 3)
    directory.checkpoint({})
    append(log, 2)
    killed = open_directory(disk)
    assert killed.trust == "killed"
    killed.close_clean({})  # nobody has asked for the log
    assert open_log(open_directory(disk)).log_end_offset == 5


def test_checkpoints_are_kafkas_byte_for_byte():
    disk = MemoryDisk()
    directory = open_directory(disk)
    logs = [open_log(directory, partition) for partition in (0, 1)]
    append(logs[0], 5)
    job = logs[0].flush_job()
    logs[0].complete_flush(job.run(disk))
    logs[0].advance_log_start(2, WALL_MS)
    directory.checkpoint({("orders", 0): 4, ("orders", 1): 0})
    assert read_whole(disk, "recovery-point-offset-checkpoint") == b"0\n2\norders 0 5\norders 1 0\n"
    assert read_whole(disk, "log-start-offset-checkpoint") == b"0\n1\norders 0 2\n"
    assert read_whole(disk, "replication-offset-checkpoint") == b"0\n2\norders 0 4\norders 1 0\n"
    assert read_whole(disk, "orders-0/partition.metadata") == (
        f"version: 0\ntopic_id: {id_text(TOPIC_ID)}".encode()
    )
    assert read_whole(disk, "orders-0/leader-epoch-checkpoint") == b"0\n1\n0 2\n"


def test_deleted_records_stay_deleted_after_a_kill():
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(open_log(directory), 5)
    open_log(directory).advance_log_start(3, WALL_MS)
    directory.checkpoint({})
    assert open_log(open_directory(disk)).log_start_offset == 3


def test_offsets_of_logs_that_were_not_opened_are_kept():
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(open_log(directory, 0), 3)
    append(open_log(directory, 1), 4)
    directory.close_clean({("orders", 0): 3, ("orders", 1): 4})
    again = open_directory(disk)
    open_log(again, 1)
    again.close_clean({("orders", 1): 4})
    assert open_log(open_directory(disk), 0).log_end_offset == 3


@pytest.mark.parametrize(
    "content", [b"", b"1\n0\n", b"0\n5\norders 0 1\n", b"0\n1\norders zero 1\n", b"\xff"]
)
def test_a_checkpoint_that_makes_no_sense_vouches_for_nothing(content):
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(open_log(directory), 3)
    directory.close_clean({})
    file = disk.open("recovery-point-offset-checkpoint")
    file.truncate(0)
    file.append(content)
    assert open_log(open_directory(disk)).log_end_offset == 3


def test_a_partition_of_another_topic_of_the_same_name_is_refused():
    disk = MemoryDisk()
    open_log(open_directory(disk))
    with pytest.raises(InconsistentTopicId):
        open_log(open_directory(disk), topic_id=bytes(16))


def test_lists_what_it_holds():
    disk = MemoryDisk()
    directory = open_directory(disk)
    open_log(directory, 1, topic="with-dash")
    open_log(directory, 0)
    assert open_directory(disk).partitions() == [("orders", 0, TOPIC_ID), ("with-dash", 1, TOPIC_ID)]


def test_a_doomed_partition_frees_its_name_at_once():
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(open_log(directory), 3)
    job = directory.doom("orders", 0)
    assert directory.partitions() == []
    assert open_log(directory, topic_id=bytes(range(1, 17))).log_end_offset == 0
    doomed = [name for name in disk.list("") if name.endswith("-delete")]
    assert doomed == [f"orders-0.{TOPIC_ID.hex()}-delete"]
    assert [name for name in open_directory(disk).names() if name.endswith(DOOMED)] == doomed
    job.run(disk)
    job.run(disk)
    assert not disk.exists(doomed[0])


def test_a_long_topic_name_still_fits_when_it_is_doomed():
    disk = MemoryDisk()
    directory = open_directory(disk)
    name = "t" * 249
    open_log(directory, topic=name)
    job = directory.doom(name, 0)
    assert len(job.directory) <= 255
    assert job.directory.endswith("-delete")


def test_one_failing_log_takes_the_directory_offline():
    disk = FaultyDisk(MemoryDisk())
    directory = open_directory(disk)
    first, second = open_log(directory, 0), open_log(directory, 1)
    append(first)
    disk.faults = [Fault(Fail(errno.EIO), "append", ".log")]
    with pytest.raises(LogOffline):
        append(first)
    assert directory.is_offline
    with pytest.raises(LogOffline):
        append(second)
    with pytest.raises(LogOffline):
        open_log(directory, 2)


def test_an_idle_log_is_not_opened_by_a_clean_stop_and_start():
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(open_log(directory), 3)
    directory.close_clean({})
    faulty = FaultyDisk(disk)
    again = open_directory(faulty)
    open_log(again)
    faulty.calls.clear()
    again.close_clean({})
    assert [call for call in faulty.calls if call.path.startswith("orders-0")] == []


def test_files_of_a_directory_that_was_put_aside_are_forgotten():
    """The next log of its name would be read from the files of the old one."""
    disk, files = MemoryDisk(), OpenFiles()
    append(open_log(open_directory(disk)), 3)
    directory = open_directory(disk, files=files)
    (name,) = [name for name in disk.list("orders-0") if name.endswith(".log")]
    files.file(disk, f"orders-0/{name}")
    directory.put_aside("orders", 0, "unknown", WALL_MS)
    assert len(files) == 0


@pytest.mark.parametrize("job", ["log starts", "everything", "none"])
@pytest.mark.parametrize("went_by", ["deletion", "being put aside"])
def test_a_new_log_believes_nothing_that_was_said_of_an_earlier_one_of_its_name(went_by, job):
    """The mark that says so went with a checkpoint that left the old high watermark in its file, and after a
    kill the new log ended there, with a gap.
    """
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(open_log(directory), 38)
    directory.checkpoint({("orders", 0): 38})
    if went_by == "deletion":
        directory.doom("orders", 0)
    else:
        directory = open_directory(disk)
        directory.put_aside("orders", 0, "unknown", WALL_MS)
    other = bytes(range(1, 17))
    append(open_log(directory, topic_id=other), 6)
    if job == "log starts":
        directory.log_start_job({}).run(disk)
    elif job == "everything":
        directory.checkpoint({("orders", 0): 6})
    again = open_directory(disk)
    assert open_log(again, topic_id=other).log_end_offset == 6
    assert again.high_watermark("orders", 0) <= 6


def test_a_log_that_is_doomed_is_not_among_the_partitions():
    """Also if it was there before the start."""
    disk = MemoryDisk()
    append(open_log(open_directory(disk)))
    for _ in range(2):
        directory = open_directory(disk)
        assert [(topic, index) for topic, index, _ in directory.partitions()] == [("orders", 0)]
        open_log(directory)
        directory.doom("orders", 0).run(disk)
        assert directory.partitions() == []
        append(open_log(directory))


@pytest.mark.parametrize("kind", ["killed", "lost"])
def test_a_stop_during_the_first_checkpoint_does_not_look_as_if_log_starts_were_lost(kind):
    for calls in range(100):
        memory = MemoryDisk()
        disk = FaultyDisk(memory)
        directory = open_directory(disk)
        append(open_log(directory))
        disk.faults.append(Fault(Crash(), skip=calls))
        try:
            directory.checkpoint({("orders", 0): 1})
        except DiskCrashed:
            left = memory.crash(kind, Random(calls))
            assert not open_directory(left).has_lost_starts, f"after {calls} calls"
        else:
            break
    assert calls > 10


def test_where_a_log_starts_that_has_lost_its_segments_is_not_taken_for_deleted():
    """Other replicas have its records. A checkpoint with the later start would hide the loss from the next
    start.
    """
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(open_log(directory), count=5)
    directory.close_clean({("orders", 0): 5})
    disk.remove(f"orders-0/{0:020}.log")
    for _ in range(2):
        directory = open_directory(disk)
        log = directory.open_log("orders", 0, TOPIC_ID, LogConfig(), WALL_MS, has_copies=True)
        assert (log.log_start_offset, log.log_end_offset, log.kept_start()) == (5, 5, 0)
        assert [damage.offset for damage in log.damages] == [0]
        directory.checkpoint({})
    append(log, count=2)
    log.advance_log_start(6, WALL_MS)
    assert log.kept_start() == 6


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_a_segment_that_was_lost_after_a_clean_stop_costs_no_other_one(boot_id):
    """Without a clean stop it would look like one that retention has removed, with all before it."""
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=200)
    directory = open_directory(disk)
    log = directory.open_log("orders", 0, TOPIC_ID, config, WALL_MS)
    for _ in range(12):
        append(log)
    bases = [segment.base_offset for segment in log.segments.items]
    directory.close_clean({("orders", 0): 12})
    lost = bases[2]
    for name in disk.list("orders-0"):
        if name.startswith(f"{lost:020}"):
            disk.remove(f"orders-0/{name}")
    directory = open_directory(disk, boot_id=boot_id)
    log = directory.open_log("orders", 0, TOPIC_ID, config, WALL_MS)
    assert (log.log_start_offset, log.log_end_offset) == (0, 12)
    assert [segment.base_offset for segment in log.segments.items] == [one for one in bases if one != lost]
    if boot_id == "boot-2":  # else no file was looked at
        assert [damage.offset for damage in log.damages] == [lost]
