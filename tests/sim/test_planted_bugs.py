"""Mistakes made on purpose. Each must be caught within a few seeds, or the judges' silence says little."""

from __future__ import annotations

from typing import Any

import pytest

from harness.single_judge import ask_only
from headrace.machines.metadata.controller import allocations
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.records.batch import read_header
from headrace.simulator.__main__ import main
from headrace.simulator.judges.latest_not_below_acked import LatestNotBelowAcked
from headrace.simulator.report import failure_text
from headrace.simulator.run import Outcome, simulate
from headrace.storage import damage
from headrace.storage.appending import Appended
from headrace.storage.directory_jobs import CheckpointJob
from headrace.storage.log_directory import LogDirectory
from headrace.storage.partition_producers import PartitionProducers
from headrace.storage.producer_state import ProducerState

SEEDS = range(1, 31)


def first_failure() -> Outcome:
    for seed in SEEDS:
        outcome = simulate(seed)
        if outcome.failure is not None:
            return outcome
    raise AssertionError(f"no judge has noticed in {len(SEEDS)} seeds")


def caught_by() -> str:
    failure = first_failure().failure
    assert failure is not None
    return failure.judge


def test_a_reply_before_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "must_await_flush", lambda *_: False)
    monkeypatch.setattr(Partition, "promised_end", lambda self, log: log.log_end_offset)
    append = Partition.append

    def eager(self: Partition, *arguments: Any, **more: Any) -> Appended:
        appended = append(self, *arguments, **more)
        assert self.leader is not None
        self.leader.local_end_moved(appended.last_offset + 1)
        return appended

    monkeypatch.setattr(Partition, "append", eager)
    assert caught_by() == "acked_after_fsync"


def test_producers_forgotten_at_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: PartitionProducers, wall_ms: int, *, aborts_from: int | None = None) -> ProducerState:
        self.state = ProducerState()
        return self.state

    monkeypatch.setattr(PartitionProducers, "load", load)
    assert caught_by() in ("no_duplicates", "offsets_keep_their_value")


def test_a_torn_tail_that_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery takes a header's word for it and looks at no checksum."""
    read = damage.Walk.valid_at

    def trusting(self: Any, position: int) -> Any:
        found = read(self, position)
        if found is None and position + 61 <= self._end:
            header = read_header(self._file.read(position, 61))
            if header.magic == 2 and 61 <= header.size <= self._end - position:
                return header
        return found

    monkeypatch.setattr(damage.Walk, "valid_at", trusting)
    assert caught_by() == "whole_batches_below_high_watermark"


def test_an_answer_before_the_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch of each second hundred is acknowledged and discarded."""
    append = Partition.append
    count = 0

    def forgetful(self: Partition, records: memoryview, now: Any, **more: Any) -> Appended:
        nonlocal count
        count += 1
        log = self.log
        if count % 100 or log is None:
            return append(self, records, now, **more)
        return Appended(log.log_end_offset, log.log_end_offset, -1, log.log_start_offset, False)

    monkeypatch.setattr(Partition, "append", forgetful)
    assert caught_by() in ("acked_after_fsync", "offsets_keep_their_value", "acked_never_lost")


def test_a_high_watermark_beyond_the_log_end(monkeypatch: pytest.MonkeyPatch) -> None:
    visible = Partition.visible_end
    monkeypatch.setattr(Partition, "visible_end", lambda self, isolation: visible(self, isolation) + 3)
    assert caught_by() in ("high_watermark_monotonic", "whole_batches_below_high_watermark")


def test_a_deletion_that_is_acknowledged_and_does_not_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogDirectory, "log_start_job", lambda *_: CheckpointJob({}, []))
    monkeypatch.setattr(LogDirectory, "complete_log_starts", lambda *_, **__: None)
    assert caught_by() == "earliest_never_falls"


def test_producer_ids_that_are_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    allocate = allocations.allocate_producer_ids

    def forgetful(image: Any, *broker: Any) -> Any:
        image.next_producer_id = 0
        return allocate(image, *broker)

    monkeypatch.setattr(allocations, "allocate_producer_ids", forgetful)
    assert caught_by() == "metadata_replayed"


def test_answers_that_overtake_each_other(
    monkeypatch: pytest.MonkeyPatch, misplaced_answers: list[str]
) -> None:
    """A request behind a parked one is answered at once."""
    handle = Node.handle

    def hasty(self: Node, now: Any, connection: Any, frame: memoryview) -> Any:
        waiting = list(connection.pending)
        connection.pending.clear()
        parts = handle(self, now, connection, frame)
        connection.pending.extendleft(reversed(waiting))
        return parts

    monkeypatch.setattr(Node, "handle", hasty)
    assert caught_by() == "answers_in_request_order"
    misplaced_answers.clear()


def test_a_latest_offset_that_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    visible_end = Partition.visible_end
    monkeypatch.setattr(
        Partition, "visible_end", lambda self, isolation: max(0, visible_end(self, isolation) - 1)
    )
    # a fetch shows the true high watermark meanwhile
    assert caught_by() in ("high_watermark_monotonic", "latest_not_below_acked")
    ask_only(monkeypatch, LatestNotBelowAcked)
    assert caught_by() == "latest_not_below_acked"


def test_a_failure_tells_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Partition, "promised_end", lambda self, log: log.log_end_offset + 5)
    outcome = first_failure()
    text = failure_text(outcome)
    assert f"replay: make sim SEED={outcome.seed}" in text
    assert outcome.failure is not None
    assert outcome.failure.sentence in text
    assert main(["--seed", str(outcome.seed), "--play", "logs"]) == 1
    assert capsys.readouterr().out.strip() == text.strip()
