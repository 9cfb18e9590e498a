"""A cluster of three processes under fire: nodes are killed, stopped and cut off while clients write, read,
commit and copy. What they saw is judged in the end.

`python -m chaos.cluster --seconds 60` gives each fault a minute; `--only kill-leader,pause-leader` some.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from confluent_kafka.admin import NewTopic

from chaos.cluster_load import (
    COPY,
    NUMBERS,
    OUR_COPIERS,
    OUR_COPY,
    PARTITIONS,
    READERS,
    Load,
)
from harness.cluster import Cluster
from harness.message_socket import MessageSocket
from harness.node_links import NodeLinks
from headrace import Admin
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest

SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.min.session.timeout.ms": "1000",
}
GROUP, TRANSACTION = 0, 1  # of FindCoordinator
PAUSE_S = 20.0
CUT_S = 15.0
DOWN_S = 2.0
WAIT_S = 60.0

# What clients do all the time, and do again when a fault is over.
GOES_ON = ("acknowledged", "handled by readers", "handled by our-readers", "transactions of ours")

ROLES = ("leader", "follower", "controller", "group-coordinator", "transaction-coordinator")
CUTS = (
    "isolate-leader",
    "isolate-controller",
    "leader-from-followers",
    "one-way-out",
    "one-way-in",
    "bridge",
)
FAULTS = tuple(f"{how}-{role}" for how in ("kill", "pause") for role in ROLES) + CUTS


def both_ways(one: int, others: Iterable[int]) -> list[tuple[int, int]]:
    return [pair for other in others for pair in ((one, other), (other, one))]


class Chaos:
    def __init__(self, cluster: Cluster, links: NodeLinks, load: Load, say: Callable[[str], None]) -> None:
        self.cluster, self.links, self.load, self.say = cluster, links, load, say
        self.done: Counter[str] = Counter()
        self.rng = random.Random(1)
        self.pause_s, self.cut_s = PAUSE_S, CUT_S

    def play(self, fault: str, seconds: float) -> None:
        """The fault, healing and quiet again and again, until the time is over."""
        before = Counter(self.load.operations())
        began = time.monotonic()
        while True:
            self._strike(fault)
            self.done[fault] += 1
            self.settle()
            self.load.check()
            if time.monotonic() - began >= seconds:
                break
        operations = Counter(self.load.operations()) - before
        took_s = time.monotonic() - began
        self.say(f"  {fault}: {self.done[fault]} times in {took_s:.0f} s; {dict(operations)}")

    def _strike(self, fault: str) -> None:
        how, _, whom = fault.partition("-")
        if how == "kill":
            self.cluster.kill(self._whom(whom))
            self._let_go_on(DOWN_S)
        elif how == "pause":
            node = self._whom(whom)
            self.cluster.pause(node)
            self._let_go_on(self.pause_s)
            self.cluster.go_on(node)
        else:
            self.links.cut(self._pairs(fault))
            self._let_go_on(self.cut_s)
            self.links.heal()

    def _pairs(self, fault: str) -> list[tuple[int, int]]:
        leader = self._whom("leader")
        others = [node for node in self.cluster.nodes if node != leader]
        match fault:
            case "isolate-leader":
                return both_ways(leader, others)
            case "isolate-controller":
                controller = self._whom("controller")
                return both_ways(controller, [node for node in self.cluster.nodes if node != controller])
            case "leader-from-followers":  # if it can, it still hears from the controller
                controller = self._whom("controller")
                return both_ways(leader, [node for node in others if node != controller] or others)
            case "one-way-out":
                return [(leader, other) for other in others]
            case "one-way-in":
                return [(other, leader) for other in others]
            case "bridge":  # the others see the leader, and not each other
                return both_ways(others[0], others[1:])
        raise ValueError(fault)

    def _whom(self, role: str) -> int:
        found = -1

        def ask() -> bool:
            nonlocal found
            try:
                found = self._ask_for(role)
            except Exception:
                return False
            return found > 0

        self.cluster.wait(ask, f"the {role}")
        return found

    def _ask_for(self, role: str) -> int:
        partition = self.rng.randrange(PARTITIONS)
        match role:
            case "leader":
                return self.cluster.leader(NUMBERS, partition)
            case "follower":
                described = self.cluster.admin().list_topics(NUMBERS, timeout=5)
                one = described.topics[NUMBERS].partitions[partition]
                return self.rng.choice([node for node in one.replicas if node != one.leader])
            case "controller":
                with Admin(self.cluster.bootstrap) as admin:
                    return int(admin.describe_quorum().leader_id)
            case "group-coordinator":
                return self._coordinator(GROUP, READERS)
            case "transaction-coordinator":
                return self._coordinator(TRANSACTION, OUR_COPIERS)
        raise ValueError(role)

    def _coordinator(self, kind: int, key: str) -> int:
        connection = MessageSocket(self.rng.choice(list(self.cluster.nodes.values())).port)
        try:
            wish = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            (found,) = connection.ask("chaos", wish, 4).coordinators
            return int(found.node_id) if found.error_code == 0 else -1
        finally:
            connection.close()

    def _let_go_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.load.check()
            time.sleep(0.1)

    def settle(self) -> None:
        """All nodes are there and all replicas in sync, and clients get on."""
        self.cluster.start()
        for topic in (NUMBERS, COPY, OUR_COPY, "__consumer_offsets", "__transaction_state"):
            self.cluster.wait(partial(self.cluster.in_sync, topic), f"{topic} in sync")
        for what, before in self.load.operations().items():
            if what in GOES_ON:
                self.cluster.wait(partial(self._is_beyond, what, before), f"more {what}")

    def _is_beyond(self, what: str, before: int) -> bool:
        self.load.check()
        return self.load.operations()[what] > before


def run(
    directory: Path,
    faults: Iterable[str],
    seconds: float,
    say: Callable[[str], None],
    *,
    settings: dict[str, str] | None = None,
    pause_s: float = PAUSE_S,
    cut_s: float = CUT_S,
) -> None:
    began = time.monotonic()
    with (
        NodeLinks(3) as links,
        Cluster("headrace", directory, SETTINGS | (settings or {}), links=links) as cluster,
    ):
        topics = [NewTopic(topic, PARTITIONS) for topic in (NUMBERS, COPY, OUR_COPY)]
        admin = cluster.admin()
        for created in admin.create_topics(topics, operation_timeout=WAIT_S).values():
            created.result(WAIT_S)
        with Load(cluster.bootstrap) as load:
            chaos = Chaos(cluster, links, load, say)
            chaos.pause_s, chaos.cut_s = pause_s, cut_s
            chaos.settle()
            for fault in faults:
                chaos.play(fault, seconds)
            logs = load.end()
        found = load.violations(logs)
        say(
            f"  {sum(chaos.done.values())} faults in {time.monotonic() - began:.0f} s, "
            f"{sum(map(len, logs[NUMBERS].values()))} records; {load.operations()}; "
            f"clients' errors: {dict(load.errors)}; {len(found)} violations"
        )
        assert not found, "\n".join(found[:20])


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos.cluster", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each fault")
    parser.add_argument("--only", default=",".join(FAULTS), help=f"some of {', '.join(FAULTS)}")
    parser.add_argument("--keep", type=Path, help="where the nodes' directories stay")
    arguments = parser.parse_args()
    faults = arguments.only.split(",")
    if unknown := set(faults) - set(FAULTS):
        sys.exit(f"no such faults: {unknown}")
    with tempfile.TemporaryDirectory() as directory:
        run(
            arguments.keep or Path(directory), faults, arguments.seconds, lambda line: print(line, flush=True)
        )


if __name__ == "__main__":
    main()
