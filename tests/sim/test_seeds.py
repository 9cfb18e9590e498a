"""Runs of one node, each from a seed: some seconds of trouble for it and its clients, then all heals."""

from __future__ import annotations

import pytest

from headrace.simulator.__main__ import main
from headrace.simulator.fault_profiles import HARDER, profile_of
from headrace.simulator.many_runs import outcomes
from headrace.simulator.report import failure_text
from headrace.simulator.run import Options, simulate

# At least as many seeds of each play as the tests of planted bugs (test_planted_*.py) may need: 30.
BLOCKS = 4
SEEDS_PER_BLOCK = 10  # the same ones each time; `make sim` plays them and as many more as it is asked for


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_judge_objects(block: int) -> None:
    faults, seconds = 0, 0.0
    for seed in range(block * SEEDS_PER_BLOCK + 1, (block + 1) * SEEDS_PER_BLOCK + 1):
        outcome = simulate(seed)
        assert outcome.failure is None, failure_text(outcome)
        faults += outcome.faults
        seconds += outcome.simulated_s
    assert faults >= 20 * SEEDS_PER_BLOCK, "these runs are to see trouble"
    assert seconds >= 20 * SEEDS_PER_BLOCK


COORDINATORS = Options(play="coordinators")
CLIENTS = Options(play="clients")
CLIENTS_BLOCKS = 6
CLIENTS_SEEDS_PER_BLOCK = 5  # a run of theirs takes as long as two of the others


@pytest.mark.parametrize("block", range(3))
def test_no_judge_objects_to_the_coordinators(block: int) -> None:
    cleanings = 0
    for seed in range(block * SEEDS_PER_BLOCK + 1, (block + 1) * SEEDS_PER_BLOCK + 1):
        outcome = simulate(seed, COORDINATORS)
        assert outcome.failure is None, failure_text(outcome)
        cleanings += outcome.cleanings
    assert cleanings >= SEEDS_PER_BLOCK, "coordinators' logs are to be cleaned under way"


@pytest.mark.parametrize("block", range(CLIENTS_BLOCKS))
def test_no_judge_objects_to_our_client(block: int) -> None:
    faults = 0
    for seed in range(block * CLIENTS_SEEDS_PER_BLOCK + 1, (block + 1) * CLIENTS_SEEDS_PER_BLOCK + 1):
        outcome = simulate(seed, CLIENTS)
        assert outcome.failure is None, failure_text(outcome)
        faults += outcome.faults
    assert faults >= 10 * CLIENTS_SEEDS_PER_BLOCK, "these runs are to see trouble"


def test_a_seed_gives_the_same_run_again() -> None:
    once, again, other = simulate(7), simulate(7), simulate(8)
    assert once == again
    assert once.digest != other.digest
    assert simulate(7, CLIENTS) == simulate(7, CLIENTS)


def test_the_command_tells_what_it_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3..4", "--seconds", "2", "--jobs", "1"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("logs: 2 seeds (1 crowded, 1 usual), ")
    assert "coordinators: 2 seeds (" in told
    assert "simulated hours" in told
    assert "times real time" in told


def test_runs_are_the_same_in_several_processes() -> None:
    options = Options(seconds=2.0)
    alone = list(outcomes(range(1, 8), options, jobs=1))
    assert [outcome.seed for outcome in alone] == [*range(1, 8)]
    assert list(outcomes(range(1, 8), options, jobs=2)) == alone


def test_a_seed_decides_its_profile() -> None:
    played = [profile_of(seed) for seed in range(1, 101)]
    assert {name for name, _ in played} == {"usual", *HARDER}
    assert [name for name, _ in played].count("usual") == 75
    assert simulate(8, Options(seconds=1.0)).profile == profile_of(8)[0] != "usual"


def test_options_are_part_of_a_run() -> None:
    assert simulate(3, Options(seconds=1.0)).simulated_s < simulate(3, Options(seconds=3.0)).simulated_s
