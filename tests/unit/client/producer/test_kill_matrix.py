"""Whoever is killed wherever: readers of committed records see each row once, and only whole batches."""

from __future__ import annotations

import pytest

from harness.sink_world import BATCHES, POINTS, VICTIMS, DriverKilled, World, expected_of

SEEDS = 3


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("point", POINTS)
def test_each_row_once_and_batches_whole(point: str, victim: str) -> None:
    for seed in range(SEEDS):
        world = World(seed, point, victim)
        while world.commit_log < BATCHES - 1:
            try:
                world.run_query()
            except DriverKilled:
                world.check_whole_batches()
        assert world.has_killed, "the point was not reached"
        expected = sorted(value for batch in range(BATCHES) for value in expected_of(batch))
        assert sorted(world.committed()) == expected, f"seed {seed}"
        # the last run again, from before its last entry in the log: nothing comes of it
        world.commit_log -= 1
        world.run_query()
        assert sorted(world.committed()) == expected, f"seed {seed}"
        for stage in world.stages:
            stage.exchange()
        world.check_nothing_open()
