"""A group in a storm: members join, leave and are killed while a producer writes; then everything is judged.

`python -m chaos.storm --minutes 5` plays the same seeded storm against Headrace and against Kafka and prints,
for both protocols, how long the group took to settle after members joined, left and crashed. Judged are
`group_owns_partition_once` and that every acknowledged record was processed.

`python -m chaos.storm --repeat 200 --busy 2 --protocols classic --brokers headrace` plays as many short
storms, each with another seed, beside two processes that only compute. It ends at the first one that fails.
A group that does not settle is dumped: its records, every member's state, and the logs of their clients.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.crew import WAIT_S, Crew, wait_until_ended
from chaos.storm_dump import describe, dump
from chaos.storm_journal import Journal
from harness.broker import Broker
from harness.headrace import Headrace
from harness.kafka import Kafka

BROKERS: dict[str, type[Broker]] = {"headrace": Headrace, "kafka": Kafka}
PROTOCOLS = ("classic", "consumer")
UNSETTLED_S = 3 * WAIT_S  # a group that moves all the time does not settle either
TOPIC = "storm"


@dataclass(slots=True)
class Weather:
    """How hard it blows."""

    seconds: float
    crews: int = 10
    hands: int = 5  # members in each crew
    partitions: int = 100
    session_timeout_ms: int = 6000
    heartbeat_ms: int = 500
    records_per_s: int = 1000
    seed: int = 1
    is_logged: bool = False  # by the members' clients: some megabytes a minute

    def settings(self) -> dict[str, str]:
        """The broker's settings: no delay before the first rebalance, sessions as the members want them."""
        return {
            "offsets.topic.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": str(self.session_timeout_ms),
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": str(self.heartbeat_ms),
        }


# A storm of seconds, as `make test` plays it.
BREEZE = Weather(
    seconds=3,
    crews=4,
    hands=3,
    partitions=24,
    session_timeout_ms=2000,
    heartbeat_ms=100,
    records_per_s=500,
    is_logged=True,
)


