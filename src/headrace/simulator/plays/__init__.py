"""What is played in a run: the topics, the clients, the settings; the fault model is the same for all."""

from typing import Protocol

from headrace.simulator.history import JudgedWrong
from headrace.simulator.machine import Machine
from headrace.simulator.odds import Odds

CALM_S = 1.0  # until what was under way when the trouble ended is over
HEALING_S = 60.0  # beyond every timeout and back-off of the clients and every interval of the node


class Play(Protocol):
    """Made anew for each run, from its die."""

    @property
    def settings(self) -> dict[str, str]:
        """Of the node, besides those that all plays share."""
        ...

    def live(self, machine: Machine, odds: Odds, seconds: float) -> None:
        """Trouble for so many seconds, then healing; JudgedWrong when something is wrong."""
        ...


def stuck(machine: Machine, what: str) -> JudgedWrong:
    """The objection when something does not happen though all has healed."""
    state = "is down" if machine.node is None else f"reported {machine.reports[-3:]}"
    sentence = f"{HEALING_S:.0f} s after all has healed {what}; the node {state}"
    return JudgedWrong("progress_after_healing", sentence, machine.history.count, "nothing happens")
