"""The voters of the metadata quorum, and the votes that a decision among them needs.

A voter is its node id and the id of the log directory that holds its metadata log (KIP-853): a node that lost
its disk comes back with another directory id, and is not that voter any more. It might have promised a vote,
or acknowledged entries, that it has forgotten.

Settings name voters by node id only. The first leader learns their directory ids from their fetches and
writes all of them into the log; until then nothing is committed, and an election needs the vote of every
voter. Otherwise a voter that has not joined yet and one that lost its disk could begin a second history.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from headrace.machines.raft.majority import majority_of
from headrace.machines.raft.quorum_state import NO_DIRECTORY


class VoterKey(NamedTuple):
    id: int
    directory_id: bytes = NO_DIRECTORY  # NO_DIRECTORY: not known yet


@dataclass(frozen=True)
class Voters:
    keys: tuple[VoterKey, ...]  # by id, each id once

    @classmethod
    def of(cls, keys: Iterable[VoterKey]) -> "Voters":
        return cls(tuple(sorted(keys)))

    @cached_property
    def directories(self) -> dict[int, bytes]:
        return dict(self.keys)

    @cached_property
    def ids(self) -> tuple[int, ...]:
        return tuple(key.id for key in self.keys)

    @cached_property
    def are_known(self) -> bool:
        """Whether the directory id of every voter is known."""
        return all(key.directory_id != NO_DIRECTORY for key in self.keys)

    @cached_property
    def votes_needed(self) -> int:
        return majority_of(len(self.keys)) if self.are_known else len(self.keys)

    def has(self, replica: VoterKey) -> bool:
        """Whether this replica is one of them. One whose directory id is not known yet may have any."""
        expected = self.directories.get(replica.id)
        return expected is not None and expected in (NO_DIRECTORY, replica.directory_id)

    def with_directory(self, replica: VoterKey) -> "Voters":
        return Voters(tuple(replica if key.id == replica.id else key for key in self.keys))

    def but(self, node_id: int) -> tuple[VoterKey, ...]:
        """All except one."""
        return tuple(key for key in self.keys if key.id != node_id)
