"""A voter that lost its metadata log, or only its vote, and kept the id of its directory: the others would
count on promises that it has forgotten.
"""

from __future__ import annotations

import pytest

from harness.controllers import Controller, Controllers
from headrace.node.metadata_check import DamagedMetadata
from headrace.node.metadata_files import METADATA_DIRECTORY
from headrace.node.quorum_driver import QUORUM_STATE
from headrace.simulator.manual_host import ManualHost
from headrace.storage.checkpoints import META_PROPERTIES
from headrace.storage.disk import Disk
from headrace.storage.errors import DamagedProperties


def lose(disk: Disk, what: str) -> None:
    if what == "vote":
        disk.remove(QUORUM_STATE)
        return
    for name in disk.list(METADATA_DIRECTORY):
        disk.remove(f"{METADATA_DIRECTORY}/{name}")
    disk.remove(METADATA_DIRECTORY)


def killed_follower() -> tuple[Controllers, Controller]:
    cluster = Controllers().start()
    leader = cluster.elected()
    cluster.run(10.0)  # checkpoints are written
    follower = next(one for one in cluster.nodes.values() if one is not leader)
    follower.kill()
    return cluster, follower


@pytest.mark.parametrize("what", ["vote", "log"])
def test_a_voter_does_not_start_without_what_it_promised(what: str) -> None:
    _, follower = killed_follower()
    lose(follower.disk, what)
    before = dict(follower.disk.files())
    with pytest.raises(DamagedMetadata) as refused:
        follower.start()
    assert (QUORUM_STATE if what == "vote" else METADATA_DIRECTORY) in str(refused.value)
    assert dict(follower.disk.files()) == before, "nothing was changed"


def test_a_voter_that_does_not_know_its_directory_does_not_become_an_observer() -> None:
    _, follower = killed_follower()
    follower.disk.remove(META_PROPERTIES)
    before = dict(follower.disk.files())
    with pytest.raises(DamagedProperties, match=r"no meta\.properties"):
        follower.start()
    assert dict(follower.disk.files()) == before, "nothing was changed"


def test_on_a_new_disk_it_starts_and_does_not_vote() -> None:
    cluster, follower = killed_follower()
    lose(follower.disk, "log")
    follower.disk.remove(META_PROPERTIES)
    for name in follower.disk.list(""):
        follower.disk.remove(name)
    follower.start()
    assert cluster.run(5.0, lambda: follower.metadata.is_caught_up)
    assert follower.metadata.quorum.role.name == "observer"


def test_who_votes_alone_needs_no_vote() -> None:
    host = ManualHost()
    disk = host.disks["data"]
    lose(disk, "vote")
    again = ManualHost(disks={"data": disk})
    assert again.node.controller.metadata.is_active
