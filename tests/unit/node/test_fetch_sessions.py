"""KIP-227: what a session remembers, what it tells, and whom it refuses."""

from random import Random

import pytest

from headrace.base.time import Now
from headrace.node.fetch_sessions import FetchPlan, FetchSessions, SessionRefused
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, PartitionData


def sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(Random(1), slots=slots)


def wanted(*pairs: tuple[str, int]) -> list[tuple[str | bytes, FetchPartition]]:
    return [(topic, FetchPartition(partition=index)) for topic, index in pairs]


def at(mono: float) -> Now:
    return Now(5_000 + mono, 0)  # a clock that began long before the first session


def is_told(plan: FetchPlan, topic: str, data: PartitionData) -> bool:
    """Whether the answer contains it; the session knows afterwards what the client knows."""
    has_news = plan.has_news(topic, data)
    if plan.session is not None:
        plan.tell(plan.session, topic, data)
    return has_news


def told(index: int, high_watermark: int = 0, records: bytes = b"", error: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=high_watermark,
        log_start_offset=0,
        records=records,
        error_code=error,
    )


def test_without_a_session_everything_is_told() -> None:
    plan = sessions().plan(at(0), 0, -1, False, wanted(("a", 0), ("a", 1)), [])
    assert plan.session_id == 0
    assert [p.partition for _, p in plan.wanted] == [0, 1]
    assert is_told(plan, "a", told(0))
    assert is_told(plan, "a", told(0))


def test_an_incremental_fetch_asks_for_all_and_is_told_only_news() -> None:
    cache = sessions()
    first = cache.plan(at(0), 0, 0, False, wanted(("a", 0), ("b", 0)), [])
    assert first.session_id > 0
    assert is_told(first, "a", told(0))
    assert is_told(first, "b", told(0))

    second = cache.plan(at(1), first.session_id, 1, False, [], [])
    assert [topic for topic, _ in second.wanted] == ["a", "b"]
    assert not is_told(second, "a", told(0))
    assert is_told(second, "b", told(0, high_watermark=5))

    third = cache.plan(at(2), first.session_id, 2, False, [], [])
    assert not is_told(third, "b", told(0, high_watermark=5))
    assert is_told(third, "b", told(0, high_watermark=5, records=b"x"))


def test_a_partition_with_an_error_is_told_until_it_is_over() -> None:
    cache = sessions()
    id = cache.plan(at(0), 0, 0, False, wanted(("a", 0)), []).session_id
    failing = cache.plan(at(1), id, 1, False, [], [])
    assert is_told(failing, "a", told(0, error=ErrorCode.KAFKA_STORAGE_ERROR))
    healed = cache.plan(at(2), id, 2, False, [], [])
    assert is_told(healed, "a", told(0))
    assert not cache.plan(at(3), id, 3, False, [], []).has_news("a", told(0))


def test_who_was_served_goes_to_the_end() -> None:
    cache = sessions()
    id = cache.plan(at(0), 0, 0, False, wanted(("a", 0), ("b", 0)), []).session_id
    served = cache.plan(at(1), id, 1, False, [], [])
    is_told(served, "a", told(0, records=b"x"))
    assert [topic for topic, _ in cache.plan(at(2), id, 2, False, [], []).wanted] == ["b", "a"]


def test_added_changed_and_forgotten_partitions() -> None:
    cache = sessions()
    id = cache.plan(at(0), 0, 0, False, wanted(("a", 0), ("a", 1)), []).session_id
    changed = FetchPartition(partition=0, fetch_offset=9)
    plan = cache.plan(at(1), id, 1, False, [("a", changed), *wanted(("c", 2))], [("a", 1)])
    assert [(topic, p.partition, p.fetch_offset) for topic, p in plan.wanted] == [("a", 0, 9), ("c", 2, 0)]


def test_forgetting_the_last_partition_ends_the_session() -> None:
    cache = sessions()
    id = cache.plan(at(0), 0, 0, False, wanted(("a", 0)), []).session_id
    assert cache.plan(at(1), id, 1, False, [], [("a", 0)]).session_id == 0
    assert len(cache) == 0


@pytest.mark.parametrize(
    ("id_shift", "epoch", "uses_ids", "code"),
    [
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_refusals(id_shift: int, epoch: int, uses_ids: bool, code: ErrorCode) -> None:
    cache = sessions()
    id = cache.plan(at(0), 0, 0, False, wanted(("a", 0)), []).session_id
    with pytest.raises(SessionRefused) as refused:
        cache.plan(at(1), id + id_shift, epoch, uses_ids, [], [])
    assert refused.value.code is code


def test_a_final_epoch_closes_the_session() -> None:
    cache = sessions()
    id = cache.plan(at(0), 0, 0, False, wanted(("a", 0)), []).session_id
    assert cache.plan(at(1), id, -1, False, wanted(("a", 0)), []).session_id == 0
    assert len(cache) == 0


def test_a_full_cache_evicts_only_who_was_quiet_for_long() -> None:
    cache = sessions(slots=1)
    first = cache.plan(at(0), 0, 0, False, wanted(("a", 0)), []).session_id
    assert cache.plan(at(60), 0, 0, False, wanted(("b", 0)), []).session_id == 0
    late = cache.plan(at(121), 0, 0, False, wanted(("b", 0)), []).session_id
    assert late not in (0, first)
    assert len(cache) == 1


def test_the_epoch_wraps_to_one() -> None:
    cache = sessions()
    plan = cache.plan(at(0), 0, 0, False, wanted(("a", 0)), [])
    assert plan.session is not None
    plan.session.epoch = 2**31 - 1
    cache.plan(at(1), plan.session_id, 2**31 - 1, False, [], [])
    assert plan.session.epoch == 1


def test_all_sessions_together_remember_only_so_many_partitions() -> None:
    cache = FetchSessions(Random(1), slots=10, partitions_max=3)
    first = cache.plan(at(0), 0, 0, False, wanted(("a", 0), ("a", 1)), []).session_id
    assert cache.plan(at(1), 0, 0, False, wanted(("b", 0), ("b", 1)), []).session_id == 0
    with pytest.raises(SessionRefused) as refused:  # nor can a session grow beyond it afterwards
        cache.plan(at(2), first, 1, False, wanted(("c", 0), ("c", 1)), [])
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (
        cache.plan(at(3), 0, 0, False, wanted(("b", 0), ("b", 1)), []).session_id != 0
    )  # there is room again


def test_a_quiet_session_makes_room_for_partitions() -> None:
    cache = FetchSessions(Random(1), slots=10, partitions_max=3)
    cache.plan(at(0), 0, 0, False, wanted(("a", 0), ("a", 1)), [])
    assert cache.plan(at(121), 0, 0, False, wanted(("b", 0), ("b", 1)), []).session_id != 0
    assert len(cache) == 1


def test_a_refusal_says_why() -> None:
    refused = SessionRefused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert (refused.code, str(refused)) == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        "FETCH_SESSION_ID_NOT_FOUND",
    )
