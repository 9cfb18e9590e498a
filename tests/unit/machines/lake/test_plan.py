"""Which ranges are copied next."""

from __future__ import annotations

from headrace.machines.lake.ledger import Held, Span
from headrace.machines.lake.plan import Log, Plan, behind, plan_append, plan_backfill


def append(ledger: dict[int, Held], logs: dict[int, Log], **more: object) -> Plan:
    until = {partition: log.end for partition, log in logs.items()}
    arguments = {"offsets_max": 100, "from_end": False, "until": until} | more
    return plan_append(ledger, logs, **arguments)  # type: ignore[arg-type]


def test_a_new_partition_begins_at_its_first_record_or_at_its_end() -> None:
    assert append({}, {0: Log(3, 8)}) == Plan([Span(0, 3, 8)], [], [])
    assert append({}, {0: Log(3, 8)}, from_end=True) == Plan([Span(0, 8, 8)], [], [])


def test_an_empty_partition_is_entered_into_the_ledger_once() -> None:
    assert append({}, {0: Log(0, 0)}).spans == [Span(0, 0, 0)]
    assert append({0: Held(0, 0)}, {0: Log(0, 0)}).is_empty


def test_a_step_has_a_limit_and_an_end() -> None:
    assert append({0: Held(0, 5)}, {0: Log(0, 500)}).spans == [Span(0, 5, 105)]
    assert append({0: Held(0, 5)}, {0: Log(0, 500)}, until={0: 7}).spans == [Span(0, 5, 7)]
    assert append({0: Held(0, 9)}, {0: Log(0, 500)}, until={0: 7}).is_empty  # another owner was further
    assert append({0: Held(0, 5)}, {0: Log(0, 500), 1: Log(0, 9)}, until={0: 7}).spans == [Span(0, 5, 7)]


def test_records_that_were_deleted_first_are_lost() -> None:
    assert append({0: Held(0, 5)}, {0: Log(8, 10)}) == Plan([Span(0, 8, 10)], [Span(0, 5, 8)], [])
    assert append({0: Held(0, 5)}, {0: Log(8, 8)}) == Plan([], [Span(0, 5, 8)], [])


def test_a_log_that_was_cut_is_told() -> None:
    assert append({0: Held(0, 5)}, {0: Log(0, 3)}) == Plan([], [], [Span(0, 3, 5)])


def test_a_backfill_goes_down_from_what_is_held() -> None:
    ledger = {0: Held(250, 300), 1: Held(0, 9)}
    logs = {0: Log(20, 400), 1: Log(0, 9)}
    assert plan_backfill(ledger, logs, offsets_max=100).spans == [Span(0, 150, 250)]
    assert plan_backfill({0: Held(50, 300)}, logs, offsets_max=100).spans == [Span(0, 20, 50)]
    assert plan_backfill({0: Held(20, 300)}, logs, offsets_max=100).is_empty
    assert plan_backfill(ledger, logs, offsets_max=100, down_to=200).spans == [Span(0, 200, 250)]


def test_a_backfill_leaves_no_hole_where_the_topic_was_trimmed() -> None:
    assert plan_backfill({0: Held(10, 20)}, {0: Log(10, 30)}, offsets_max=100).is_empty
    assert plan_backfill({0: Held(10, 20)}, {0: Log(15, 30)}, offsets_max=100).is_empty


def test_how_far_a_table_is_behind() -> None:
    logs = {0: Log(0, 10), 1: Log(5, 9), 2: Log(3, 3)}
    assert behind({0: Held(0, 4)}, logs) == {0: 6, 1: 4, 2: 0}
    assert behind({0: Held(0, 4)}, {0: Log(8, 10)}) == {0: 2}
