"""A broker tells its earlier epoch only if it has all that it had then (RELIABILITY: fsync stance)."""

from __future__ import annotations

import errno
from random import Random

import pytest

from harness.controllers import Controller, Controllers
from headrace.node.previous_epoch import COMPLETE_RUNS
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import write_atomically
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


def first_run() -> tuple[ManualHost, MemoryDisk]:
    disk = MemoryDisk()
    host = ManualHost(disks={"data": disk})
    host.create_topic("t")
    host.ask(host.produce_request("t", None), 9)
    return host, disk


def epoch_of(host: ManualHost) -> int:
    return host.node.controller.metadata.image.brokers[1].epoch


@pytest.mark.parametrize(("boot_id", "is_told"), [("boot-1", True), ("boot-2", False)])
def test_after_a_kill_the_boot_id_decides(boot_id: str, is_told: bool) -> None:
    host, disk = first_run()
    again = ManualHost(disks={"data": disk.crash("killed")}, boot_id=boot_id)
    assert again.node.broker.registration.previous_epoch == (epoch_of(host) if is_told else -1)


def test_a_loss_is_not_forgotten_by_a_start_that_ends_before_it_is_registered() -> None:
    """It has recovered its logs, and the next start finds directories that look as after a mere kill."""
    cluster = Controllers(are_brokers=True).start()
    leader = cluster.elected()
    cluster.run(3.0)
    one = next(one for one in cluster.nodes.values() if one is not leader)
    one.kill(how="lost")
    cluster.cuts = {(one.id, other) for other in cluster.nodes} | {(other, one.id) for other in cluster.nodes}
    one.start()
    assert one.up.broker.registration.previous_epoch == -1
    cluster.run(1.0)
    one.kill()
    one.start()
    assert one.up.broker.registration.previous_epoch == -1, "the controller has not heard of it"
    cluster.cuts.clear()
    assert cluster.run(5.0, lambda: one.up.is_ready)
    cluster.run(1.0)
    one.kill()
    one.start()
    registered = leader.metadata.image.brokers[one.id].epoch
    assert one.up.broker.registration.previous_epoch == registered, "now it has"


@pytest.mark.parametrize("is_same_boot", [True, False])
def test_an_epoch_that_its_disk_never_had_is_not_told(is_same_boot: bool) -> None:
    """The disk has an older state than the broker's last run, and so have its logs. The first start gets the
    newer metadata, and ends before it is registered: to the next one the disk seems to be of that run.
    """
    cluster = Controllers(are_brokers=True).start()
    leader = cluster.elected()
    cluster.run(3.0)
    one = next(one for one in cluster.nodes.values() if one is not leader)
    one.kill()
    stale = one.disk.clone()
    one.start()
    assert cluster.run(5.0, lambda: one.up.is_ready)
    registered = leader.metadata.image.brokers[one.id].epoch
    one.kill()
    one.disk = stale
    one.boots += not is_same_boot
    one.start()
    assert one.up.broker.registration.previous_epoch < registered
    assert cluster.run(5.0, lambda: bool(one.up.broker.metadata.is_caught_up))
    assert leader.metadata.image.brokers[one.id].epoch == registered
    one.kill()
    one.start()
    on_disk = one.up.directories.sound_metadata.loaded.image
    assert on_disk.brokers[one.id].epoch == registered
    assert one.up.broker.registration.previous_epoch < registered


