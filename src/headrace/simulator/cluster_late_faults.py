"""Faults of a cluster in which something old arrives late.

There are four: a leader that was replaced continues while clients wait for it; an answer of such a leader is
read from a file that was written again since; a request of a broker's former run arrives after the next run
has begun; of two followers the one that is late leads first. Each is a short script for one partition,
because its steps hardly ever come together by chance.
"""

from collections.abc import Callable
from typing import Protocol

from headrace.node.partition import Partition
from headrace.simulator.cluster import Cluster
from headrace.storage.log import PartitionLog

LOOK_S = 0.02  # between two looks at what a script waits for
FALL_S_MAX = 4.0  # from the isolation of a leader to the next leader; the session of a broker ends before
LATE_S_MAX = 2.0  # that a follower is behind; it leaves the in-sync set later


class Later(Protocol):
    """Calls after a random time, unless the faults are over by then."""

    def __call__(self, low: float, high: float, act: Callable[[], None], /) -> None: ...


class Led:
    """A partition with its leader and the others that have a replica, in the order in which they are
    elected.
    """

    def __init__(self, topic: str, index: int, leader: int, followers: list[int]) -> None:
        self.topic = topic
        self.index = index
        self.leader = leader
        self.followers = followers

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class ClusterLateFaults:
    def __init__(self, cluster: Cluster, may_lose: Callable[[], bool], later: Later) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._network = cluster.network
        self._may_lose = may_lose
        self._later = later
        self.is_busy = False  # one script is under way
        self.scripts = (self.depose, self.overwrite, self.outlive, self.fork)

    def depose(self) -> str:
        """A leader is isolated until another one leads and has written; clients go on writing to both. Those
        who wait for the old one find it again as a follower, with other records where theirs were.
        """
        controller = self._cluster.controller_id
        led = self._any_led(lambda one: len(one.followers) > 1 and one.leader != controller)
        if led is None:
            return "no leader is deposed"
        others = [number for number in self._cluster.hosts if number != led.leader]
        self._begin(both_ways(led.leader, others))
        self._when(lambda: self._has_next_leader(led), FALL_S_MAX, lambda: self._later(0.3, 1.5, self._end))
        return f"node {led.leader} is isolated until another leads {led}"

    def overwrite(self) -> str:
        """The same, but one follower goes on fetching from the old leader, and hears late of the next one. An
        answer to it waits to be read until the old leader has the next leader's records in the same place.
        """
        controller = self._cluster.controller_id

        def suits(one: Led) -> bool:
            return one.leader != controller and any(late != controller for late in one.followers[1:])

        led = self._any_led(suits)
        if led is None:
            return "no answer is late"
        late = self._world.rng.choice([late for late in led.followers[1:] if late != controller])
        network, old = self._network, self._cluster.hosts[led.leader]
        others = [number for number in self._cluster.hosts if number not in (led.leader, late)]
        news = [(other, late) for other in others]
        old.hold_answers(late)
        self._begin(both_ways(led.leader, others))
        for link in news:
            network.slow_down(*link, 0.3)  # a voter does not give up its leader yet

        def release() -> None:
            old.release_answers()
            for link in news:
                network.mend(*link)
            self._later(0.1, 0.1, self._end)

        def meet() -> None:
            network.sever(news)
            self._when(lambda: self._has_written(led) and old.can_read_held, 3.0, release)

        self._when(lambda: self._has_next_leader(led), FALL_S_MAX, meet)
        return f"node {led.leader} is isolated with {late} until another leads {led}"

    def outlive(self) -> str:
        """The first request of a fetch session is on its way when its sender loses its memory, and arrives
        when the sender runs again and has not got everything back. The other followers get nothing meanwhile:
        the high watermark stays below what the request says.
        """
        controller = self._cluster.controller_id
        led = self._any_led(lambda one: len(one.followers) > 1 and one.leader != controller)
        if led is None:
            return "no request outlives its sender"
        world, network, number = self._world, self._network, led.leader
        lost = world.rng.choice(led.followers)
        sender, leader = self._cluster.hosts[lost], self._cluster.hosts[number]
        for follower in led.followers:
            if follower != lost:
                leader.hold_answers(follower)
        self._begin([])

        def begin_session() -> None:
            network.linger(lost, number, world.between(0.8, 1.6))
            network.reset(lost, number)
            self._later(0.05, 0.15, lose)

        def lose() -> None:
            network.linger(lost, number, 0.0)
            if sender.node is not None and self._may_lose():
                leader.hold_answers(lost)
                sender.crash("lost")
            self._later(1.6, 2.0, end)

        def end() -> None:
            leader.release_answers()
            self._end()

        self._later(0.1, 0.6, begin_session)
        return f"requests of {lost} to {number}, which leads {led}, outlive their sender"

    def fork(self) -> str:
        """Two followers lead in turn, first the one that lacks records, and neither gets what the other has
        written meanwhile: the second leader has more of the first epoch than the one between them, and does
        not know the epoch of that one. This is what KIP-279 is about.
        """
        controller = self._cluster.controller_id

        def suits(one: Led) -> bool:
            return len(one.followers) > 1 and controller not in (one.leader, one.followers[0])

        led = self._any_led(suits)
        if led is None:
            return "no log is forked"
        number, (late, ahead) = led.leader, led.followers[:2]
        first, second = self._cluster.hosts[number], self._cluster.hosts[late]
        first.hold_answers(late)
        second.hold_answers(ahead)
        self._begin([])

        def replace_first() -> None:
            self._network.sever(both_ways(number, [late]))  # else it is in sync again, and leads next
            first.kill()
            first.release_answers()
            self._when(lambda: self._has_led(led, late), FALL_S_MAX, replace_second)

        def replace_second() -> None:
            second.kill()
            second.release_answers()
            self._when(lambda: self._has_led(led, ahead), FALL_S_MAX, self._end)

        self._when(lambda: self._end_at(led, ahead) > self._end_at(led, late) >= 0, LATE_S_MAX, replace_first)
        return f"{late} and then {ahead} leads {led} after {number}, and {late} lacks records of {number}"

    # --- what scripts look at -----------------------------------------------------------------------------

    def _any_led(self, suits: Callable[[Led], bool]) -> Led | None:
        """Some partition of clients that has a leader and suits, as a node that runs knows it."""
        nodes = list(self._cluster.nodes().values())
        if self.is_busy or not nodes:
            return None
        image = self._world.rng.choice(nodes).controller.metadata.image
        found = []
        for topic in image.topics.values():
            for index, one in topic.partitions.items():
                followers = [replica for replica in one.replicas if replica in one.isr]
                if one.leader in followers and not topic.name.startswith("__"):
                    followers.remove(one.leader)
                    found.append(Led(topic.name, index, one.leader, followers))
        found = [one for one in found if suits(one)]
        return self._world.rng.choice(found) if found else None

    def _has_next_leader(self, led: Led) -> bool:
        for number, node in self._cluster.nodes().items():
            partition = node.broker.partitions.at(led.topic, led.index)
            if number != led.leader and partition is not None and partition.is_led_here:
                return True
        return False

    def _has_written(self, led: Led) -> bool:
        """Whether the old leader has records of the next one."""
        partition, log = self._replica(led, led.leader)
        if partition is None or log is None:
            return True  # there is nothing to wait for
        return partition.follower is not None and log.epoch_at(log.log_end_offset - 1) == (
            partition.leader_epoch
        )

    def _has_led(self, led: Led, number: int) -> bool:
        """Whether this node leads, and has records that only a leader of its epoch writes."""
        partition, log = self._replica(led, number)
        return (
            partition is not None
            and log is not None
            and partition.is_led_here
            and log.epoch_at(log.log_end_offset - 1) == partition.leader_epoch
        )

    def _end_at(self, led: Led, number: int) -> int:
        """Where the log of this node ends; -1: it cannot tell."""
        _, log = self._replica(led, number)
        return log.log_end_offset if log is not None else -1

    def _replica(self, led: Led, number: int) -> tuple[Partition | None, PartitionLog | None]:
        """A node's partition, and its log if that can be used."""
        node = self._cluster.hosts[number].node
        partition = node.broker.partitions.at(led.topic, led.index) if node is not None else None
        if partition is None or partition.log is None or partition.log.is_offline:
            return partition, None
        return partition, partition.log

    # --- their course -------------------------------------------------------------------------------------

    def _begin(self, severed: list[tuple[int, int]]) -> None:
        self.is_busy = True
        self._network.sever(severed)

    def _end(self) -> None:
        self.is_busy = False
        self._network.sever([])

    def _when(self, condition: Callable[[], bool], seconds: float, act: Callable[[], None]) -> None:
        """Act once the condition holds, or when the time is over."""
        ends_at = self._world.mono + seconds

        def look() -> None:
            if condition() or self._world.mono >= ends_at:
                act()
            else:
                self._later(LOOK_S, LOOK_S, look)

        look()


def both_ways(one: int, others: list[int]) -> list[tuple[int, int]]:
    return [link for other in others for link in ((one, other), (other, one))]
