"""The play `quorum`: at most one leader and one vote in an epoch, and what is committed stays.

The bugs of `harness/quorum_bugs.py` are planted in the same storms: a judge that does not see them would not
see a real one.
"""

from __future__ import annotations

import pytest

from harness.quorum_bugs import BUGS
from headrace.simulator.plays.quorum import QuorumStorm
from headrace.simulator.report import failure_text
from headrace.simulator.run import Options, simulate
from headrace.simulator.world import World

SEEDS = 60
QUORUM = Options(play="quorum")

# The first seed in which a judge caught the bug. When the storm or the machine changes, it may be another:
# the search then begins at 0, and what it finds belongs here.
CAUGHT = {
    "vote_not_durable": 0,
    "vote_for_an_older_log": 0,
    "old_epoch_committed_by_count": 58,
    "fetch_before_fsync": 26,
    "voter_without_its_disk_votes": 8,
    "first_election_by_majority": 28,
}


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_storms(first: int) -> None:
    for seed in range(first, first + 10):
        outcome = simulate(seed, QUORUM)
        assert outcome.failure is None, failure_text(outcome)
        assert outcome.simulated_s >= 20
        assert outcome.faults >= 20


def test_much_is_committed_in_a_storm() -> None:
    committed = 0
    for seed in range(10):
        storm = QuorumStorm(World(seed))
        storm.live(20.0)
        committed += len(storm.simulation.judges.committed)
    assert committed > 50, "most proposals get lost: this storm shows nothing"


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str) -> None:
    with BUGS[name]():
        for seed in (CAUGHT[name], *range(100)):
            failure = simulate(seed, QUORUM).failure
            if failure is not None:
                assert failure.judge != "nothing_is_raised", failure.event
                return
    raise AssertionError(f"no judge saw the planted bug {name}")
