"""Output of many runs: progress lines, and failures with the command that repeats them."""

from headrace.simulator.cluster_fault_profiles import PROFILES, cluster_profile_of
from headrace.simulator.run import Outcome


class Tally:
    """Sums over the runs of one play."""

    def __init__(self, play: str) -> None:
        self._play = play
        self.runs = 0
        self.failures = 0
        self._faults = 0
        self._simulated_s = 0.0
        self._by_profile: dict[str, int] = {}

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.failures += outcome.failure is not None
        self._faults += outcome.faults
        self._simulated_s += outcome.simulated_s
        self._by_profile[outcome.profile] = self._by_profile.get(outcome.profile, 0) + 1

    def line(self, took_s: float) -> str:
        profiles = ", ".join(f"{count} {name}" for name, count in sorted(self._by_profile.items()))
        failed = f"{self.failures} FAILED, " if self.failures else ""
        return (
            f"{self._play}: {self.runs} seeds ({profiles}), {failed}{self._faults} faults, "
            f"{self._simulated_s / 3600:.2f} simulated hours, "
            f"{self._simulated_s / max(took_s, 0.01):.0f} times real time"
        )


def failure_text(outcome: Outcome) -> str:
    """What happened before it, and all that is needed to see it again."""
    assert outcome.failure is not None
    return "\n".join(
        [*outcome.failure.lines_before, "", f"  {outcome.failure.event[:2000]}", failure_line(outcome)]
    )


def failure_line(outcome: Outcome) -> str:
    failure = outcome.failure
    assert failure is not None
    return (
        f"{outcome.play}: seed {outcome.seed} ({outcome.profile} faults) "
        f"fails at {outcome.simulated_s:.3f} s, "
        f"event {failure.event_number}:\n"
        f"  {failure.judge}: {failure.sentence[:1000]}\n"
        f"replay: make sim SEED={outcome.seed} PLAY={outcome.play}{_given_profile(outcome)}"
    )


def _given_profile(outcome: Outcome) -> str:
    """Of a cluster, if it is not the seed's own."""
    if outcome.profile not in PROFILES or outcome.profile == cluster_profile_of(outcome.seed)[0]:
        return ""
    return f" PROFILE={outcome.profile}"
