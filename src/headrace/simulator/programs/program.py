"""Base of the simulated programs: a program works in steps, crashes, and is started again."""

from typing import Any

from headrace.base.time import Instant
from headrace.protocol.notation import Request
from headrace.simulator.history import MemoryHeld
from headrace.simulator.nodes import Nodes
from headrace.simulator.programs.shell import Driven, Shell


class Program:
    def __init__(self, host: Nodes, name: str, *, leaves_ghosts: bool = True) -> None:
        self.host = host
        self.world = host.world
        self.history = host.history
        self.name = name
        self.life = 0
        self.pauses = (0.02, 0.4)  # between steps
        self.mortality = 0.01  # in a step
        self.is_careful = False  # lives on from now
        self._leaves_ghosts = leaves_ghosts
        self._shells: list[Shell] = []
        self._held: dict[str, int] = {}  # at most, in this life

    # --- what a kind of program says ----------------------------------------------------------------

    def sessions(self) -> list[Driven]:
        """The machines of a new life."""
        raise AssertionError("each program says what it is made of")

    def step(self) -> None:
        raise AssertionError("each program says what it does")

    def heard(self) -> None:
        """A session may have news."""

    def promised(self, request: Request, answer: Any) -> None:
        """An answer left the node."""

    # --- the rest -----------------------------------------------------------------------------------

    @property
    def now(self) -> Instant:
        return Instant(self.world.mono)

    def begin(self) -> None:
        self.life += 1
        self._held.clear()
        self._shells = [
            Shell(
                self.host,
                self.name,
                session,
                self.heard,
                self.promised,
                leaves_ghosts=self._leaves_ghosts,
            )
            for session in self.sessions()
        ]
        self.touch()
        self._plan_step(self.life)

    def touch(self) -> None:
        for shell in list(self._shells):
            shell.touch()

    def _plan_step(self, life: int) -> None:
        def act() -> None:
            if self.life != life or not self._shells:
                return
            if not self.is_careful and self.world.chance(self.mortality):
                self.die()
                return
            self.step()
            if self.life == life:
                self.touch()
                self._plan_step(life)

        self.world.after(self.world.between(*self.pauses), act)

    def die(self) -> None:
        """kill -9, and a new process soon."""
        for shell in self._shells:
            shell.die()
        self._shells = []
        self.world.after(self.world.between(0.05, 1.0), self.begin)

    def hang_up(self) -> None:
        for shell in list(self._shells):
            shell.hang_up()

    def holds(self, what: str, held_bytes: int, bytes_max: int) -> None:
        """For the judge of memory, who hears of new heights only."""
        if held_bytes > self._held.get(what, 0):
            self._held[what] = held_bytes
            self.history.add(MemoryHeld(self.name, what, held_bytes, bytes_max))
