"""Play `quorum`: the machines of the metadata quorum alone, in a storm.

Without nodes and clients around them many more faults fit into a simulated second than in the plays of a
cluster: crashes, also between two effects of one step, cuts, losses, repetitions, slow disks, snapshots,
stops, and at most one lost disk. Then everything heals, and the quorum has to make progress.
"""

from headrace.machines.raft.messages import AdvanceHighWatermark, Effect, Lead
from headrace.simulator.history import FaultStruck, JudgedWrong, NodeLife
from headrace.simulator.quorum.descriptions import describe
from headrace.simulator.quorum.host import QuorumHost
from headrace.simulator.quorum.simulation import QuorumSimulation
from headrace.simulator.world import World

STEPS_PER_S = 8  # about half of them are faults, the others write
LONGER = 4  # than the trouble of other plays: a run takes little time
HEALED_S = 20.0


class QuorumStorm:
    def __init__(self, world: World) -> None:
        rng = self.rng = world.rng
        self._world = world
        simulation = self.simulation = QuorumSimulation(world)
        self._is_over = False
        self._steps = 0
        self.voters = list(range(1, rng.choice((1, 2, 3, 3, 3, 4, 5, 5)) + 1))
        simulation.add(self.voters)
        simulation.observe([9] if world.chance(0.5) else [])
        simulation.loss = rng.choice((0.0, 0.01, 0.1))
        simulation.repeats = rng.choice((0.0, 0.1))
        simulation.delay_seconds_max = rng.choice((0.0, 0.01, 0.2))
        simulation.flush_seconds_max = rng.choice((0.0, 0.01, 0.3, 1.0))
        simulation.crash_between_effects = rng.choice((0.0, 0.0, 0.002))
        simulation.fetched_max = rng.choice((1, 1, 2, 20))
        self._early_ends = rng.choice((0.0, 0.8, 0.8))  # how many leaders are cut off or killed at once
        self._kills_at_commit = rng.choice((0.05, 0.4))  # how many commits kill their leader
        self._may_lose_disk = len(self.voters) >= 3 and world.chance(0.8)
        simulation.watch = self._watch

    def live(self, seconds: float) -> None:
        """A storm of so many seconds; JudgedWrong: a judge saw something that must not be, or there is no
        progress after it.
        """
        late = self.rng.choice(self.voters) if self._world.chance(0.1) else None
        for host in self.simulation.hosts.values():
            if host.id != late:
                host.start()
        if late is None and self._world.chance(0.9):  # else the storm hits the first election
            committed = self.simulation.judges.committed
            self._world.run(self._world.mono + HEALED_S, is_done=lambda: bool(committed))
        ends_at = self._world.mono + seconds * LONGER
        while self._world.mono < ends_at:
            self.simulation.wait(self.rng.expovariate(STEPS_PER_S))
            self._steps += 1
            self._blow()
        self._is_over = True
        self._demand_progress()

    # --- faults ------------------------------------------------------------------------------------------

    def _struck(self, fault: str) -> None:
        self.simulation.history.add(FaultStruck(fault))

    def _watch(self, host: QuorumHost, effect: Effect) -> None:
        """Faults at the worst moments: soon after an election, and right after a commit."""
        self.simulation.history.add(NodeLife(host.id, describe(effect)))
        chance = self.rng.random()
        life = host.life
        if isinstance(effect, Lead) and chance < self._early_ends:
            if self._world.chance(0.4):
                self.simulation.at(
                    self.rng.random() * 0.5, lambda: self._kill(host) if host.life == life else None
                )
            else:
                self.simulation.at(self.rng.random() * 0.05, lambda: self._isolate(host))
        if isinstance(effect, AdvanceHighWatermark) and host.up.is_leader:
            if chance < self._kills_at_commit:
                self.simulation.at(0, lambda: self._kill(host, 5.0) if host.life == life else None)
            elif chance > 0.96:
                self.simulation.at(0, lambda: self._lose_power(last=host))

    def _blow(self) -> None:
        rng, simulation = self.rng, self.simulation
        host = rng.choice(list(simulation.hosts.values()))
        other = rng.choice(list(simulation.hosts))
        chance = rng.random()
        if chance < 0.55:
            self._propose(self._steps)
        elif chance < 0.65:
            leader = simulation.leader()
            self._kill(leader if leader is not None and self._world.chance(0.5) else host)
        elif chance < 0.67:
            self._lose_power()
        elif chance < 0.75:
            self._struck(f"{host.id} and {other} do not reach each other")
            simulation.cut(host.id, other)
        elif chance < 0.80:
            self._struck(f"nothing goes from {host.id} to {other}")
            simulation.cuts.add((host.id, other))
        elif chance < 0.90:
            simulation.cuts.clear()
        elif chance < 0.94:
            if host.quorum is not None:
                host.make_snapshot()
        elif chance < 0.96:
            self._stop(host)
        elif self._may_lose_disk and host.id in self.voters and simulation.judges.committed:
            self._lose_disk(host, other)

    def _propose(self, value: int) -> None:
        for host in self.simulation.hosts.values():  # a leader that is none any more tries, too
            if host.quorum is not None and host.quorum.is_leader:
                host.propose(value)

    def _kill(self, host: QuorumHost, back_in: float | None = None) -> None:
        """It comes back after a while."""
        if host.quorum is None or self._is_over:
            return
        self._struck(f"{host.id} is killed")
        host.crash()
        wait = self.rng.expovariate(1) if back_in is None else back_in
        self.simulation.at(wait, lambda: host.start() if host.quorum is None else None)

    def _stop(self, host: QuorumHost) -> None:
        if host.quorum is not None:
            self._struck(f"{host.id} is told to stop")
            self.simulation.stop(host)
            self.simulation.at(self.rng.random() * 2, lambda: self._kill(host))

    def _isolate(self, host: QuorumHost) -> None:
        """Nobody hears it, for a while; what it appends is its own."""
        if self._is_over:
            return
        self._struck(f"{host.id} is isolated")
        for other in self.simulation.hosts:
            self.simulation.cut(host.id, other)
        self.simulation.at(self.rng.random() * 3, lambda: self.simulation.cuts.clear())
        self._propose(host.life)

    def _lose_power(self, last: QuorumHost | None = None) -> None:
        """Most nodes go down together, and come back one after the other."""
        for host in self.simulation.hosts.values():
            if self._world.chance(0.8) or host is last:
                self._kill(host, 10.0 if host is last else self.rng.expovariate(0.5))

    def _lose_disk(self, host: QuorumHost, other: int) -> None:
        """It comes back with an empty one; perhaps while the others that know better are away."""
        self._may_lose_disk = False
        for one in self.simulation.hosts:  # first one of the others falls behind
            if one not in (host.id, other):
                self.simulation.cut(one, other)
        for late in range(5):
            self.simulation.wait(0.2)
            self._propose(1000 + late)
        self._struck(f"{host.id} loses its disk")
        if host.quorum is not None:
            host.crash()
        host.lose_disk()
        leader = self.simulation.leader()
        if leader is not None and self._world.chance(0.7):
            self._kill(leader, 10.0)
        self.simulation.cuts.clear()
        host.start()

    # --- the calm ----------------------------------------------------------------------------------------

    def _demand_progress(self) -> None:
        simulation = self.simulation
        simulation.heal()
        for host in simulation.hosts.values():  # those that were stopped do not stand: they come back
            if host.up.is_stopping:
                host.crash()
                host.start()
        simulation.wait(HEALED_S)
        leader = simulation.leader()
        if leader is None:
            raise self._stuck("nobody leads")
        leader.propose("healed")
        simulation.wait(2.0)
        ends = {host.id: host.up.high_watermark for host in simulation.hosts.values()}
        if set(ends.values()) != {len(leader.entries)} or simulation.judges.committed[-1].value != "healed":
            raise self._stuck(
                f"high watermarks are {ends}, and the leader's log ends at {len(leader.entries)}"
            )

    def _stuck(self, what: str) -> JudgedWrong:
        sentence = f"{HEALED_S:.0f} s after all has healed {what}"
        return JudgedWrong("progress", sentence, self.simulation.history.count, "nothing happens")
