"""Timeouts of the quorum: the settings, and the waits that are fixed."""

from dataclasses import dataclass

from headrace.base.randomness import Randomness
from headrace.base.time import Instant

# How long a voter hesitates before it asks for pre-votes, when its leader's process is gone or it has just
# started: long enough that a leader that only closed its connection is reached again, and at random, so that
# two voters seldom stand at the same time.
DOUBT_MS_MIN = 20
DOUBT_MS_MAX = 100

# How long a fetch that finds nothing new waits at the leader, as in Kafka.
FETCH_WAIT_MS = 500

# However long it wants to wait: whoever asked may be gone, and the leader looks at all that wait.
FETCH_WAIT_MS_MAX = 10_000

# A leader counts a follower as gone after so many fetch timeouts, as in Kafka: the follower may be flushing.
PATIENCE_OF_LEADER = 1.5

# The longest wait between two requests that fail.
RETRY_MS_MAX = 1_000


def after(now: Instant, delay_ms: float) -> Instant:
    return Instant(now + delay_ms / 1000)


def hesitation_ms(rng: Randomness) -> int:
    return DOUBT_MS_MIN + rng.randrange(DOUBT_MS_MAX - DOUBT_MS_MIN + 1)


@dataclass(slots=True, frozen=True)
class QuorumTimes:
    """The settings `controller.quorum.*`."""

    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20

    def election_ms(self, rng: Randomness) -> int:
        """How long an election may take: at random, between one and two timeouts."""
        return self.election_timeout_ms + rng.randrange(max(self.election_timeout_ms, 1))

    def backoff_ms(self, rng: Randomness, elections_lost: int) -> int:
        """After a lost election: at random, and longer each time, so that one of several gets ahead."""
        longest = min(DOUBT_MS_MAX << min(elections_lost, 10), self.election_backoff_max_ms)
        return DOUBT_MS_MIN + rng.randrange(max(longest, 1))

    def retry_ms(self, failures: int, longest_ms: int = RETRY_MS_MAX) -> int:
        """After so many requests that failed, one after the other."""
        return min(self.retry_backoff_ms << min(failures, 10), longest_ms)

    @property
    def leader_patience_ms(self) -> float:
        """How long a leader goes on without fetches from a majority."""
        return self.fetch_timeout_ms * PATIENCE_OF_LEADER
