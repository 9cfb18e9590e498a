"""A query that writes batch by batch in several tasks, before a node in memory, with kills at chosen points.

The query is as Spark's: what it has done is in a commit log that outlives it, its batches are the same when
they are written again, its tasks are tried several times. Whoever is killed leaves a zombie behind whose
requests may still arrive. All of it follows from one seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from harness.producer_simulation import FEW_SHARDS, TOPIC, ProducerSimulation
from headrace.client.producer.sink_attempt import Attempt, AttemptId, State, attempt_factory
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommittedAttempt
from headrace.simulator.manual_host import ManualHost

APP_ID = "app"
BATCHES = 3
ROWS = 6  # of a batch
PARTITIONS = 2
TIMEOUT_MS = 60_000

POINTS = (
    "before the first produce",
    "between two produces",
    "after the last produce",
    "after a task's commit message",
    "before the commit record",
    "after the commit record, before markers",
    "after markers, before Spark's commit log",
    "while joining on restart",
)
VICTIMS = ("driver", "worker", "broker")


class DriverKilled(Exception):
    pass


class WorkerKilled(Exception):
    pass


class SinkSimulation:
    def __init__(self, seed: int, point: str, victim: str) -> None:
        self.rng = Random(f"{seed}/{point}/{victim}")
        self.point, self.victim = point, victim
        # so many times the point is passed unharmed
        self.countdown = self.rng.randrange(2 if point == POINTS[7] else BATCHES)
        self.has_killed = False
        self.host = ManualHost(FEW_SHARDS, seed=seed)
        self.host.create_topic(TOPIC, PARTITIONS)
        self.runs = 0
        self.attempts_made = 0
        self.commit_log = -1  # the last batch that Spark knows to be done
        self.producers: list[ProducerSimulation] = []

    # --- kills -------------------------------------------------------------------------------------------

    def passes(self, point: str) -> None:
        if point != self.point or self.has_killed:
            return
        if self.countdown:
            self.countdown -= 1
            return
        self.has_killed = True
        match self.victim:
            case "broker":
                self.crash()
            case "driver":
                raise DriverKilled
            case _ if point not in POINTS[3:7]:  # behind its message a worker has nothing left to lose
                raise WorkerKilled

    def crash(self) -> None:
        """The node is gone and starts again on its disk."""
        for producer in self.producers:
            producer.network.cut_all()
        self.host.restart()

    def wait(self, producer: ProducerSimulation, is_over: Callable[[], bool]) -> None:
        for _ in range(4000):
            while producer.network.exchange():
                pass
            if is_over():
                return
            self.host.advance(0.02)
        raise AssertionError("an attempt does not come to its end")

    def stir_zombies(self) -> None:
        """What nobody expects any more still arrives, and goes on writing if it can."""
        for producer in self.rng.sample(self.producers, min(2, len(self.producers))):
            if (
                self.rng.random() < 0.5
                and producer.accumulator.is_open
                and TOPIC in producer.accumulator.topics
            ):
                producer.send(self.rng.randrange(PARTITIONS), b"zombie")
            producer.network.exchange()

    # --- the query ---------------------------------------------------------------------------------------

    def run_query(self) -> None:
        """One run, until all batches are done or the driver is killed."""
        self.runs += 1
        tasks = self.rng.randrange(1, 4)
        while self.commit_log < BATCHES - 1:
            batch = self.commit_log + 1
            written = [self.task(batch, task, tasks) for task in range(tasks)]
            self.stir_zombies()
            if self.point == POINTS[7] and self.runs == batch == 1:
                raise DriverKilled  # there has to be a restart
            self.passes(POINTS[4])
            self.commit(batch, [producer for producer in written if producer is not None])
            self.passes(POINTS[6])
            self.commit_log = batch

    def task(self, batch: int, task: int, tasks: int) -> tuple[int, int] | None:
        while True:
            try:
                return self.attempt(batch, task, tasks)
            except WorkerKilled:
                continue

    def attempt(self, batch: int, task: int, tasks: int) -> tuple[int, int] | None:
        self.attempts_made += 1
        attempt_id = AttemptId(APP_ID, "query", f"run-{self.runs}", batch, task, self.attempts_made)
        producer = ProducerSimulation(
            self.rng.randrange(1 << 30),
            host=self.host,
            transact=attempt_factory(attempt_id),
            transactional_id=TRANSACTIONAL_ID_PREFIX + APP_ID,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_s=0.0,
        )
        self.producers.append(producer)
        attempt = producer.sender.transaction
        assert isinstance(attempt, Attempt)
        if self.runs > 1:
            self.join(producer)
        self.wait(producer, lambda: attempt.has_joined)
        if attempt.state is State.COMMITTED:
            return None
        attempt.check_may_send()
        producer.learn_topic()
        self.passes(POINTS[0])
        for index in range(task, ROWS, tasks):
            producer.send(index % PARTITIONS, f"{batch}/{index}".encode())
            producer.network.pump()
            for link in list(producer.network.links.values()):
                producer.network.deliver(link)  # its answer may come later
            self.passes(POINTS[1])
        self.passes(POINTS[2])
        producer.sender.flush()
        self.wait(producer, lambda: producer.sender.is_idle)
        attempt.check_may_send()
        self.producers.remove(producer)
        self.stir_zombies()
        self.passes(POINTS[3])
        return attempt.producer

    def join(self, producer: ProducerSimulation) -> None:
        """Up to the moment at which the coordinator knows of the attempt and the attempt does not."""
        producer.network.exchange()
        producer.network.exchange()
        producer.network.pump()
        for link in list(producer.network.links.values()):
            producer.network.deliver(link)
        self.passes(POINTS[7])

    def commit(self, batch: int, producers: list[tuple[int, int]]) -> None:
        named = [CommittedAttempt(producer_id=number, producer_epoch=epoch) for number, epoch in producers]
        request = CommitSinkRequest(
            app_id=APP_ID, query_id="query", run_id=f"run-{self.runs}", batch_id=batch, attempts=named
        )
        is_here = self.point == POINTS[5] and not self.has_killed
        partitions = self.host.partitions(TOPIC)
        for partition in partitions:
            partition.is_offline = is_here  # no marker can be written
        self.ask(request)
        try:
            self.passes(POINTS[5])
        finally:
            for partition in partitions:
                partition.is_offline = False
        self.ask(request)  # the answer was lost, and it is asked again
        self.host.advance(2)

    def ask(self, request: Any) -> None:
        for _ in range(100):
            answer = self.host.ask_patiently(request, 0)
            if answer.error_code not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ):
                assert answer.error_code == 0, answer
                return
        raise AssertionError("the coordinator does not come back")

    # --- judges ------------------------------------------------------------------------------------------

    def committed(self) -> list[str]:
        """What a reader of committed records sees."""
        self.host.advance(2)
        reader = ProducerSimulation(1, host=self.host)
        return [
            value.decode()
            for partition in range(PARTITIONS)
            for value in reader.values(partition, committed_only=True)
        ]

    def check_whole_batches(self) -> None:
        seen = self.committed()
        for batch in range(BATCHES):
            rows = sorted(value for value in seen if value.startswith(f"{batch}/"))
            assert rows in ([], sorted(expected_of(batch))), f"batch {batch} is not whole: {rows}"
        assert "zombie" not in seen

    def check_nothing_open(self) -> None:
        for partition in self.host.partitions(TOPIC):
            assert partition.visible_end(1) == partition.high_watermark


def expected_of(batch: int) -> list[str]:
    return [f"{batch}/{index}" for index in range(ROWS)]
