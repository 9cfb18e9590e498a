"""A query that writes batch by batch in several tasks, before a node in memory, with kills at chosen points.

The query is as Spark's: what it has done is in a commit log that outlives it, its batches are the same when
they are written again, its tasks are tried several times. Whoever is killed leaves a zombie behind whose
requests may still arrive. All of it follows from one seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from harness.desk import Desk
from harness.producer_stage import FEW_SHARDS, TOPIC, Stage
from headrace.client.producer.sink_attempt import Attempt, Place, State, attempt_at
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommittedAttempt

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


class World:
    def __init__(self, seed: int, point: str, victim: str) -> None:
        self.dice = Random(f"{seed}/{point}/{victim}")
        self.point, self.victim = point, victim
        # so many times the point is passed unharmed
        self.countdown = self.dice.randrange(2 if point == POINTS[7] else BATCHES)
        self.has_killed = False
        self.desk = Desk(FEW_SHARDS, seed=seed)
        self.desk.create_topic(TOPIC, PARTITIONS)
        self.boots = 0
        self.runs = 0
        self.attempts_made = 0
        self.commit_log = -1  # the last batch that Spark knows to be done
        self.stages: list[Stage] = []

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
        self.boots += 1
        for stage in self.stages:
            for link in list(stage.links.values()):
                stage.cut(link)
            stage.ghosts.clear()
        self.desk = Desk(
            FEW_SHARDS, disks=self.desk.disks, boot_id=f"boot-{self.boots}", clock=self.desk.clock
        )
        for stage in self.stages:
            stage.desk = self.desk

    def wait(self, stage: Stage, is_over: Callable[[], bool]) -> None:
        for _ in range(4000):
            while stage.exchange():
                pass
            if is_over():
                return
            self.desk.advance(0.02)
        raise AssertionError("an attempt does not come to its end")

    def stir_zombies(self) -> None:
        """What nobody expects any more still arrives, and goes on writing if it can."""
        for stage in self.dice.sample(self.stages, min(2, len(self.stages))):
            if self.dice.random() < 0.5 and stage.accumulator.is_open and TOPIC in stage.accumulator.topics:
                stage.send(self.dice.randrange(PARTITIONS), b"zombie")
            stage.exchange()

    # --- the query ---------------------------------------------------------------------------------------

    def run_query(self) -> None:
        """One run, until all batches are done or the driver is killed."""
        self.runs += 1
        tasks = self.dice.randrange(1, 4)
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
        place = Place(APP_ID, "query", f"run-{self.runs}", batch, task, self.attempts_made)
        stage = Stage(
            self.dice.randrange(1 << 30),
            desk=self.desk,
            transact=attempt_at(place),
            transactional_id=TRANSACTIONAL_ID_PREFIX + APP_ID,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_s=0.0,
        )
        self.stages.append(stage)
        attempt = stage.sender.transaction
        assert isinstance(attempt, Attempt)
        if self.runs > 1:
            self.join(stage)
        self.wait(stage, lambda: attempt.has_joined)
        if attempt.state is State.COMMITTED:
            return None
        attempt.check_may_send()
        stage.learn_topic()
        self.passes(POINTS[0])
        for index in range(task, ROWS, tasks):
            stage.send(index % PARTITIONS, f"{batch}/{index}".encode())
            stage.pump()
            for link in list(stage.links.values()):
                stage.deliver(link)  # its answer may come later
            self.passes(POINTS[1])
        self.passes(POINTS[2])
        stage.sender.flush()
        self.wait(stage, lambda: stage.sender.is_idle)
        attempt.check_may_send()
        self.stages.remove(stage)
        self.stir_zombies()
        self.passes(POINTS[3])
        return attempt.producer

    def join(self, stage: Stage) -> None:
        """Up to the moment at which the coordinator knows of the attempt and the attempt does not."""
        stage.exchange()
        stage.exchange()
        stage.pump()
        for link in list(stage.links.values()):
            stage.deliver(link)
        self.passes(POINTS[7])

    def commit(self, batch: int, producers: list[tuple[int, int]]) -> None:
        named = [CommittedAttempt(producer_id=number, producer_epoch=epoch) for number, epoch in producers]
        request = CommitSinkRequest(
            app_id=APP_ID, query_id="query", run_id=f"run-{self.runs}", batch_id=batch, attempts=named
        )
        is_here = self.point == POINTS[5] and not self.has_killed
        partitions = self.desk.node.broker.partitions.of_name(TOPIC)
        for partition in partitions:
            partition.is_offline = is_here  # no marker can be written
        self.ask(request)
        try:
            self.passes(POINTS[5])
        finally:
            for partition in partitions:
                partition.is_offline = False
        self.ask(request)  # the answer was lost, and it is asked again
        self.desk.advance(2)

    def ask(self, request: Any) -> None:
        for _ in range(100):
            answer = self.desk.ask_patiently(request, 0)
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
        self.desk.advance(2)
        reader = Stage(1, desk=self.desk)
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
        for partition in self.desk.node.broker.partitions.of_name(TOPIC):
            assert partition.visible_end(1) == partition.leader.high_watermark


def expected_of(batch: int) -> list[str]:
    return [f"{batch}/{index}" for index in range(ROWS)]