class Load:
    """Numbered records at a steady rate, until it is stopped."""

    def __init__(self, bootstrap: str, per_s: int) -> None:
        self.acknowledged: set[int] = set()
        self.failures: list[KafkaError | str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        self._pause_s = 10 / per_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> set[int]:
        self._stopping.set()
        self._thread.join(WAIT_S)
        assert self._producer.flush(WAIT_S) == 0
        assert not self.failures, self.failures[:3]
        return self.acknowledged

    def _run(self) -> None:
        try:
            number = 0
            while not self._stopping.wait(self._pause_s):
                for _ in range(10):
                    self._send(number)
                    number += 1
                self._producer.poll(0)
        except Exception:
            self.failures.append(traceback.format_exc())

    def _send(self, number: int) -> None:
        def on_delivery(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.acknowledged.add(number)
            else:
                self.failures.append(error)

        self._producer.produce(TOPIC, b"%d" % number, key=b"%d" % number, on_delivery=on_delivery)


class Storm:
    """One group of one protocol on one broker."""

    def __init__(
        self, bootstrap: str, protocol: str, weather: Weather, say: Callable[[str], None], logs: Path
    ) -> None:
        self.bootstrap, self.weather, self.protocol, self.say, self.logs = (
            bootstrap,
            weather,
            protocol,
            say,
            logs,
        )
        self.rng = random.Random(weather.seed)
        self.journal = Journal(weather.partitions)
        self.settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": f"storm-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        self.settings |= {"debug": "cgrp"} if weather.is_logged else {"log_level": 0}
        if protocol == "classic":
            self.settings["session.timeout.ms"] = weather.session_timeout_ms
            self.settings["heartbeat.interval.ms"] = weather.heartbeat_ms
        self.crews: list[Crew] = []
        self.settled_s: dict[str, float] = {}
        self.changes = {"joined": 0, "left": 0, "killed": 0}
        self._hired = 0
        self.load = Load(bootstrap, weather.records_per_s)

    def play(self) -> None:
        try:
            self._play()
        finally:
            for crew in self.crews:  # those that are left after a failure
                crew.kill()

    def _play(self) -> None:
        weather = self.weather
        self._settles("at first", lambda: self._repeat(self._hire, weather.crews))
        end = time.monotonic() + weather.seconds
        while time.monotonic() < end:
            self._change()
            time.sleep(self.rng.uniform(0.2, 2.0))
        self._settles("after the storm", lambda: None)
        self._settles("3 leave", lambda: self._repeat(self._leave, 3))
        self._settles("3 join", lambda: self._repeat(self._join, 3))
        self._settles("a crew crashes", self._crash)
        self._judge()

    @staticmethod
    def _repeat(change: Callable[[], None], times: int) -> None:
        for _ in range(times):
            change()

    def _change(self) -> None:
        aboard = sum(len(crew.aboard) for crew in self.crews)
        missing = self.weather.crews * self.weather.hands - aboard
        if len(self.crews) < self.weather.crews:
            self._hire()
        elif missing and self.rng.random() < 0.6:
            self._join()
        elif self.rng.random() < 0.3:
            self._crash()
        else:
            self._leave()

    def _hire(self) -> None:
        crew = Crew(f"crew-{self._hired}", self.settings, TOPIC, self.journal, self.logs)
        self._hired += 1
        self.crews.append(crew)
        for _ in range(self.weather.hands):
            crew.join()
        self.changes["joined"] += self.weather.hands

    def _join(self) -> None:
        min(self.crews, key=lambda crew: len(crew.aboard)).join()
        self.changes["joined"] += 1

    def _leave(self) -> None:
        crew = self.rng.choice([crew for crew in self.crews if crew.aboard])
        crew.leave(self.rng.choice(sorted(crew.aboard)))
        self.changes["left"] += 1

    def _crash(self) -> None:
        crew = self.crews.pop(self.rng.randrange(len(self.crews)))
        self.changes["killed"] += len(crew.aboard)
        crew.kill()

    def _settles(self, what: str, change: Callable[[], object]) -> None:
        """Makes the change and measures how long the group takes until everybody owns a share."""
        change()
        journal = self.journal
        since = moved_at = time.monotonic()
        events = journal.events
        members = {f"{crew.name}/{number}" for crew in self.crews for number in crew.aboard}
        while not journal.is_settled(members):
            now = time.monotonic()
            if journal.events != events:
                moved_at, events = now, journal.events
            if journal.failures:
                raise AssertionError(f"{what}: {journal.failures[:3]}\n{dump(self)}")
            if now - moved_at > WAIT_S or now - since > UNSETTLED_S:
                raise AssertionError(
                    f"{what}: not settled after {now - since:.0f} s, and nothing has moved for "
                    f"{now - moved_at:.0f} s\n{dump(self)}"
                )
            time.sleep(0.01)
        self.settled_s[what] = time.monotonic() - since
        self.say(f"  {what}: settled in {self.settled_s[what]:.2f} s ({len(members)} members)")

    def _judge(self) -> None:
        acknowledged = self.load.stop()
        deadline = time.monotonic() + WAIT_S
        while not acknowledged <= self.journal.processed and time.monotonic() < deadline:
            time.sleep(0.05)
        self._dismiss()
        journal = self.journal
        self.say(
            f"  {len(acknowledged)} records, {journal.repeated} processed again; "
            f"{self.changes['joined']} joined, {self.changes['left']} left, {self.changes['killed']} killed; "
            f"{len(journal.generations)} generations, {journal.moves} moves, {journal.lost} losses"
        )
        missing = acknowledged - journal.processed
        assert not missing, f"{len(missing)} records were never processed: {sorted(missing)[:10]}"
        faults = journal.owned_twice()
        assert not faults, f"{len(faults)} times: {faults[:5]}"
        assert not journal.failures, journal.failures[:5]

    def _dismiss(self) -> None:
        """All leave. A client that freezes after it has left the group is not the broker's fault."""
        for crew in self.crews:
            crew.dismiss()

        def client_ids() -> set[str]:
            return {member.client_id for member in describe(self).members}

        hands = [hand for crew in self.crews for hand in crew.hands.values()]
        frozen, staying = wait_until_ended(hands, client_ids)
        for hand in frozen:
            print(
                f"  {hand.name}: its client froze while it closed, after it had left the group; "
                f"killed process {hand.process.pid}\n{hand.stacks_told()}",
                flush=True,
            )
        if staying:
            names = [hand.name for hand in staying]
            raise AssertionError(f"{names} did not end in {WAIT_S} s after the order to leave\n{dump(self)}")


def make_topic(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    created = admin.create_topics([NewTopic(TOPIC, partitions, 1)], operation_timeout=WAIT_S)
    created[TOPIC].result(WAIT_S)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that take all the time they can get."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def play(kind: str, protocol: str, weather: Weather, say: Callable[[str], None]) -> dict[str, float]:
    """One storm on a broker of its own; how long the group took to settle after each change."""
    with (
        tempfile.TemporaryDirectory() as directory,
        BROKERS[kind](Path(directory), weather.settings()) as broker,
    ):
        make_topic(broker.bootstrap, weather.partitions)
        storm = Storm(broker.bootstrap, protocol, weather, say, Path(directory))
        try:
            storm.play()
        except AssertionError:
            print(f"--- the end of what the broker printed\n{broker.output()[-4000:]}", flush=True)
            raise
        return storm.settled_s


def repeat(count: int, kinds: list[str], protocols: list[str], seed: int) -> None:
    for number in range(count):
        for kind in kinds:
            for protocol in protocols:
                began = time.monotonic()
                told: list[str] = []
                try:
                    play(kind, protocol, replace(BREEZE, seed=seed + number), told.append)
                except Exception:
                    print("\n".join(told), flush=True)
                    print(f"storm {number + 1} of {count} failed: {kind}, {protocol}, seed {seed + number}")
                    raise
                took_s = time.monotonic() - began
                print(f"storm {number + 1} of {count}: {kind}, {protocol}, {took_s:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos.storm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="length of each storm")
    parser.add_argument("--repeat", type=int, default=0, help="play so many short storms instead")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside the storms")
    parser.add_argument("--brokers", default="headrace,kafka")
    parser.add_argument("--protocols", default=",".join(PROTOCOLS))
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    kinds, protocols = arguments.brokers.split(","), arguments.protocols.split(",")
    with busy(arguments.busy):
        if arguments.repeat:
            repeat(arguments.repeat, kinds, protocols, arguments.seed)
            return
        weather = Weather(arguments.minutes * 60, hands=arguments.members // 10, seed=arguments.seed)
        table: dict[str, dict[str, float]] = {}
        for protocol in protocols:
            for kind in kinds:
                print(f"{kind}, {protocol} protocol, {arguments.members} members", flush=True)
                times = play(kind, protocol, weather, lambda line: print(line, flush=True))
                table[f"{kind} {protocol}"] = times
    print("\nseconds until the group had settled")
    columns = list(next(iter(table.values())))
    print("".join(f"{name:>18}" for name in ["", *columns]))
    for row, times in table.items():
        print(f"{row:>18}" + "".join(f"{times[name]:>18.2f}" for name in columns))


if __name__ == "__main__":
    main()
