"""Plays: the scenarios of the simulator, with their topics, clients and settings; all have the same
faults.
"""

from typing import Protocol

from headrace.simulator.cluster import Cluster
from headrace.simulator.cluster_fault_profiles import ClusterProfile
from headrace.simulator.fault_profiles import FaultProfile
from headrace.simulator.history import JudgedWrong
from headrace.simulator.host import Host

CALM_S = 1.0  # until what was under way when the trouble ended is over
HEALING_S = 60.0  # beyond every timeout and back-off of the clients and every interval of the node


class Play(Protocol):
    """Created for each run, from its die."""

    @property
    def settings(self) -> dict[str, str]:
        """Of the node, besides those that all plays share."""
        ...

    def live(self, host: Host, profile: FaultProfile, seconds: float) -> None:
        """Trouble for so many seconds, then healing; JudgedWrong when something is wrong."""
        ...


class ClusterPlay(Protocol):
    """The same with several nodes."""

    @property
    def nodes(self) -> int: ...

    @property
    def settings(self) -> dict[str, str]: ...

    def live(self, cluster: Cluster, profile: ClusterProfile, seconds: float) -> None: ...


def stuck(host: Host, what: str) -> JudgedWrong:
    """The objection when something does not happen though all has healed."""
    state = "is down" if host.node is None else f"reported {host.reports[-3:]}"
    sentence = f"{HEALING_S:.0f} s after all has healed {what}; the node {state}"
    return JudgedWrong("progress_after_healing", sentence, host.history.count, "nothing happens")
