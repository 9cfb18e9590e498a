"""Several log directories: new partitions spread over them, old ones are found where they lie."""

import errno
from random import Random
from typing import Literal, NoReturn

import pytest

from harness.batches import Batch, Row
from harness.disks import memory_of
from headrace.node.effects import Report
from headrace.node.partition import Partition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.simulator.manual_host import ManualHost
from headrace.storage import checkpoints
from headrace.storage.disk import Disk, read_whole
from headrace.storage.errors import LogOffline, StorageError, WrongDirectory
from headrace.storage.faulty_disk import (
    CHANGES,
    OPENS,
    Crash,
    DiskCrashed,
    Fail,
    Fault,
    FaultyDisk,
    Operation,
)
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.moving import FUTURE, MOVED, moving_name
from headrace.storage.stop_record import CLEAN_MARKER


def logs_in(disk: Disk) -> list[str]:
    return [name for name in disk.list("") if name.startswith("t-")]


def test_partitions_spread_and_stay() -> None:
    host = ManualHost(disks={"a": MemoryDisk(), "b": MemoryDisk()})
    host.create_topic("t", 6)
    before = {p.index: p.directory for p in host.partitions("t")}
    assert sorted(before.values()) == ["a"] * 3 + ["b"] * 3
    image = host.node.controller.metadata.image.topics["t"]
    for index, home in before.items():
        assert image.partitions[index].directories == (host.node.directories[home].directory_id,)
    host.ask(DescribeLogDirsRequest(topics=None), 4)
    assert len(logs_in(host.disks["a"])) == len(logs_in(host.disks["b"])) == 3

    # started again with the directories in another order
    host = ManualHost(disks=dict(reversed(host.disks.items())))
    assert {p.index: p.directory for p in host.partitions("t")} == before


def test_a_directory_for_metadata_alone_gets_no_partitions() -> None:
    disks = {"data": MemoryDisk(), "meta": MemoryDisk()}
    host = ManualHost({"log.dirs": "data", "metadata.log.dir": "meta"}, disks=disks)
    host.create_topic("t", 4)
    host.ask(DescribeLogDirsRequest(topics=None), 4)
    assert {p.directory for p in host.partitions("t")} == {"data"}
    assert "__cluster_metadata-0" in disks["meta"].list("")
    assert "__cluster_metadata-0" not in disks["data"].list("")


def test_without_its_metadata_a_node_does_not_start() -> None:
    """It would take every partition for a stray and remove it."""
    disks = {"a": MemoryDisk(), "b": MemoryDisk()}
    host = ManualHost(disks=disks)
    host.create_topic("t", 2)
    host.ask(DescribeLogDirsRequest(topics=None), 4)
    with pytest.raises(WrongDirectory, match="no __cluster_metadata-0"):
        ManualHost(disks={"b": disks["b"]})
    assert logs_in(disks["b"])


class Unreadable(MemoryDisk):
    """A directory that the kernel refuses: no permission, a file in its place, a disk that is gone."""

    def open(self, path: str, /, *, create: bool = False) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    def list(self, path: str, /) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    def exists(self, path: str, /) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", path)


