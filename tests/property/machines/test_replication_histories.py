"""Random histories of three replicas: nothing that was committed is lost, and replicas agree on it.

Then the same with mistakes that replication protocols have really had, one at a time: each has to be caught.
Rarer ones have tests of their own (`tests/unit/machines/replication`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.replicas import Broken, Mistakes, Replicas
from headrace.base.ids import BrokerId
from headrace.machines.replication.leader import PartitionLeader, Progress

SEEDS = 60
STEPS = 400
PLANTED_SEEDS = 400


def history(seed: int, mistakes: Mistakes | None = None, *, heals: bool = True) -> Replicas:
    replicas = Replicas(seed, mistakes or Mistakes())
    try:
        replicas.run(STEPS)
        if heals:
            replicas.heal()
    except Broken as broken:
        broken.add_note(f"seed {seed}")
        raise
    return replicas


def test_random_histories_keep_every_promise() -> None:
    histories = [history(seed) for seed in range(SEEDS)]
    # they are about something
    for what in ("acked", "committed", "elections", "truncations", "isr_changes", "power_losses"):
        assert sum(getattr(one.counts, what) for one in histories) >= SEEDS / 4, what


def caught_by(mistakes: Mistakes | None = None) -> str:
    for seed in range(PLANTED_SEEDS):
        try:
            history(seed, mistakes, heals=False)
        except Broken as broken:
            return broken.promise
    raise AssertionError(f"no promise was broken in {PLANTED_SEEDS} histories")


SAFETY = {
    "acked_is_committed",
    "committed_never_lost",
    "replicas_agree_below_high_watermark",
    "truncation_spares_the_committed",
}


@pytest.mark.parametrize(
    "mistakes",
    [
        Mistakes(truncates_to_high_watermark=True),  # KIP-101
        Mistakes(acks_by_offset_alone=True),
        Mistakes(stays_in_sync_without_power=True),
        Mistakes(leads_from_log_end=True),
        Mistakes(follower_assigns_epoch=True),
    ],
    ids=str,
)
def test_a_mistake_around_the_machines(mistakes: Mistakes) -> None:
    assert caught_by(mistakes) in SAFETY


Plant = Callable[[pytest.MonkeyPatch], None]


def _proposed_isr_counts_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        PartitionLeader,
        "maximal_isr",
        property(lambda self: self.isr if self.proposed is None else self.proposed),
    )


def _joins_below_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def may_join(self: PartitionLeader, now: Any, replica: BrokerId, progress: Progress) -> bool:
        is_there = replica not in self.isr and progress.fetched_at == now
        return is_there and self.is_eligible(replica, progress)

    patch.setattr(PartitionLeader, "_may_join", may_join)


def _diverging_fetch_counts(patch: pytest.MonkeyPatch) -> None:
    step = PartitionLeader._fetched

    def fetched(self: PartitionLeader, now: Any, fetch: Any) -> Any:
        fetch.diverges = False
        return step(self, now, fetch)

    patch.setattr(PartitionLeader, "_fetched", fetched)


def _commits_with_too_few(patch: pytest.MonkeyPatch) -> None:
    count = PartitionLeader._count

    def counts(self: PartitionLeader, now: Any) -> None:
        count(self, now)
        self._may_rise = True

    patch.setattr(PartitionLeader, "_count", counts)


@pytest.mark.parametrize(
    "plant",
    [
        _proposed_isr_counts_at_once,
        _joins_below_the_high_watermark,
        _diverging_fetch_counts,
        _commits_with_too_few,
    ],
)
def test_a_mistake_of_the_machines(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert caught_by() in SAFETY
