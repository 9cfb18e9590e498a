"""A directory that could not be marked as recovered after a power loss is marked later: until then the kill
of its process counts as another power loss.
"""

from __future__ import annotations

import errno

import pytest

from harness.controllers import Controller, Controllers
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.stop_record import BOOT_ID, StopRecord

CHECKPOINTED_S = 10.0  # checkpoints are written by then


def recovered_without_space() -> tuple[Controllers, Controller]:
    """A node after a power loss: there was no space for the mark, and now there is."""
    cluster = Controllers(are_brokers=True).start()
    leader = cluster.elected()
    cluster.run(3.0)
    one = next(one for one in cluster.nodes.values() if one is not leader)
    one.kill(how="lost")
    one.disk = FaultyDisk(one.disk, [Fault(Fail(errno.ENOSPC), "append", BOOT_ID, times=1)])
    one.start()
    return cluster, one


def trust_after_a_kill(one: Controller) -> str:
    one.disk = one.disk.disk
    one.kill()
    one.start()
    return one.up.directories["data"].trust


@pytest.mark.parametrize(("seconds", "trust"), [(0.0, "lost"), (CHECKPOINTED_S, "killed")])
def test_it_is_marked_when_there_is_space(seconds: float, trust: str) -> None:
    cluster, one = recovered_without_space()
    assert not one.up.directories["data"].is_recovered
    cluster.run(seconds)
    assert trust_after_a_kill(one) == trust


def test_a_run_that_distrusts_its_directory_does_not_mark_it() -> None:
    cluster, one = recovered_without_space()
    one.up.directories.distrust("data")
    cluster.run(CHECKPOINTED_S)
    assert not one.up.directories["data"].is_recovered
    assert trust_after_a_kill(one) == "lost"


def test_a_note_of_distrust_stays() -> None:
    _, one = recovered_without_space()
    record = StopRecord(one.disk, "boot-1")
    assert record.distrust()
    record.mark_boot()
    record.read(set(one.disk.list("")), bytes(16), set())
    assert (record.is_distrusted, record.trust) == (True, "lost")