def with_records() -> dict[str, MemoryDisk]:
    disks = {"a": MemoryDisk(), "b": MemoryDisk()}
    host = ManualHost(disks=dict(disks))
    host.create_topic("t", 4)
    batch = Batch([Row(1_700_000_000_000, None, b"x")]).sent()
    for partition in range(4):
        reply = host.ask(host.produce_request("t", batch, partition=partition), 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
    return {name: disk.crash("killed") for name, disk in disks.items()}


def test_one_unreadable_directory_costs_its_own_partitions() -> None:
    """Kafka 4.3.1 serves the others, too. Offsets of what lies there are given to nobody else."""
    disks = with_records()
    host = ManualHost(disks={"a": disks["a"], "b": Unreadable()})
    partitions = host.partitions("t")
    assert sorted(p.is_offline for p in partitions) == [False, False, True, True]
    batch = Batch([Row(1_700_000_000_000, None, b"y")]).sent()
    for partition in partitions:
        reply = host.ask(host.produce_request("t", batch, partition=partition.index), 9)
        code = reply.responses[0].partition_responses[0].error_code
        assert code == (ErrorCode.KAFKA_STORAGE_ERROR if partition.is_offline else 0)
    # and the directory comes back
    again = ManualHost(disks={"a": disks["a"].crash("killed"), "b": disks["b"]})
    ends = [p.opened(again.clock.now()).log_end_offset for p in again.partitions("t")]
    assert sorted(ends) == [1, 1, 2, 2]


EVERYTHING: frozenset[Operation] = CHANGES | OPENS | {"read"}


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_a_start_during_which_a_directory_fails_serves_the_others(boot_id: str) -> None:
    """Wherever it fails. Only where a log may have been on its way here the start is refused."""
    whole = with_records()
    skip = 0
    refused = 0
    while True:
        disks = {name: disk.clone() for name, disk in whole.items()}
        fault = Fault(Fail(errno.EIO), EVERYTHING, skip=skip)
        try:
            host = ManualHost(disks={"a": disks["a"], "b": FaultyDisk(disks["b"], [fault])}, boot_id=boot_id)
        except LogOffline:
            refused += 1
        else:
            assert host.halted is None
            sound = [one for one in of_t(host) if one.directory == "a"]
            assert [one.opened(host.clock.now()).log_end_offset for one in sound] == [1, 1]
            # clients are told at once, and not when somebody first touches the log
            is_offline = host.node.directories["b"].is_offline
            assert [one.is_offline for one in of_t(host) if one.directory == "b"] == [is_offline] * 2
        if fault.times:
            break
        again = ManualHost(
            disks={name: disk.crash("killed") for name, disk in disks.items()}, boot_id=boot_id
        )
        assert [one.opened(again.clock.now()).log_end_offset for one in of_t(again)] == [1] * 4
        assert again.node.broker.strays.count == 0
        skip += 1
    assert skip > 12
    assert refused == 1


NEEDING_SPACE: frozenset[Operation] = CHANGES - {"sync", "sync_dir", "truncate"}


def copied(disk: MemoryDisk, old: str, new: str, without: str = "") -> None:
    for path, data in disk.files():
        directory, _, name = path.rpartition("/")
        if directory == old and name != without:
            disk.make_dir(new)
            disk.open(f"{new}/{name}", create=True).append(data)


def stopped() -> dict[str, MemoryDisk]:
    disks = with_records()
    host = ManualHost(disks=dict(disks))
    for one in of_t(host):
        one.opened(host.clock.now())
    host.node.shutdown(host.clock.now())
    host.settle()
    assert all(disk.exists(CLEAN_MARKER) for disk in disks.values())
    return {name: disk.crash("killed") for name, disk in disks.items()}


def with_a_new_one() -> dict[str, MemoryDisk]:
    host = ManualHost(disks={"a": MemoryDisk()})
    host.create_topic("t", 4)
    for partition in range(4):
        batch = Batch([Row(1_700_000_000_000, None, b"x")]).sent()
        host.ask(host.produce_request("t", batch, partition=partition), 9)
    disk = host.disks["a"]
    assert isinstance(disk, MemoryDisk)
    return {"a": disk.crash("killed"), "b": MemoryDisk()}


def with_strays() -> dict[str, MemoryDisk]:
    """Unknown partitions, a log that has arrived, and one that was on its way."""
    disks = with_records()
    first, second = logs_in(disks["b"])
    metadata = read_whole(disks["b"], f"{first}/partition.metadata")
    topic_id = checkpoints.parse_partition_metadata(metadata)
    copied(disks["b"], first, "u-0")
    disks["b"].open("u-0/partition.metadata").truncate(0)
    disks["b"].open("u-0/partition.metadata").append(checkpoints.render_partition_metadata(b"u" * 16))
    copied(disks["b"], first, "v-0", "partition.metadata")
    copied(disks["b"], first, moving_name("t", 9, topic_id, FUTURE))
    copied(disks["b"], "u-0", moving_name("u", 0, b"u" * 16, MOVED))
    index = int(second.rpartition("-")[2])
    disks["b"].rename(second, moving_name("t", index, topic_id, MOVED))
    return disks


SCENES = {"killed": with_records, "stopped": stopped, "new": with_a_new_one, "strays": with_strays}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
@pytest.mark.parametrize("times", [1, 1_000])
@pytest.mark.parametrize("scene", SCENES)
def test_a_start_on_a_full_disk_costs_no_directory(scene: str, boot_id: str, code: int, times: int) -> None:
    """Whichever call has no space. A boot id that was there already took a directory offline, and so did new
    properties, the marker of a clean stop, and directories to be renamed.
    """
    whole = SCENES[scene]()
    for skip in range(60):
        disks = {name: disk.clone() for name, disk in whole.items()}
        full = Fault(Fail(code), NEEDING_SPACE, skip=skip, times=times)
        host = ManualHost(disks={"a": disks["a"], "b": FaultyDisk(disks["b"], [full])}, boot_id=boot_id)
        assert not host.node.directories.offline()
        if skip and full.times == times:
            break
        full.times = 0
        host.advance(2)  # what had no space is done as soon as there is some
        assert [one.opened(host.clock.now()).log_end_offset for one in of_t(host)] == [1] * 4
        assert not any(name.endswith((FUTURE, MOVED)) for name in disks["b"].list(""))
        assert host.node.broker.strays.count == (3 if scene == "strays" else 0)
        assert not disks["b"].exists(CLEAN_MARKER)
        again = ManualHost(
            disks={name: disk.crash("killed") for name, disk in disks.items()}, boot_id=boot_id
        )
        assert [one.opened(again.clock.now()).log_end_offset for one in of_t(again)] == [1] * 4
        assert again.node.broker.strays.count == (3 if scene == "strays" else 0)
    else:
        raise AssertionError("some calls never failed")


def test_a_stray_that_has_no_space_for_its_name_is_not_given_to_a_new_topic() -> None:
    """Without its partition.metadata nothing in the directory says whose it is."""
    disks = with_strays()
    full = Fault(Fail(errno.ENOSPC), "rename", "v-0", times=1_000)
    host = ManualHost(disks={"a": disks["a"], "b": FaultyDisk(disks["b"], [full])})
    host.create_topic("v")
    (partition,) = host.partitions("v")
    host.node.broker.partitions.relocate(partition, "b")
    batch = Batch([Row(1_700_000_000_000, None, b"x")]).sent()
    answer = host.ask(host.produce_request("v", batch), 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    full.times = 0
    host.advance(2)
    answer = host.ask(host.produce_request("v", batch), 9).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_partition_whose_directory_is_gone_is_reported() -> None:
    disks = stopped()
    (gone, _) = logs_in(disks["b"])
    for path, _ in list(disks["b"].files()):
        if path.startswith(f"{gone}/"):
            disks["b"].remove(path)
    disks["b"].remove(gone)
    host = ManualHost(disks=dict(disks))
    found = [one.facts for one in host.effects if isinstance(one, Report) and one.level == "warning"]
    assert [one["partition"] for one in found] == [gone]
    assert found[0]["log_end_offset"] == 1


def test_a_directory_that_is_offline_since_the_start_is_reported_once() -> None:
    """Its partitions are made later, and notice it later."""
    disks = with_records()
    disks["b"].open(CLEAN_MARKER, create=True).close()
    broken = FaultyDisk(disks["b"], [Fault(Fail(errno.EIO), "remove", CLEAN_MARKER)])
    host = ManualHost(disks={"a": disks["a"], "b": broken})
    for one in of_t(host):
        host.ask(host.produce_request("t", Batch([Row(1, None, b"x")]).sent(), partition=one.index), 9)
    reports = [one.event for one in host.effects if isinstance(one, Report)]
    assert reports.count("log_directory_offline") == 1


def test_a_log_that_cannot_be_renamed_for_its_deletion_costs_the_directory() -> None:
    disks = with_records()
    broken = FaultyDisk(disks["b"], [Fault(Fail(errno.EIO), "rename", "t-")])
    host = ManualHost(disks={"a": disks["a"], "b": broken})
    host.create_topic("other", 2)
    doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000)
    assert host.ask(doomed, 6).responses[0].error_code == 0, "the metadata says so already"
    assert host.node.directories["b"].is_offline
    others = host.partitions("other")
    assert {one.directory: one.is_offline for one in others} == {"a": False, "b": True}
    # and the next start deletes what is left
    again = ManualHost(disks={name: disk.crash("killed") for name, disk in disks.items()})
    again.advance(120)
    assert not [name for disk in again.disks.values() for name in disk.list("") if name.startswith("t-")]


def of_t(host: ManualHost) -> list[Partition]:
    return host.partitions("t")


def test_what_is_not_the_directory_of_a_partition_is_left_alone() -> None:
    disks = with_records()
    for name in ("notes-1", "t-00", "t-\u00b2"):
        disks["a"].open(name, create=True).close()
    host = ManualHost(disks=dict(disks))
    assert not any(one.is_offline for one in of_t(host))
    assert {"notes-1", "t-00", "t-\u00b2"} <= set(disks["a"].list(""))


def test_an_empty_directory_in_the_place_of_another_begins_nothing_again() -> None:
    """A mount that is missing: its partitions wait for it, and are not recreated in the empty directory."""
    disks = with_records()
    host = ManualHost(disks={"a": disks["a"], "b": MemoryDisk()})
    assert sorted(p.is_offline for p in host.partitions("t")) == [
        False,
        False,
        True,
        True,
    ]
    host.create_topic("new", 4)
    assert not any(p.is_offline for p in host.partitions("new"))


def test_an_unreadable_metadata_directory_refuses_the_start() -> None:
    disks = with_records()
    before = dict(disks["b"].files())
    with pytest.raises(LogOffline, match="Permission denied"):
        ManualHost({"metadata.log.dir": "a"}, disks={"a": Unreadable(), "b": disks["b"]})
    with pytest.raises(StorageError):
        ManualHost(disks={"a": Unreadable(), "b": disks["b"]})
    assert dict(disks["b"].files()) == before


@pytest.mark.parametrize("is_writable", [True, False], ids=["noted in it", "noted in the other"])
def test_after_a_failed_fsync_the_page_cache_is_not_taken_for_the_disk(is_writable: bool) -> None:
    """On the same boot the kernel calls the same bytes flushed: they are written again, to other pages."""
    memory = {"a": MemoryDisk(), "b": MemoryDisk()}
    broken = FaultyDisk(memory["b"])
    host = ManualHost({"metadata.log.dir": "a", "log.dirs": "a,b"}, disks={"a": memory["a"], "b": broken})
    host.create_topic("t", 2, flush_messages="1")
    (partition,) = [p for p in host.partitions("t") if p.directory == "b"]
    batch = Batch([Row(1_700_000_000_000, None, b"x")]).sent()
    request = host.produce_request("t", batch, partition=partition.index)
    assert host.ask(request, 9).responses[0].partition_responses[0].error_code == 0
    broken.faults.append(Fault(Fail(errno.EIO), "sync", path=".log"))
    if not is_writable:
        broken.faults.append(Fault(Fail(errno.EROFS), "open", path=".headrace_boot_id", times=100))
    code = host.ask(request, 9).responses[0].partition_responses[0].error_code
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.is_offline

    again = {name: FaultyDisk(disk.crash("killed")) for name, disk in memory.items()}
    host = ManualHost({"metadata.log.dir": "a", "log.dirs": "a,b"}, disks=dict(again))
    assert host.node.directories["a"].trust == "killed"
    assert host.node.directories["b"].trust == "lost"
    path = f"t-{partition.index}/00000000000000000000.log.tmp"
    assert any(call.operation == "append" and call.path == path for call in again["b"].calls)
    log = host.partitions("t")[partition.index].opened(host.clock.now())
    assert (log.log_end_offset, log.flushed_offset) == (2, 2)

    third = {name: memory_of(disk).crash("killed") for name, disk in again.items()}
    host = ManualHost({"metadata.log.dir": "a", "log.dirs": "a,b"}, disks=dict(third))
    assert host.node.directories["b"].trust == "killed"


def test_a_partition_that_is_made_while_its_directory_is_offline_is_known_to_lie_in_another() -> None:
    """A start that could read the first and not the second began it again in the first."""
    settings = {"log.dirs": "a,b", "metadata.log.dir": "meta"}
    disks = {"meta": MemoryDisk(), "a": MemoryDisk(), "b": MemoryDisk()}
    host = ManualHost(settings, disks=dict(disks))
    host.node.directories.go_offline(host.clock.now(), "a", OSError(errno.EIO, "Input/output error"))
    host.create_topic("t", 2)
    batch = Batch([Row(1_700_000_000_000, None, b"x")]).sent()
    for partition in range(2):
        reply = host.ask(host.produce_request("t", batch, partition=partition), 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
    assert [one.directory for one in of_t(host)] == ["b", "b"]
    left = {name: disk.crash("killed") for name, disk in disks.items()}
    again = ManualHost(settings, disks=left | {"b": Unreadable()})
    assert [one.is_offline for one in of_t(again)] == [True, True]
    whole = ManualHost(settings, disks=left)
    assert [one.opened(whole.clock.now()).log_end_offset for one in of_t(whole)] == [1, 1]


@pytest.mark.parametrize("kind", ["killed", "lost"])
def test_a_topic_whose_name_was_given_before_begins_with_offset_0_wherever_a_stop_cuts_in(
    kind: Literal["killed", "lost"],
) -> None:
    """After a kill before the mark of the new log was made, the log went on where the earlier topic had
    ended, and the earlier one's segments were reported to be missing.
    """
    batch = Batch([Row(1_700_000_000_000, None, b"x")]).sent

    def produce(host: ManualHost) -> int:
        reply = host.ask(host.produce_request("t", batch()), 9)
        result = reply.responses[0].partition_responses[0]
        assert result.error_code == 0
        return int(result.base_offset)

    for skip in range(1000):
        memory = MemoryDisk()
        disk = FaultyDisk(memory)
        host = ManualHost(disks={"data": disk})
        host.create_topic("t", flush_messages="1")
        assert [produce(host) for _ in range(5)][-1] == 4
        host.advance(11)  # the checkpoints tell where it ends
        host.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        fault = Fault(Crash(), skip=skip)
        disk.faults = [fault]
        acknowledged = 0
        try:
            host.create_topic("t", flush_messages="1")
            while acknowledged < 2:
                assert produce(host) == acknowledged
                acknowledged += 1
        except DiskCrashed:
            pass
        left = memory.crash(kind, Random(skip))
        again = ManualHost(disks={"data": left}, seed=7, boot_id="boot-1" if kind == "killed" else "boot-2")
        if again.node.broker.partitions.of_name("t") is not None:
            assert acknowledged <= produce(again) <= acknowledged + 1, f"call {skip}"
            assert of_t(again)[0].opened(again.clock.now()).log_start_offset == 0
            assert not again.node.reports.damages, f"call {skip}"
        if fault.times:
            assert skip > 10
            return
    raise AssertionError("it never came to an end")


def test_an_io_error_that_a_read_meets_costs_the_directory_soon() -> None:
    """It was noticed when somebody wrote, or when retention came to a partition of the directory."""
    disk = FaultyDisk(MemoryDisk())
    host = ManualHost({"log.dirs": "b", "metadata.log.dir": "meta"}, disks={"meta": MemoryDisk(), "b": disk})
    host.create_topic("t", 2)
    batch = Batch([Row(1_700_000_000_000, None, b"x")]).sent
    for partition in range(2):
        host.ask(host.produce_request("t", batch(), partition=partition), 9)
    of_t(host)[0].opened(host.clock.now()).roll(host.clock.now().wall_ms)  # what is read is not in memory
    host.advance(6)
    disk.faults = [Fault(Fail(errno.EIO), "read")]
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
    assert host.ask(request, 11).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    host.advance(6)
    assert [one.is_offline for one in of_t(host)] == [True, True]
    events = [one.event for one in host.effects if isinstance(one, Report)]
    assert events.count("log_directory_offline") == 1
