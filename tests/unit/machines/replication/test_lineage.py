"""Where two logs differ: what the leader and the follower find out together, against the obvious answer."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.replicas import Log
from headrace.machines.replication import lineage
from headrace.machines.replication.lineage import Divergence, find_replica_divergence, truncation_offset

HISTORIES = 400


def grow(rng: Random) -> list[Log]:
    """Logs of a few replicas after some leaders, which wrote to one or the other: a leader's records go to
    replicas whose log is a prefix of its own.
    """
    logs = [Log() for _ in range(3)]
    for epoch in range(rng.randint(1, 7)):
        leader = rng.choice(logs)
        leader.epochs.assign(epoch, leader.end)
        followers = [one for one in logs if one is not leader and one.items == leader.items[: len(one.items)]]
        for value in range(rng.randint(0, 3)):
            leader.append((epoch, value))
        for follower in followers:
            follower.epochs.truncate_end(follower.end)  # epochs that it led and wrote nothing in
            for record in leader.items[len(follower.items) : rng.randint(0, len(leader.items))]:
                follower.append(record)
    return logs


def reconcile(leader: Log, follower: Log) -> None:
    """What fetches do until they bring records."""
    follower.epochs.truncate_end(follower.end)
    for _ in range(20):
        if follower.last_epoch < 0:
            return
        found = lineage.find_replica_divergence(leader, leader.start, follower.last_epoch, follower.end)
        if found is None:
            return
        follower.truncate(lineage.truncation_offset(follower, follower.end, found))
    raise AssertionError("the two logs never agree")


def is_right(seed: int) -> bool:
    rng = Random(seed)
    logs = grow(rng)
    leader, follower = rng.sample(logs, 2)
    leader.epochs.assign(10, leader.end)
    common = 0
    while leader.items[common : common + 1] == follower.items[common : common + 1] != []:
        common += 1
    reconcile(leader, follower)
    return follower.items == leader.items[:common]


@pytest.mark.parametrize("block", range(4))
def test_a_follower_keeps_exactly_what_is_common(block: int) -> None:
    for seed in range(block * HISTORIES, (block + 1) * HISTORIES):
        assert is_right(seed), seed


def test_end_offsets_alone_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before KIP-279 leaders answered without an epoch, and followers cut where they were told."""

    def find(leader: Any, log_start: int, last_epoch: int, offset: int) -> Divergence | None:
        epoch, end_offset = leader.epoch_end_offset(last_epoch)
        return None if end_offset >= offset else Divergence(epoch, end_offset)

    monkeypatch.setattr(lineage, "find_replica_divergence", find)
    monkeypatch.setattr(lineage, "truncation_offset", lambda own, end, told: min(end, told.end_offset))
    assert not all(is_right(seed) for seed in range(HISTORIES))


def test_an_epoch_before_the_leaders_log_cannot_be_compared() -> None:
    leader = Log()
    for record in ((1, 0), (2, 0), (2, 1)):
        leader.append(record)
    leader.advance_start(1)
    assert find_replica_divergence(leader, 1, 1, 1) == Divergence(1, 1)
    assert find_replica_divergence(leader, 1, 2, 2) is None


def test_a_follower_without_the_leaders_epoch_cuts_where_its_own_ended() -> None:
    follower = Log()
    for record in ((3, 0), (3, 1), (5, 0)):
        follower.append(record)
    assert truncation_offset(follower, 3, Divergence(4, 3)) == 2
    assert truncation_offset(follower, 3, Divergence(3, 1)) == 1
    assert truncation_offset(follower, 3, Divergence(3, 9)) == 2
