"""Quorum machines in simulated time. A test moves them by hand (`wait`, `cut`), the play `quorum` by a seed.
Entries take the place of record batches.
"""

from collections.abc import Callable
from itertools import count
from random import Random

from headrace.base.time import Instant
from headrace.machines.raft.messages import (
    Answer,
    Answered,
    Effect,
    Message,
    ShutdownBegan,
    Unanswered,
    Vote,
    Woke,
)
from headrace.machines.raft.times import QuorumTimes
from headrace.machines.raft.voters import VoterKey, Voters
from headrace.simulator.history import History
from headrace.simulator.quorum.host import QuorumHost
from headrace.simulator.quorum.judges import Judges
from headrace.simulator.world import World


class QuorumSimulation:
    def __init__(self, world: World) -> None:
        self.world = world
        self.history = History(world, [])
        self.rng = world.rng
        self.machine_rng = Random(world.rng.getrandbits(64))
        self.times = QuorumTimes()
        self.judges = Judges(self.history)
        self.hosts: dict[int, QuorumHost] = {}
        self.tickets = count(1)
        self.watch: Callable[[QuorumHost, Effect], None] = lambda host, effect: None
        self.cuts: set[tuple[int, int]] = set()  # from, to
        self.loss = 0.0
        self.repeats = 0.0
        self.delay_seconds_max = 0.0  # 0: one millisecond, always
        self.flush_seconds_max = 0.0
        self.crash_between_effects = 0.0
        self.fetched_max = 20  # entries in one answer
        self._wakes: dict[int, float] = {}

    def add(self, voters: list[int]) -> None:
        self._configured = Voters.of(VoterKey(id) for id in voters)
        self.observe(voters)

    def observe(self, ids: list[int]) -> None:
        """Nodes that know who votes; only `add` makes them voters."""
        for id in ids:
            self.hosts[id] = QuorumHost(self, VoterKey(id, bytes([id]) * 16), self._configured)

    # --- time ----------------------------------------------------------------------------------------------

    @property
    def now(self) -> Instant:
        return Instant(self.world.mono)

    def at(self, delay: float, act: Callable[[], None]) -> None:
        self.world.after(delay, act)

    def wake_later(self, host: QuorumHost) -> None:
        deadline = host.up.deadline()
        if deadline is None or self._wakes.get(host.id) == deadline:
            return
        self._wakes[host.id] = deadline
        life = host.life

        def wake() -> None:
            if host.life == life and host.up.deadline() == deadline:
                del self._wakes[host.id]
                host.step(Woke())

        self.at(deadline - self.now, wake)

    def wait(self, seconds: float) -> None:
        self.world.run(self.world.mono + seconds)

    def flush_seconds(self) -> float:
        return 0.001 + self.rng.random() * self.flush_seconds_max

    def crashes_now(self) -> bool:
        return self.crash_between_effects > 0 and self.rng.random() < self.crash_between_effects

    # --- the network ---------------------------------------------------------------------------------------

    def _delay(self) -> float:
        return 0.001 + self.rng.random() * self.delay_seconds_max

    def _passes(self, source: int, target: int) -> bool:
        return (source, target) not in self.cuts and self.rng.random() >= self.loss

    def send(self, host: QuorumHost, peer: int, request: Message) -> None:
        life = host.life
        is_over = False
        if isinstance(request, Vote) and not request.is_pre_vote:
            self.judges.voted(host.key, request.epoch, request.candidate)

        def end(event: Answered | Unanswered) -> None:
            nonlocal is_over
            if not is_over and host.life == life:
                is_over = True
                host.step(event)

        def lost() -> None:
            end(Unanswered(peer, request, is_refused=False))

        def deliver() -> None:
            target = self.hosts[peer]
            if target.quorum is None:
                self.at(self._delay(), lambda: end(Unanswered(peer, request, is_refused=True)))
                return
            target_life = target.life

            def reply(answer: Answer) -> None:
                if self._passes(peer, host.id):
                    self.at(self._delay(), lambda: end(Answered(peer, request, answer)))

            target.ask(request, reply)
            self._watch_life(target, target_life, lost)

        if self._passes(host.id, peer):
            self.at(self._delay(), deliver)
            if self.rng.random() < self.repeats:
                self.at(self._delay() + self.rng.random() * 5, deliver)
        self.at(2.5, lost)

    def _watch_life(self, target: QuorumHost, life: int, lost: Callable[[], None]) -> None:
        """A connection breaks when its process ends."""

        def look() -> None:
            if target.life != life:
                lost()

        self.at(0.005, look)
        self.at(0.1, look)
        self.at(1.0, look)

    # --- by hand and by chance -----------------------------------------------------------------------------

    def leader(self) -> QuorumHost | None:
        """The one with the highest epoch among those that lead."""
        leading = [one for one in self.hosts.values() if one.quorum is not None and one.quorum.is_leader]
        return max(leading, key=lambda one: one.up.epoch, default=None)

    def cut(self, first: int, second: int) -> None:
        self.cuts |= {(first, second), (second, first)}

    def stop(self, host: QuorumHost) -> None:
        host.step(ShutdownBegan())

    def heal(self) -> None:
        self.cuts.clear()
        self.loss = self.repeats = self.delay_seconds_max = self.flush_seconds_max = 0.0
        self.crash_between_effects = 0.0
        for host in self.hosts.values():
            if host.quorum is None:
                host.start()
