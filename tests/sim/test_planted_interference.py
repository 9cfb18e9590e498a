"""Mistakes made on purpose that show only when something interferes: a stop, a full disk, a setting that
changes, a request that comes again. Each must be caught within a few seeds.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.base.time import Now
from headrace.node import produce_fast_path
from headrace.node.directory_assignments import DirectoryAssignments
from headrace.node.handlers.produce import Produce
from headrace.node.partition import Partition
from headrace.node.waiting import Parked
from headrace.simulator.fault_profiles import FaultProfile
from headrace.simulator.run import Options, simulate
from headrace.storage import appending, rolling
from headrace.storage.directory_jobs import CheckpointJob
from headrace.storage.log_directory import LogDirectory
from headrace.storage.log_state import LogState
from headrace.storage.segment import Segment

SEEDS = range(1, 31)


def caught_by(play: str = "logs", seeds: range = SEEDS, **profile: Any) -> str:
    """The judge who objects first; profile: of faults that the mistake needs more often."""
    options = Options(play=play, profile=FaultProfile(**profile))
    for seed in seeds:
        failure = simulate(seed, options).failure
        if failure is not None:
            return failure.judge
    raise AssertionError(f"no judge has noticed in {len(seeds)} seeds")


def test_a_setting_that_is_lifted_during_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """flush.messages=1 goes while a flush is under way, and nobody moves the high watermark any more."""
    configure = Partition.configure

    def forgetful(self: Partition, now: Now, config: Any, min_insync_replicas: int) -> None:
        log, self.log = self.log, None
        configure(self, now, config, min_insync_replicas)
        self.log = log
        if log is not None:
            log.configure(config)

    monkeypatch.setattr(Partition, "configure", forgetful)
    assert caught_by(setting=20, ambush=40) == "high_watermark_follows_the_log"


def test_a_checkpoint_after_the_clean_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery points that were gathered some time before the stop are written after its marker."""
    close_clean, checkpoint_job = LogDirectory.close_clean, LogDirectory.checkpoint_job
    stale: dict[LogDirectory, CheckpointJob] = {}

    def remembering(self: LogDirectory, marks: Any) -> CheckpointJob:
        job = checkpoint_job(self, marks)
        stale.setdefault(self, job)
        return job

    def hasty(self: LogDirectory, marks: Any) -> None:
        close_clean(self, marks)
        if self in stale:
            stale[self].run(self._disk)

    monkeypatch.setattr(LogDirectory, "checkpoint_job", remembering)
    monkeypatch.setattr(LogDirectory, "close_clean", hasty)
    assert caught_by(stop_cleanly=20) in (
        "acked_never_lost",
        "latest_not_below_acked",
        "offsets_keep_their_value",
        "high_watermark_monotonic",
        "whole_batches_below_high_watermark",
        "nothing_is_raised",
    )


def test_a_move_that_the_metadata_never_hear_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that cannot read the new directory begins the partition again in the old one."""

    def forgetful(self: DirectoryAssignments, now: Any, partition: Partition, then: Any) -> None:
        then(now)

    monkeypatch.setattr(DirectoryAssignments, "tell", forgetful)
    monkeypatch.setattr(DirectoryAssignments, "correct", lambda *_: None)
    assert caught_by(move=20, hide=12) in (
        "high_watermark_monotonic",
        "offsets_keep_their_value",
        "acked_never_lost",
        "latest_not_below_acked",
    )


def test_a_roll_that_fails_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new log is there, its index is not, and the old segment goes on growing."""
    roll = rolling.roll_active
    count = 0

    def careless(log: LogState, wall_ms: int, base_offset: int | None = None) -> None:
        nonlocal count
        count += 1
        if count % 2 or base_offset is not None:
            roll(log, wall_ms, base_offset)
            return
        new = Segment(log.disk, log.files, log.directory, log.log_end_offset, wall_ms, is_new=True)
        log.disk.open(new.path + ".log", create=True).close()

    for module in (appending, rolling):
        monkeypatch.setattr(module, "roll_active", careless)
    assert caught_by(kill=20) in (
        "acked_after_fsync",  # what goes into the old segment is not among what the next flush carries
        "acked_never_lost",
        "high_watermark_monotonic",
        "offsets_keep_their_value",
        "order_per_producer",  # its last batch is gone
        "latest_not_below_acked",
        "whole_batches_below_high_watermark",
        "nothing_is_raised",
    )


def learn_what_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two places keep a refused request from the fast path: the handler, and the answer that is compared."""
    handle = Produce.handle

    def careless(self: Produce, request: Any) -> Any:
        topics = request.body.topic_data
        names_one = len(topics) == 1 and len(topics[0].partition_data) == 1
        reply = handle(self, request)
        if not isinstance(reply, Parked):
            request.is_usual = names_one and reply is not None
        return reply

    monkeypatch.setattr(Produce, "handle", careless)
    monkeypatch.setattr(produce_fast_path.RememberedProduce, "is_answered_by", lambda *_: True)


def test_a_fast_path_that_learns_what_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    learn_what_was_refused(monkeypatch)
    monkeypatch.setattr(produce_fast_path, "LEARNED_ACKS", range(-10, 10))
    assert caught_by() == "refused_stays_refused"


def test_a_fast_path_into_a_coordinators_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where such a topic is not compacted, nothing else keeps the fast path from it."""
    learn_what_was_refused(monkeypatch)
    monkeypatch.setattr(produce_fast_path, "INTERNAL_TOPICS", frozenset())
    # the first ten seeds have no such request, and take a second each
    assert caught_by("coordinators", range(11, 41)) in ("refused_stays_refused", "coordinators_rebuilt")
