"""Whoever is killed wherever: readers of committed records see each row once, and only whole batches."""

from __future__ import annotations

import pytest

from harness.sink_simulation import BATCHES, POINTS, VICTIMS, DriverKilled, SinkSimulation, expected_of
from headrace.node.coordinators import markers

SEEDS = 3


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("markers_per_turn", [markers.MARKERS_PER_TURN, 1])
def test_each_row_once_and_batches_whole(
    markers_per_turn: int, point: str, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "MARKERS_PER_TURN", markers_per_turn)
    for seed in range(SEEDS):
        simulation = SinkSimulation(seed, point, victim)
        while simulation.commit_log < BATCHES - 1:
            try:
                simulation.run_query()
            except DriverKilled:
                simulation.check_whole_batches()
        assert simulation.has_killed, "the point was not reached"
        expected = sorted(value for batch in range(BATCHES) for value in expected_of(batch))
        assert sorted(simulation.committed()) == expected, f"seed {seed}"
        # the last run again, from before its last entry in the log: nothing comes of it
        simulation.commit_log -= 1
        simulation.run_query()
        assert sorted(simulation.committed()) == expected, f"seed {seed}"
        for producer in simulation.producers:
            producer.network.exchange()
        simulation.check_nothing_open()
