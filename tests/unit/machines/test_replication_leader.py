"""The high watermark: the lowest end of the in-sync replicas, and never backwards."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.base.ids import BrokerId, Epoch, Offset
from headrace.machines.replication.leader import PartitionLeader


def leader(isr: tuple[int, ...] = (1,), high_watermark: int = 0) -> PartitionLeader:
    return PartitionLeader(BrokerId(1), Epoch(3), map(BrokerId, isr), Offset(high_watermark))


def test_alone_the_own_end_is_the_high_watermark() -> None:
    alone = leader()
    assert alone.local_end_moved(7)
    assert alone.high_watermark == 7
    assert not alone.local_end_moved(7)


def test_a_follower_that_never_fetched_holds_the_high_watermark_back() -> None:
    pair = leader((1, 2))
    assert not pair.local_end_moved(7)
    assert pair.high_watermark == 0
    assert pair.replica_fetched(BrokerId(2), Offset(5), local_end=7)
    assert pair.high_watermark == 5
    assert not pair.replica_fetched(BrokerId(2), Offset(5), local_end=9)


def test_a_replica_that_leaves_the_isr_no_longer_holds_back() -> None:
    pair = leader((1, 2))
    pair.local_end_moved(7)
    assert pair.isr_changed([BrokerId(1)], local_end=7)
    assert pair.high_watermark == 7


def test_a_replica_outside_the_isr_does_not_count() -> None:
    alone = leader()
    alone.replica_fetched(BrokerId(9), Offset(2), local_end=4)
    assert alone.high_watermark == 4


def test_enough_replicas() -> None:
    assert leader((1, 2)).has_enough(2)
    assert not leader((1,)).has_enough(2)


@given(st.lists(st.tuples(st.sampled_from(["local", 2, 3]), st.integers(0, 50)), max_size=30))
def test_never_falls_and_never_passes_an_in_sync_end(moves: list[tuple[str | int, int]]) -> None:
    trio = leader((1, 2, 3))
    local, ends, before = 0, {2: 0, 3: 0}, 0
    for who, amount in moves:
        if who == "local":
            local += amount
            trio.local_end_moved(local)
        else:
            ends[int(who)] = min(local, ends[int(who)] + amount)
            trio.replica_fetched(BrokerId(int(who)), Offset(ends[int(who)]), local_end=local)
        assert before <= trio.high_watermark <= min(local, *ends.values())
        before = trio.high_watermark
