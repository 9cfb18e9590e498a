"""Several log directories: new partitions spread over them, old ones are found where they lie."""

import pytest

from harness.desk import Desk
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.storage.errors import WrongDirectory
from headrace.storage.memory_disk import MemoryDisk


def logs_in(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list("") if name.startswith("t-")]


def test_partitions_spread_and_stay() -> None:
    desk = Desk(disks={"a": MemoryDisk(), "b": MemoryDisk()})
    desk.create_topic("t", 6)
    before = {p.index: p.directory for p in desk.node.partitions.of_name("t")}
    assert sorted(before.values()) == ["a"] * 3 + ["b"] * 3
    image = desk.node.metadata.image.topics["t"]
    for index, home in before.items():
        assert image.partitions[index].directories == (desk.node.partitions.directories[home].directory_id,)
    desk.ask(DescribeLogDirsRequest(topics=None), 4)
    assert len(logs_in(desk.disks["a"])) == len(logs_in(desk.disks["b"])) == 3

    # started again with the directories in another order
    desk = Desk(disks=dict(reversed(desk.disks.items())))
    assert {p.index: p.directory for p in desk.node.partitions.of_name("t")} == before


def test_a_directory_for_metadata_alone_gets_no_partitions() -> None:
    disks = {"data": MemoryDisk(), "meta": MemoryDisk()}
    desk = Desk({"log.dirs": "data", "metadata.log.dir": "meta"}, disks=disks)
    desk.create_topic("t", 4)
    desk.ask(DescribeLogDirsRequest(topics=None), 4)
    assert {p.directory for p in desk.node.partitions.of_name("t")} == {"data"}
    assert "__cluster_metadata-0" in disks["meta"].list("")
    assert "__cluster_metadata-0" not in disks["data"].list("")


def test_without_its_metadata_a_node_does_not_start() -> None:
    """It would take every partition for a stray and remove it."""
    disks = {"a": MemoryDisk(), "b": MemoryDisk()}
    desk = Desk(disks=disks)
    desk.create_topic("t", 2)
    desk.ask(DescribeLogDirsRequest(topics=None), 4)
    with pytest.raises(WrongDirectory, match="no __cluster_metadata-0"):
        Desk(disks={"b": disks["b"]})
    assert logs_in(disks["b"])
