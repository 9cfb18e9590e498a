"""A transactional copy under fire: copiers and broker are killed, and each record arrives exactly once.

`python -m chaos.copying --records 1000000 --kills 30` fills a topic, lets copiers copy it in transactions,
kills copiers, the broker or both with SIGKILL at moments drawn from the seed, and lets an independent
read_committed reader compare the copy with the original: every record once, in order, in its partition.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.storm import BROKERS, PROTOCOLS
from harness.broker import Broker
from harness.group_offsets import GroupOffsets

TESTS = Path(__file__).resolve().parents[1]
SOURCE, TARGET, GROUP = "original", "copy", "copiers"
VICTIMS = ("copier", "broker", "both")
WAIT_S = 120
SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@dataclass(slots=True)
class Plan:
    records: int
    kills: int
    victims: tuple[str, ...] = VICTIMS
    protocol: str = "classic"
    copiers: int = 2
    partitions: int = 4
    seed: int = 1


class Copying:
    def __init__(self, broker: Broker, plan: Plan, say: Callable[[str], None]) -> None:
        self.broker, self.plan, self.say = broker, plan, say
        self.rng = random.Random(plan.seed)
        self.copiers: dict[int, subprocess.Popen[bytes]] = {}
        self.killed = dict.fromkeys(VICTIMS, 0)
        self.gave_up = 0  # copiers that ended by themselves: fenced, or put out of the group

    def play(self) -> None:
        self._fill()
        moments = sorted(self.rng.randrange(self.plan.records) for _ in range(self.plan.kills))
        victims = [self.plan.victims[n % len(self.plan.victims)] for n in range(self.plan.kills)]
        self.rng.shuffle(victims)
        offsets = GroupOffsets(self.broker.bootstrap, GROUP, SOURCE, self.plan.partitions)
        try:
            self._copy(offsets, moments, victims)
        finally:
            offsets.close()
            for process in self.copiers.values():
                process.kill()
                process.wait()
        self._judge()

    def _fill(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        topics = [NewTopic(topic, self.plan.partitions, 1) for topic in (SOURCE, TARGET)]
        for created in admin.create_topics(topics, operation_timeout=WAIT_S).values():
            created.result(WAIT_S)
        sender = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5, "log_level": 0})
        for number in range(self.plan.records):
            while True:
                try:
                    sender.produce(SOURCE, b"%d" % number, partition=number % self.plan.partitions)
                    break
                except BufferError:
                    sender.poll(0.1)
        assert sender.flush(WAIT_S) == 0

    def _copy(self, offsets: GroupOffsets, moments: list[int], victims: list[str]) -> None:
        """Lets the copiers work until all is committed; kills whenever the next moment has come."""
        reported = began = time.monotonic()
        progress, moved_at = 0, began
        while progress < self.plan.records:
            self._tend()
            if (total := offsets.total()) is not None and total != progress:
                progress, moved_at = total, time.monotonic()
            assert time.monotonic() - moved_at < WAIT_S, f"no progress after {progress} records"
            while moments and progress >= moments[0]:
                moments.pop(0)
                time.sleep(self.rng.uniform(0, 0.3))
                self._kill(victims.pop(0))
            if time.monotonic() - reported > 10:
                reported = time.monotonic()
                self.say(f"  {progress} of {self.plan.records} after {reported - began:.0f} s, {self.killed}")
            time.sleep(0.05)
        self.say(
            f"  copied {self.plan.records} records in {time.monotonic() - began:.0f} s; "
            f"killed: {self.killed}; {self.gave_up} copiers ended by themselves"
        )

    def _tend(self) -> None:
        """Starts copiers that are not there."""
        for number in range(self.plan.copiers):
            process = self.copiers.get(number)
            if process is None or process.poll() is not None:
                self.gave_up += process is not None and process.returncode != -9
                self.copiers[number] = self._start(number)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        membership: dict[str, object] = {"group.protocol": self.plan.protocol}
        if self.plan.protocol == "classic":
            membership |= {"session.timeout.ms": 3000, "heartbeat.interval.ms": 300}
        order = {
            "bootstrap": self.broker.bootstrap,
            "group": GROUP,
            "id": f"copier-{number}",
            "source": SOURCE,
            "target": TARGET,
            "membership": membership,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "chaos.copier", json.dumps(order)],
            env=os.environ | {"PYTHONPATH": str(TESTS)},
        )

    def _kill(self, victim: str) -> None:
        if victim in ("copier", "both"):
            self.copiers[self.rng.randrange(self.plan.copiers)].kill()
        if victim in ("broker", "both"):
            self.broker.kill()
            self.broker.start()
        self.killed[victim] += 1

    def _judge(self) -> None:
        """`transaction_all_or_nothing` and `read_committed_sees_no_aborted`, by comparing all of the copy."""
        reader = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "judge",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        try:
            partitions = range(self.plan.partitions)
            reader.assign([TopicPartition(TARGET, partition, OFFSET_BEGINNING) for partition in partitions])
            following = {partition: partition for partition in partitions}  # the number that must come next
            at_end: set[int] = set()
            while len(at_end) < self.plan.partitions:
                for message in reader.consume(10_000, 1.0):
                    partition = message.partition()
                    assert partition is not None
                    if (error := message.error()) is None:
                        expected = b"%d copied" % following[partition]
                        assert message.value() == expected, (
                            f"{message.value()!r} where {expected!r} belongs, "
                            f"partition {partition} offset {message.offset()}"
                        )
                        following[partition] += self.plan.partitions
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        at_end.add(partition)
            missing = {p: n for p, n in following.items() if n < self.plan.records}
            assert not missing, f"the copy ends before {missing}"
        finally:
            reader.close()
        self.say(f"  every record once, in order, in {self.plan.partitions} partitions")


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos.copying", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--kill", choices=[*VICTIMS, "any"], default="any", help="whom to kill")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="classic")
    parser.add_argument("--copiers", type=int, default=2)
    parser.add_argument("--broker", choices=sorted(BROKERS), default="headrace")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    victims = VICTIMS if arguments.kill == "any" else (arguments.kill,)
    plan = Plan(
        arguments.records,
        arguments.kills,
        victims,
        arguments.protocol,
        arguments.copiers,
        seed=arguments.seed,
    )
    print(f"{arguments.broker}: {plan}", flush=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        BROKERS[arguments.broker](Path(directory), SETTINGS) as broker,
    ):
        Copying(broker, plan, lambda line: print(line, flush=True)).play()


if __name__ == "__main__":
    main()
