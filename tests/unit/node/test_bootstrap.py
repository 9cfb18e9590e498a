"""Users of `bootstrap.checkpoint`: known from the first start on, once, whenever the node stops."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.simulated_cluster import SimulatedCluster
from headrace.machines.metadata.errors import BadMetadata
from headrace.machines.metadata.security_image import credential_record
from headrace.machines.security.scram import SHA_256, SHA_512, credential_from_password
from headrace.node.bootstrap import BOOTSTRAP_FILE, has_started, read_bootstrap, write_bootstrap
from headrace.node.metadata_files import METADATA_DIRECTORY, logged_batches, snapshot_batches
from headrace.node.node import Node
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from headrace.protocol.metadata_records import ConfigRecord, FeatureLevelRecord, UserScramCredentialRecord
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


def user(name: str, mechanism: Any = SHA_512) -> UserScramCredentialRecord:
    salt = name.encode().ljust(16, b"s")
    return credential_record(name, mechanism.id, credential_from_password(mechanism, f"{name}'s", salt))


ALICE, BOB = user("alice"), user("bob", SHA_256)


def prepared(*users: UserScramCredentialRecord) -> MemoryDisk:
    disk = MemoryDisk()
    write_bootstrap(disk, users, wall_ms=0)
    return disk


def names(node: Node) -> set[str]:
    return {user for user, _ in node.controller.metadata.image.security.credentials}


def written(disk: Disk) -> list[str]:
    """The users' records in the log."""
    return [
        record.name
        for batch in logged_batches(disk, METADATA_DIRECTORY, 0, None)
        for record in batch.records
        if isinstance(record, UserScramCredentialRecord) and record.name  # without the secret of the salts
    ]


def test_the_file_is_read_as_it_was_written() -> None:
    disk = prepared(ALICE, BOB)
    assert read_bootstrap(disk) == [ALICE, BOB]
    write_bootstrap(disk, [BOB], wall_ms=1)
    assert read_bootstrap(disk) == [BOB]
    assert read_bootstrap(MemoryDisk()) == []


def test_the_first_start_makes_them_users_in_one_batch_with_the_versions() -> None:
    host = ManualHost(disks={"data": prepared(ALICE, BOB)})
    assert names(host.node) == {"alice", "bob"}
    batches = logged_batches(host.disks["data"], METADATA_DIRECTORY, 0, None)
    first = next(batch.records for batch in batches if batch.records)
    assert isinstance(first[0], FeatureLevelRecord)
    users = [record for record in first if isinstance(record, UserScramCredentialRecord)]
    assert users[:2] == [ALICE, BOB]
    assert [record.name for record in users[2:]] == [""], "the secret of the salts comes with them"


def test_later_starts_do_not_look_at_them() -> None:
    host = ManualHost(disks={"data": prepared(ALICE, BOB)})
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="alice", mechanism=SHA_512.id)]
    )
    assert host.ask(request, 0).results[0].error_code == 0
    host.restart()
    assert names(host.node) == {"bob"}, "a user that was removed does not come back"
    write_bootstrap(host.disks["data"], [user("eve")], wall_ms=0)
    host.restart()
    assert names(host.node) == {"bob"}
    assert written(host.disks["data"]) == ["alice", "bob"]


@pytest.mark.parametrize("kind", ["killed", "lost"])
def test_a_stop_at_every_disk_call_of_the_first_start_neither_loses_nor_doubles_them(kind: Any) -> None:
    whole = FaultyDisk(prepared(ALICE, BOB))
    ManualHost(disks={"data": whole})
    places = len(whole.changes())
    assert places > 10
    outcomes = set()
    for place in range(places + 1):
        memory = prepared(ALICE, BOB)
        faulty = FaultyDisk(memory, [Fault(Crash(written=place % 7), skip=place)])
        try:
            ManualHost(disks={"data": faulty})
        except DiskCrashed:
            pass
        left = memory.crash(kind, Random(place))
        outcomes.add(tuple(written(left)) if left.exists(METADATA_DIRECTORY) else None)
        boot_id = "boot-1" if kind == "killed" else "boot-2"
        again = ManualHost(disks={"data": left}, seed=place, boot_id=boot_id)
        assert names(again.node) == {"alice", "bob"}, place
        assert written(left) == ["alice", "bob"], place
    assert {(), ("alice", "bob")} <= outcomes, "stops before and after they were in the log"


def test_a_stop_while_the_file_is_written_leaves_the_old_or_the_new_one() -> None:
    whole = FaultyDisk(prepared(ALICE))
    write_bootstrap(whole, [ALICE, BOB], wall_ms=0)
    for place in range(len(whole.changes())):
        memory = prepared(ALICE)
        with pytest.raises(DiskCrashed):
            write_bootstrap(
                FaultyDisk(memory, [Fault(Crash(written=place), skip=place)]), [ALICE, BOB], wall_ms=0
            )
        for seed in range(4):
            assert read_bootstrap(memory.crash("lost", Random(seed))) in ([ALICE], [ALICE, BOB])


@pytest.mark.parametrize("cut", [0, 1, 50, -1, -80])
def test_a_file_that_is_not_whole_prevents_the_first_start(cut: int) -> None:
    disk = prepared(ALICE)
    data = read_whole(disk, BOOTSTRAP_FILE)
    write_atomically(disk, BOOTSTRAP_FILE, data[:cut])
    with pytest.raises(BadMetadata, match=r"bootstrap\.checkpoint cannot be read"):
        ManualHost(disks={"data": disk})
    assert not disk.exists(METADATA_DIRECTORY) or not written(disk)


def test_a_damaged_file() -> None:
    for position in range(0, len(read_whole(prepared(ALICE), BOOTSTRAP_FILE)), 7):
        disk = prepared(ALICE)
        disk.flip(BOOTSTRAP_FILE, position, 0x10)
        try:
            assert read_bootstrap(disk) == [ALICE]  # a bit that no checksum covers
        except BadMetadata:
            continue


def test_records_that_nobody_expects_there() -> None:
    disk = MemoryDisk()
    records = [ConfigRecord(resource_type=4, resource_name="", name="a", value="b")]
    write_atomically(disk, BOOTSTRAP_FILE, b"".join(snapshot_batches(records, None, 0, 0)))
    with pytest.raises(BadMetadata, match="ConfigRecord"):
        read_bootstrap(disk)


def test_which_directories_have_been_started() -> None:
    disk = prepared(ALICE)
    assert not has_started(disk)
    assert not has_started(MemoryDisk())
    host = ManualHost(disks={"data": disk})
    assert has_started(host.disks["data"])
    other = ManualHost()
    assert has_started(other.disks["data"])


class PreparedCluster(SimulatedCluster):
    """Each node has a user of its own in its file."""

    def _host(self, id: int) -> Any:
        host = super()._host(id)
        write_bootstrap(host._disks["a"], [user(f"of-{id}")], wall_ms=0)
        return host


@pytest.mark.parametrize("seed", range(3))
def test_in_a_cluster_only_the_first_active_controllers_count(seed: int) -> None:
    cluster = PreparedCluster(seed)
    cluster.until(cluster.all_ready)
    first = cluster.active()
    assert first is not None
    assert names(cluster.node(first)) == {f"of-{first}"}
    cluster.hosts[first].kill()
    cluster.until(lambda: cluster.active() not in (None, first), seconds=60)
    cluster.run(5.0)
    assert names(cluster.node(cluster.active() or 0)) == {f"of-{first}"}
    cluster.hosts[first].start()
    cluster.until(cluster.agrees, seconds=60)
