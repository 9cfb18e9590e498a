"""A broker tells its earlier epoch only if it has all that it had then (RELIABILITY: fsync stance)."""

from __future__ import annotations

import errno
from random import Random

import pytest

from harness.controllers import Controllers
from headrace.node.previous_epoch import LOST_EPOCH
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
    one.disk = FaultyDisk(disk, [Fault(Fail(errno.ENOSPC), "append", LOST_EPOCH, times=times)])
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


@pytest.mark.parametrize(("content", "is_told"), [(b"0\n", True), (b"damaged", False)])
def test_what_was_lost_before_the_last_registration_does_not_count(content: bytes, is_told: bool) -> None:
    host, disk = first_run()
    disk = disk.crash("killed")
    write_atomically(disk, LOST_EPOCH, content)
    again = ManualHost(disks={"data": disk})
    assert again.node.broker.registration.previous_epoch == (epoch_of(host) if is_told else -1)


def test_after_a_clean_stop_it_is_told() -> None:
    host, disk = first_run()
    host.node.shutdown(host.clock.now())
    host.settle()
    assert host.node.is_stopped
    again = ManualHost(disks={"data": disk.crash("lost", Random(1))}, boot_id="boot-2")
    assert again.node.broker.registration.previous_epoch == epoch_of(host)


def test_a_new_broker_has_none() -> None:
    assert ManualHost().node.broker.registration.previous_epoch == -1
