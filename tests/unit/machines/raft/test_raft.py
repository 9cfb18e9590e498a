"""The quorum with one voter, and the sums that hold for more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.raft.majority import majority_offset
from headrace.machines.raft.quorum_state import BadQuorumState, QuorumState
from headrace.machines.raft.roles import Leader, Unattached, recovered

# what Apache Kafka 4.3.1 wrote as the first leader of its own quorum
KAFKAS_FILE = (
    b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)


def test_the_file_is_kafkas_own() -> None:
    state = QuorumState.from_bytes(KAFKAS_FILE)
    assert state == QuorumState(leader_id=1, leader_epoch=1)
    assert state.to_bytes() == KAFKAS_FILE


def test_a_vote_survives() -> None:
    state = QuorumState(leader_id=-1, leader_epoch=5, voted_id=3, voted_directory_id=b"d" * 16)
    assert QuorumState.from_bytes(state.to_bytes()) == state


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b'{"data_version":2}', KAFKAS_FILE[:-5], KAFKAS_FILE.replace(b"AAAA", b"??", 1)],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(BadQuorumState):
        QuorumState.from_bytes(data)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_the_fast_majority_is_the_obvious_one(ends: list[int]) -> None:
    obvious = max(offset for offset in range(21) if 2 * sum(end >= offset for end in ends) > len(ends))
    assert majority_offset(ends) == obvious


def test_an_epoch_is_never_used_twice() -> None:
    role = recovered(QuorumState(leader_id=1, leader_epoch=4), last_epoch_in_log=3)
    assert role.stand(1, (1,), 100).epoch == 5
    # the log may know more than the file, when the file was lost
    assert recovered(QuorumState(), last_epoch_in_log=7) == Unattached(7)


def test_one_voter_commits_what_it_has_flushed() -> None:
    leader = Unattached(0).stand(1, (1,), 10)
    assert leader.quorum_state() == QuorumState(leader_id=1, leader_epoch=1)
    assert not leader.held_by(1, 10), "nothing of this epoch is durable yet (Raft 5.4.2)"
    assert leader.high_watermark == 0
    assert leader.held_by(1, 11)
    assert leader.high_watermark == 11
    assert not leader.held_by(1, 11)
    assert not leader.held_by(1, 5), "it never falls"
    assert leader.high_watermark == 11


def test_three_voters_commit_what_two_of_them_hold() -> None:
    leader = Leader(1, 2, (1, 2, 3), 10)
    assert not leader.held_by(1, 20)
    assert leader.held_by(3, 15)
    assert leader.high_watermark == 15
    assert leader.held_by(2, 18)
    assert leader.high_watermark == 18
