"""Majorities, against the obvious answer."""

from __future__ import annotations

from itertools import combinations, product

from headrace.machines.raft.majority import majority_of, majority_offset
from headrace.machines.raft.voters import VoterKey, Voters


def test_the_majority_offset_is_the_largest_that_more_than_half_hold() -> None:
    for voters in range(1, 6):
        for ends in product(range(4), repeat=voters):
            obvious = max(offset for offset in range(4) if sum(end >= offset for end in ends) * 2 > len(ends))
            assert majority_offset(ends) == obvious


def test_two_majorities_share_a_voter() -> None:
    for voters in range(1, 8):
        groups = list(combinations(range(voters), majority_of(voters)))
        assert all(set(first) & set(second) for first in groups for second in groups)


def test_voters_whose_directories_are_not_known_decide_together() -> None:
    known = Voters.of(VoterKey(id, bytes([id]) * 16) for id in (3, 1, 2))
    assert known.ids == (1, 2, 3)
    assert known.votes_needed == 2
    assert known.has(VoterKey(1, b"\1" * 16))
    assert not known.has(VoterKey(1, b"\2" * 16)), "it lost its disk"
    assert not known.has(VoterKey(1))
    assert not known.has(VoterKey(4, b"\4" * 16))
    named = Voters.of(VoterKey(id) for id in (1, 2, 3))
    assert named.votes_needed == 3
    assert named.has(VoterKey(1, b"\1" * 16))
