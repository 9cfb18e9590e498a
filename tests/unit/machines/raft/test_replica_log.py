"""Lineages of two logs: whose is newer, where they part, and to where a follower truncates."""

from __future__ import annotations

import random

from headrace.machines.raft.replica_log import LogPoint, ReplicaLog


def log_of(*epochs: int) -> ReplicaLog:
    """A log with one entry for each of these epochs."""
    starts = [(e, i) for i, e in enumerate(epochs) if i == 0 or epochs[i - 1] != e]
    log = ReplicaLog(end_offset=len(epochs), epochs=starts)
    log.check()
    return log


def test_the_log_with_the_later_epoch_is_newer_and_then_the_longer_one() -> None:
    log = log_of(1, 1, 3)
    assert log.end == LogPoint(3, 3)
    assert log.is_newer_than(LogPoint(9, 2))
    assert log.is_newer_than(LogPoint(2, 3))
    assert not log.is_newer_than(LogPoint(3, 3))
    assert not log.is_newer_than(LogPoint(1, 4))
    assert not log_of().is_newer_than(LogPoint(0, 0))


def test_the_end_of_an_epoch_is_where_the_next_one_begins() -> None:
    log = log_of(1, 1, 3, 3, 3, 6)
    assert [log.end_of_epoch(epoch) for epoch in range(8)] == [
        (0, 0),
        (2, 1),
        (2, 1),
        (5, 3),
        (5, 3),
        (5, 3),
        (6, 6),
        (6, 6),
    ]


def test_a_beginning_of_the_leaders_log_does_not_diverge() -> None:
    leader = log_of(1, 1, 3, 3, 6)
    for end in range(6):
        epochs = (1, 1, 3, 3, 6)[:end]
        assert leader.divergence(log_of(*epochs).end) is None


def test_two_lineages_agree_after_a_few_rounds_and_nothing_common_is_cut_off() -> None:
    """KIP-279: a follower may have epochs that its leader never saw, several of them, and lack others."""
    rng = random.Random(1)
    for _ in range(2_000):
        common = sorted(rng.choices(range(1, 4), k=rng.randrange(5)))
        last = common[-1] if common else 0
        odd = sorted(rng.choices(range(last + 1, 12, 2), k=rng.randrange(5)))
        even = sorted(rng.choices(range(last + 2, 12, 2), k=rng.randrange(5)))
        leader_epochs, follower_epochs = (*common, *odd), (*common, *even)
        leader, follower = log_of(*leader_epochs), log_of(*follower_epochs)
        rounds = 0
        while (divergence := leader.divergence(follower.end)) is not None:
            follower.truncate(follower.truncation_point(divergence))
            follower.check()
            rounds += 1
            assert rounds <= len(even) + 1, (leader_epochs, follower_epochs)
        assert follower.end_offset == len(common), (leader_epochs, follower_epochs)


def test_a_follower_before_the_start_needs_the_snapshot() -> None:
    log = log_of(1, 1, 3, 3, 6)
    log.drop_before(3, LogPoint(4, 3))
    log.check()
    assert log.epochs == [(3, 2), (6, 4)]
    assert log.starts_after(LogPoint(0, 0))
    assert log.starts_after(LogPoint(2, 1))
    assert log.starts_after(LogPoint(3, 2)), "it ends where this log starts, but with another entry"
    assert not log.starts_after(LogPoint(3, 3))
    assert log.divergence(LogPoint(5, 4)) == LogPoint(4, 3)


def test_a_log_begins_again_at_the_end_of_a_snapshot() -> None:
    log = log_of(1, 2)
    log.begin_at(LogPoint(7, 5), None)
    log.check()
    assert log.end == LogPoint(7, 5)
    assert log.end_of_epoch(5) == LogPoint(7, 5)
    log.append(8, ((5, 7),))
    log.append(9, ((6, 8),))
    log.check()
    assert log.epochs == [(5, 6), (6, 8)]
    log.truncate(8)
    assert log.end == LogPoint(8, 5)
