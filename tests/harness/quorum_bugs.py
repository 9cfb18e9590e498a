"""Planted bugs of the quorum: what a judge has to catch. Each one changes the machine or its driver in one
place, for as long as the context lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from headrace.base.time import Instant
from headrace.machines.raft.follower import Follower, Observer
from headrace.machines.raft.leader import Leader
from headrace.machines.raft.majority import majority_of, majority_offset
from headrace.machines.raft.messages import Appended
from headrace.machines.raft.quorum import Quorum
from headrace.machines.raft.replica_log import ReplicaLog
from headrace.machines.raft.voters import VoterKey, Voters
from headrace.simulator.quorum.host import QuorumHost


@contextmanager
def vote_not_durable() -> Iterator[None]:
    with patch.object(QuorumHost, "persist", lambda self, state: None):
        yield


@contextmanager
def vote_for_an_older_log() -> Iterator[None]:
    with patch.object(ReplicaLog, "is_newer_than", lambda self, other: False):
        yield


@contextmanager
def old_epoch_committed_by_count() -> Iterator[None]:
    def committed_offset(self: Leader) -> int | None:
        log = self._replica.log
        ends = [log.flushed_offset, *(one.end_offset for one in self.followers.values())]
        return min(majority_offset(ends), log.flushed_offset) if log.voters else None

    with patch.object(Leader, "committed_offset", committed_offset):
        yield


@contextmanager
def fetch_before_fsync() -> Iterator[None]:
    appended = Quorum._appended

    def fetch_at_once(self: Quorum, now: Instant, event: Appended) -> None:
        appended(self, now, event)
        if isinstance(self.role, Follower | Observer):
            self.role.loop.fetch()

    with (
        patch.object(ReplicaLog, "is_flushed", property(lambda self: True)),
        patch.object(Quorum, "_appended", fetch_at_once),
    ):
        yield


@contextmanager
def voter_without_its_disk_votes() -> Iterator[None]:
    def has(self: Voters, replica: VoterKey) -> bool:
        return replica.id in self.directories

    def is_meant(self: Quorum, voter: VoterKey) -> bool:
        return voter.id == self.local.id

    with (
        patch.object(Voters, "has", has),
        patch.object(Quorum, "_is_meant", is_meant),
    ):
        yield


@contextmanager
def first_election_by_majority() -> Iterator[None]:
    with patch.object(Voters, "votes_needed", property(lambda self: majority_of(len(self.keys)))):
        yield


BUGS = {
    bug.__name__: bug
    for bug in (
        vote_not_durable,
        vote_for_an_older_log,
        old_epoch_committed_by_count,
        fetch_before_fsync,
        voter_without_its_disk_votes,
        first_election_by_majority,
    )
}