@pytest.mark.parametrize("end", ["kill", "clean stop"])
@pytest.mark.parametrize("times", [1, 1_000])
def test_nor_when_there_was_no_space_to_note_it(end: str, times: int) -> None:
    """Either the note is written later, or the directories go on looking as after a crash of the host."""
    cluster = Controllers(are_brokers=True).start()
    leader = cluster.elected()
    cluster.run(3.0)
    one = next(one for one in cluster.nodes.values() if one is not leader)
    one.kill(how="lost")
    cluster.cuts = {(one.id, other) for other in cluster.nodes} | {(other, one.id) for other in cluster.nodes}
    disk = one.disk
    one.disk = FaultyDisk(disk, [Fault(Fail(errno.ENOSPC), "append", COMPLETE_RUNS, times=times)])
    one.start()
    assert one.up.broker.registration.previous_epoch == -1
    cluster.run(1.0)
    if end == "clean stop":
        one.call(lambda node: node.shutdown(cluster.clock.now()))
        assert cluster.run(60.0, lambda: one.up.is_stopped)
    one.disk = disk
    one.kill()
    one.start()
    assert one.up.broker.registration.previous_epoch == -1, "the controller has not heard of it"
    cluster.cuts.clear()
    assert cluster.run(10.0, lambda: one.up.is_ready)
    cluster.run(1.0)
    one.kill()
    one.start()
    registered = leader.metadata.image.brokers[one.id].epoch
    assert one.up.broker.registration.previous_epoch == registered, "now it has"


@pytest.mark.parametrize(
    ("content", "is_told"),
    [
        ("{run}\n", True),
        ("{other}\n{run}\n", True),
        (None, True),
        ("none\n", False),
        ("{other}\n", False),
        ("{run}", False),
        ("", False),
        ("damaged\n", False),
        ("\xff\n", False),
    ],
)
def test_a_file_says_whether_it_has_all_records_of_that_run(content: str | None, is_told: bool) -> None:
    """A version before the file was introduced has left none."""
    host, disk = first_run()
    disk = disk.crash("killed")
    if content is None:
        disk.remove(COMPLETE_RUNS)
    else:
        run = host.node.broker.registration.incarnation_id
        text = content.format(run=run.hex(), other=bytes(16).hex())
        write_atomically(disk, COMPLETE_RUNS, text.encode("latin-1"))
    again = ManualHost(disks={"data": disk})
    assert again.node.broker.registration.previous_epoch == (epoch_of(host) if is_told else -1)


def restarted_soon(cluster: Controllers, one: Controller, leader: Controller) -> int:
    """What it tells when it is killed as soon as the controller has its registration, perhaps before it has
    heard of that itself. The epoch is the one that the controller has.
    """
    before = leader.metadata.image.brokers[one.id].epoch
    one.kill()
    one.start()
    assert cluster.run(5.0, lambda: bool(leader.metadata.image.brokers[one.id].epoch != before))
    one.kill()
    one.start()
    registered = leader.metadata.image.brokers[one.id].epoch
    sent: list[int] = []

    def is_registered_again() -> bool:
        sent.append(one.up.broker.registration.previous_epoch)
        return bool(leader.metadata.image.brokers[one.id].epoch != registered)

    assert cluster.run(5.0, is_registered_again)
    assert sent[-1] == registered
    return registered


def test_a_run_that_is_killed_when_it_is_just_registered_is_complete() -> None:
    cluster = Controllers(are_brokers=True).start()
    leader = cluster.elected()
    cluster.run(3.0)
    one = next(one for one in cluster.nodes.values() if one is not leader)
    epochs = [restarted_soon(cluster, one, leader) for _ in range(3)]
    assert len(set(epochs)) == 3


def test_a_loss_that_is_found_after_the_registration_is_told_by_the_next_run() -> None:
    host, disk = first_run()
    host.node.directories.previous_epoch.lose()
    again = ManualHost(disks={"data": disk.crash("killed")})
    assert again.node.broker.registration.previous_epoch == -1


def test_after_a_clean_stop_it_is_told() -> None:
    host, disk = first_run()
    host.node.shutdown(host.clock.now())
    host.settle()
    assert host.node.is_stopped
    again = ManualHost(disks={"data": disk.crash("lost", Random(1))}, boot_id="boot-2")
    assert again.node.broker.registration.previous_epoch == epoch_of(host)


def test_a_new_broker_has_none() -> None:
    assert ManualHost().node.broker.registration.previous_epoch == -1
