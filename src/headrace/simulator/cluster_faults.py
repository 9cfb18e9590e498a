"""Faults of a simulated cluster: processes that die, stop or stand still, links that fail, clocks and disks.

Each fault lasts for a while and ends by itself. One host at a time may lose its memory. Another one may lose
it when all replicas are in sync again: if two hosts lose a record that was only in their memory, the record
is gone, as in Kafka. With flush.messages=1 there is no such limit.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.simulator.cluster import Cluster
from headrace.simulator.cluster_disk_faults import ClusterDiskFaults
from headrace.simulator.cluster_fault_profiles import ClusterProfile
from headrace.simulator.cluster_late_faults import ClusterLateFaults
from headrace.simulator.history import FaultStruck
from headrace.simulator.host import Host
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE

HOUR_MS = 3_600_000
QUORUM_QUEUE = "quorum"
FLUSH_QUEUE = "flush"
QUEUES = (
    FLUSH_QUEUE,
    FLUSH_QUEUE,
    QUORUM_QUEUE,
    "metadata",
    "snapshot",
    CHECKPOINT_QUEUE,
    "removal",
    "loading",
)


class Connected(Protocol):
    """Somebody whose connection may break."""

    @property
    def name(self) -> str: ...

    def hang_up(self) -> None: ...


class ClusterFaults:
    def __init__(
        self,
        cluster: Cluster,
        clients: Sequence[Connected],
        profile: ClusterProfile,
        may_lose: Callable[[], bool],
    ) -> None:
        """`may_lose`: whether a host may lose its memory now."""
        self._cluster = cluster
        self._world = cluster.world
        self._clients = clients
        self._profile = profile
        self._may_lose = may_lose
        self._is_over = False
        self.count = 0
        disks = ClusterDiskFaults(cluster, may_lose, self._later)
        self._late = late = ClusterLateFaults(cluster, may_lose, self._later)
        self._kinds: list[tuple[Callable[[], str], int]] = [
            (self._kill, profile.kill),
            (self._lose, profile.lose),
            (self._stop_cleanly, profile.stop_cleanly),
            (self._pause, profile.pause),
            (self._isolate, profile.isolate),
            (self._divide, profile.divide),
            (self._bridge, profile.bridge),
            (self._cut_link, profile.cut_link),
            (self._refuse, profile.refuse),
            (self._flap, profile.flap),
            (self._slow_link, profile.slow_link),
            (self._reset, profile.reset),
            (self._client_reset, profile.client_reset),
            (self._clock_jump, profile.clock_jump),
            (self._slow_jobs, profile.slow_jobs),
            (self._disk_full, profile.disk_full),
            # those that only some profiles have stay behind: the seeds of the others repeat their runs
            (self._topple, profile.topple),
            (self._cut_off_followers, profile.cut_off_followers),
            (self._cut_off_controller, profile.cut_off_controller),
            (self._drift, profile.drift),
            (self._late_reads, profile.late_reads),
            (self._rotten_reads, profile.rotten_reads),
            (disks.tear, profile.torn_write),
            (disks.fail, profile.failing_disk),
            (disks.rot, profile.rot),
            (disks.empty, profile.empty_disk),
            (disks.restore, profile.stale_disk),
            (self._late_queue, profile.late_queue),
            (self._isolate_controller, profile.isolate_controller),
            (self._exhaust, profile.exhaust),
            (disks.lose_file, profile.lost_file),
            (self._power_cut, profile.power_cut),
            (disks.kill_writer, profile.kill_writer),
            *zip(
                late.scripts,
                (profile.depose, profile.overwrite, profile.outlive, profile.fork),
                strict=True,
            ),
        ]

    def begin(self) -> None:
        low, high = self._profile.pause_s
        if self._cluster.size == 1:  # half of the faults are of links, and miss it
            low, high = low / 2, high / 2
        self._world.after(self._world.between(low, high), self._strike)

    def stop(self) -> None:
        """All is well from now on."""
        self._is_over = True
        self._cluster.heal()

    def _strike(self) -> None:
        if self._is_over:
            return
        kinds, weights = zip(*self._kinds, strict=True)
        (act,) = self._world.rng.choices(kinds, weights)
        if self._late.is_busy:  # others would spoil it
            act = self._world.rng.choice((self._client_reset, self._clock_jump, self._late_reads))
        fault = act()
        if act in self._late.scripts and fault.startswith("no "):  # it needs more than there is
            count = len(kinds) - len(self._late.scripts)
            (act,) = self._world.rng.choices(kinds[:count], weights[:count])
            fault = act()
        links = (self._isolate, self._divide, self._bridge, self._cut_link, self._refuse, self._flap)
        misses = self._cluster.size == 1 and act in (*links, self._slow_link, self._reset)
        if not misses and not fault.startswith("no "):  # only what strikes somebody counts
            self.count += 1
            self._cluster.history.add(FaultStruck(fault))
        self.begin()

    def _any(self) -> Host:
        return self._world.rng.choice(list(self._cluster.hosts.values()))

    def _two(self) -> tuple[int, int]:
        numbers = list(self._cluster.hosts)
        if len(numbers) < 2:
            return numbers[0], numbers[0]
        one, other = self._world.rng.sample(numbers, 2)
        return one, other

    def _later(self, low: float, high: float, act: Callable[[], None]) -> None:
        def end() -> None:
            if not self._is_over:  # `stop` has healed everything
                act()

        self._world.after(self._world.between(low, high), end)

    # --- processes and hosts --------------------------------------------------------------------------

    def _kill(self) -> str:
        host = self._any()
        host.kill()
        return f"node {host.id} is killed"

    def _lose(self) -> str:
        host = self._any()
        if host.node is None or not self._may_lose():
            return "no host is lost"
        host.crash("lost")
        return f"host {host.id} is lost"

    def _power_cut(self) -> str:
        """Several hosts are lost at once, or all, while the flushes of some are late. Only where each record
        is flushed: otherwise it may have been in the memory of these hosts alone.
        """
        if not self._profile.flushes_each:
            return "no host is without power"
        hosts = list(self._cluster.hosts.values())
        late = [host for host in hosts if self._world.chance(0.4)]
        if self._world.chance(0.3):
            hosts = self._world.rng.sample(hosts, self._world.rng.randint(1, len(hosts)))
        for host in late:
            host.delays.late_queue = FLUSH_QUEUE

        def cut() -> None:
            for host in late:
                host.delays.late_queue = ""
            for host in hosts:
                if host.node is not None:
                    host.crash("lost")

        self._later(0.2, 1.2, cut)
        lost = [host.id for host in hosts]
        return f"{lost} will be without power, until then flushes of {[host.id for host in late]} are late"

    def _stop_cleanly(self) -> str:
        host = self._any()
        host.shut_down()
        return f"node {host.id} is told to stop"

    def _pause(self) -> str:
        host, seconds = self._any(), self._world.between(1.0, 15.0)
        if self._world.chance(0.5):
            seconds /= 5
        host.pause(seconds)
        return f"node {host.id} stands still for {seconds:.1f} s"

    # --- links ----------------------------------------------------------------------------------------

    def _for_a_while(self, links: list[tuple[int, int]]) -> None:
        for link in links:
            self._cluster.network.cut(*link)

        def mend() -> None:
            for link in links:
                self._cluster.network.mend(*link)

        self._later(0.3, 6.0, mend)

    def _isolate(self) -> str:
        number = self._any().id
        others = [other for other in self._cluster.hosts if other != number]
        self._for_a_while([link for other in others for link in ((number, other), (other, number))])
        return f"node {number} is isolated"

    def _isolate_controller(self) -> str:
        """It does not know at once that others decide. Clients reach it, and all others."""
        controller = self._cluster.controller_id
        if controller not in self._cluster.hosts or self._cluster.size < 2:
            return "no controller is isolated"
        others = [other for other in self._cluster.hosts if other != controller]
        self._for_a_while([link for other in others for link in ((controller, other), (other, controller))])
        return f"controller {controller} is isolated"

    def _divide(self) -> str:
        here = [number for number in self._cluster.hosts if self._world.chance(0.5)]
        there = [number for number in self._cluster.hosts if number not in here]
        self._for_a_while([link for a in here for b in there for link in ((a, b), (b, a))])
        return f"{here} and {there} do not reach each other"

    def _bridge(self) -> str:
        numbers = list(self._cluster.hosts)
        self._world.rng.shuffle(numbers)
        middle, rest = numbers[0], numbers[1:]
        half = len(rest) // 2
        self._for_a_while([link for a in rest[:half] for b in rest[half:] for link in ((a, b), (b, a))])
        return f"{rest[:half]} and {rest[half:]} reach each other only through {middle}"

    def _cut_link(self) -> str:
        link = self._two()
        self._for_a_while([link])
        return f"nothing goes from {link[0]} to {link[1]}"

    def _refuse(self) -> str:
        link = self._two()
        self._cluster.network.refuse(*link)
        self._later(0.2, 3.0, lambda: self._cluster.network.mend(*link))
        return f"{link[1]} refuses {link[0]}"

    def _flap(self) -> str:
        link = self._two()

        def flap(times: int) -> None:
            if self._is_over or not times:
                self._cluster.network.mend(*link)
                return
            if times % 2:
                self._cluster.network.cut(*link)
            else:
                self._cluster.network.mend(*link)
            self._world.after(self._world.between(0.05, 0.6), lambda: flap(times - 1))

        flap(8)
        return f"the link from {link[0]} to {link[1]} comes and goes"

    def _slow_link(self) -> str:
        link, seconds = self._two(), self._world.between(0.05, 0.8)
        self._cluster.network.slow_down(*link, seconds)
        self._later(0.5, 4.0, lambda: self._cluster.network.mend(*link))
        return f"from {link[0]} to {link[1]} it takes {seconds:.2f} s longer"

    def _reset(self) -> str:
        host = self._any()
        self._cluster.network.reset_some(host.id)
        return f"connections of node {host.id} break"

    # --- leaders of partitions ----------------------------------------------------------------------------

    def _led(self) -> tuple[str, int, int] | None:
        """Some partition that has a leader, and that leader, as a node that runs knows it."""
        nodes = list(self._cluster.nodes().values())
        if not nodes:
            return None
        image = self._world.rng.choice(nodes).controller.metadata.image
        led = [
            (topic.name, index, partition.leader)
            for topic in image.topics.values()
            for index, partition in topic.partitions.items()
            if partition.leader >= 0 and len(partition.replicas) > 1
        ]
        return self._world.rng.choice(led) if led else None

    def _topple(self) -> str:
        """One leader after the other dies while its followers are not equally far: their logs diverge."""
        led = self._led()
        if led is None:
            return "no leader is toppled"
        topic, index, first = led
        network, world = self._cluster.network, self._world
        others = [number for number in self._cluster.hosts if number != first]
        late = world.rng.choice(others)
        links = [(first, late)]
        network.slow_down(first, late, world.between(0.3, 0.8))

        def kill_first() -> None:
            self._cluster.hosts[first].kill()
            for link in ((a, b) for a in others for b in others if a != b):
                links.append(link)
                network.slow_down(*link, world.between(0.05, 0.6))
            self._later(0.4, 1.6, kill_next)

        def kill_next() -> None:
            for node in self._cluster.nodes().values():
                partition = node.broker.partitions.at(topic, index)
                if partition is not None and partition.is_led_here:
                    self._cluster.hosts[node.id].kill()
                    break
            for link in links:
                network.mend(*link)

        self._later(0.1, 0.6, kill_first)
        return f"node {first}, which leads {topic}-{index}, is toppled, and then the next"

    def _cut_off_followers(self) -> str:
        """A leader and its followers do not reach each other, but all of them reach the controller."""
        led = self._led()
        if led is None:
            return "no leader is cut off"
        controller = self._cluster.controller_id
        leader = led[2]
        others = [number for number in self._cluster.hosts if number not in (leader, controller)]
        self._for_a_while([link for other in others for link in ((leader, other), (other, leader))])
        return f"leader {leader} is cut off from all but controller {controller}"

    def _cut_off_controller(self) -> str:
        led, controller = self._led(), self._cluster.controller_id
        if led is None or controller == led[2]:
            return "no leader is cut off from the controller"
        self._for_a_while([(led[2], controller), (controller, led[2])])
        return f"leader {led[2]} is cut off from controller {controller}"

    def _client_reset(self) -> str:
        if not self._clients:
            return "no client is cut off"
        client = self._world.rng.choice(self._clients)
        client.hang_up()
        return f"{client.name} is cut off"

    # --- clocks and disks ---------------------------------------------------------------------------------

    def _clock_jump(self) -> str:
        host = self._any()
        jump_ms = self._world.rng.choice((-HOUR_MS, -60_000, -1_000, 1_000, 60_000, HOUR_MS))
        host.wall_offset_ms += jump_ms
        return f"the wall clock of {host.id} jumps by {jump_ms} ms"

    def _drift(self) -> str:
        host, rate = self._any(), self._world.rng.choice((0.5, 0.9, 1.1, 2.0))
        host.drift(rate)
        self._later(1.0, 8.0, lambda: host.drift(1.0))
        return f"the clocks of {host.id} run {rate} times as fast"

    def _late_reads(self) -> str:
        """Answers to other nodes are read from their files late, as when a socket takes no more bytes."""
        host = self._any()
        host.reads_late = True

        def end() -> None:
            host.reads_late = False

        self._later(0.5, 4.0, end)
        return f"node {host.id} reads late what it sends"

    def _rotten_reads(self) -> str:
        """Bits flip in records that are read for other nodes."""
        host = self._any()
        host.rotten_reads = 0.3

        def end() -> None:
            host.rotten_reads = 0.0

        self._later(0.3, 2.0, end)
        return f"node {host.id} sends damaged records"

    def _slow_jobs(self) -> str:
        host = self._any()
        host.delays.is_slow = True

        def end() -> None:
            host.delays.is_slow = False

        self._later(0.3, 2.0, end)
        return f"jobs of {host.id} are slow"

    def _late_queue(self) -> str:
        """What one kind of job has to do is late, and the node goes on with everything else. Often it ends
        before the job does.
        """
        host, queue = self._any(), self._world.rng.choice(QUEUES)
        host.delays.late_queue = queue
        deed = self._world.rng.randrange(6)
        controller = self._cluster.controller_id
        if queue == QUORUM_QUEUE and controller in self._cluster.hosts and controller != host.id:
            self._cluster.hosts[controller].kill()  # so that it votes
            deed = 0

        def harm() -> None:
            if deed == 0:
                host.kill()
            elif deed == 1:
                host.shut_down()
            elif host.node is not None and self._may_lose():
                host.crash("lost")

        if deed < 4:
            self._later(0.2, 2.0, harm)

        def end() -> None:
            if host.delays.late_queue == queue:
                host.delays.late_queue = ""

        self._later(0.5, 5.0, end)
        return f"jobs of queue {queue} of {host.id} are late"

    def _exhaust(self) -> str:
        """A process has no file descriptor left for a while. Often its connections break meanwhile."""
        host = self._any()
        if host.node is None:
            return "no process lacks descriptors"
        node = host.node
        host.exhaust(is_over=False)
        if self._world.chance(0.5):
            self._cluster.network.reset_some(host.id)

        def end() -> None:
            if host.node is node:
                host.exhaust(is_over=True)

        self._later(0.3, 3.0, end)
        return f"node {host.id} has no file descriptor left"

    def _disk_full(self) -> str:
        host, room = self._any(), self._world.rng.choice((0, 61, 300, 1_000))
        for disk in host.disks.values():
            disk.space_bytes = room

        def end() -> None:
            for disk in host.disks.values():
                disk.space_bytes = None

        self._later(0.2, 1.0, end)
        return f"the disk of {host.id} is full after {room} bytes"
