"""What goes on in a cluster while its nodes are harmed: two producers write, two groups read and commit, two
copiers copy in transactions, and somebody asks how far the groups are. One of each is Headrace's own client,
the other one is confluent-kafka.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import headrace
from chaos.cluster_judge import Handled, Log, Progress, Written, copy_violations
from chaos.headrace_copier import HeadraceCopier
from chaos.worker import Worker
from harness.wait import Patience

TESTS = Path(__file__).resolve().parents[1]
NUMBERS, COPY, OUR_COPY = "numbers", "copy", "our-copy"
READERS, OUR_READERS, COPIERS, OUR_COPIERS = "readers", "our-readers", "copiers", "our-copiers"
PARTITIONS = 3
KEYS = 30
BURST, PAUSE_S = 20, 0.04
WAIT_S = 120
TIMEOUT_MS = 3000

COMMON: dict[str, Any] = {
    "socket.timeout.ms": TIMEOUT_MS,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2000,
    "log_level": 0,
}
OURS: dict[str, Any] = {
    "request.timeout.ms": TIMEOUT_MS,
    "reconnect.backoff.max.ms": 200,
    "metadata.max.age.ms": 2000,
}
MEMBER: dict[str, Any] = {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
    "enable.auto.commit": False,
}


class Load:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.written = Written()
        self.handled = {group: Handled(group) for group in (READERS, OUR_READERS)}
        self.progress = {group: Progress(group) for group in (READERS, OUR_READERS, COPIERS, OUR_COPIERS)}
        self.copier = HeadraceCopier(bootstrap, NUMBERS, OUR_COPY, OUR_COPIERS, OURS, batch=200)
        self.copiers_started = 0
        self.errors: Counter[str] = Counter()
        self._is_writing = True
        self._stack = contextlib.ExitStack()

    # --- from begin to end ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        works = [self._write, self._write_ours, self._ask, self._tend_copier]
        works += [self._read, self._read, self._read_ours, self._read_ours]
        works.append(lambda worker: self.copier.run(lambda: worker.is_stopping, MEMBER))
        self.workers = [self._stack.enter_context(Worker(work)) for work in works]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def check(self) -> None:
        """Raises what a client raised, and what has been seen already."""
        for worker in self.workers:
            if worker.error is not None:
                raise worker.error
        assert not self.written.refused, self.written.refused[:3]
        found = [one for handled in self.handled.values() for one in handled.found]
        found += [one for progress in self.progress.values() for one in progress.found]
        assert not found, found[:10]

    def operations(self) -> dict[str, int]:
        return {
            "acknowledged": len(self.written.acknowledged),
            **{f"handled by {group}": each.count for group, each in self.handled.items()},
            "commits": sum(each.commits for each in self.progress.values()),
            "offsets asked": sum(each.questions for each in self.progress.values()),
            "transactions of ours": self.copier.transactions,
            "aborted": self.copier.aborted,
            "copiers started": self.copiers_started,
        }

    def end(self) -> dict[str, Log]:
        """No more is written; when everybody has got all of it, the topics are read as a whole."""
        self._is_writing = False
        patience = Patience(WAIT_S)
        while sum(self.written.sent.values()) > len(self.written.acknowledged):
            self._wait(patience, "acknowledgements")
        ends = {p: end for p, (_, end) in self._ends(NUMBERS).items()}
        while not all(each.has_all(ends) for each in self.handled.values()):
            self._wait(patience, "the groups")
        for group in (COPIERS, OUR_COPIERS):
            while (told := self._committed(group)) is None or any(told[p] < ends[p] for p in ends):
                self._wait(patience, f"{group}, who are at {told} of {ends}")
        return {topic: self._read_all(topic) for topic in (NUMBERS, COPY, OUR_COPY)}

    def violations(self, logs: dict[str, Log]) -> list[str]:
        numbers = logs[NUMBERS]
        found = list(self.written.violations(numbers))
        for handled in self.handled.values():
            found += handled.violations(numbers)
        for progress in self.progress.values():
            found += progress.found
        for copy in (COPY, OUR_COPY):
            found += copy_violations(copy, numbers, logs[copy])
        return found

    def _wait(self, patience: Patience, what: str) -> None:
        self.check()
        assert not patience.is_over, f"waited in vain for {what}: {self.operations()}, {dict(self.errors)}"
        time.sleep(0.1)

    # --- those who write --------------------------------------------------------------------------------

    def _write(self, worker: Worker) -> None:
        settings = {"enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 0}
        producer = Producer({"bootstrap.servers": self.bootstrap} | COMMON | settings)

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self.written.refused.append(f"{message.value()!r}: {error}")
            else:
                self.written.acknowledged[message.value()] = message.partition(), message.offset()

        while self._is_writing and not worker.is_stopping:
            for _ in range(BURST):
                number = self.written.sent["c"]
                with contextlib.suppress(BufferError):
                    producer.produce(
                        NUMBERS, b"c-%d" % number, b"%d" % (number % KEYS), on_delivery=delivered
                    )
                    self.written.sent["c"] += 1
            producer.poll(PAUSE_S)
            time.sleep(PAUSE_S)
        producer.flush(WAIT_S)

    def _write_ours(self, worker: Worker) -> None:
        settings = OURS | {"linger.ms": 1, "delivery.timeout.ms": 600_000, "max.block.ms": 600_000}

        def delivered(value: bytes, metadata: Any) -> None:
            self.written.acknowledged[value] = metadata.partition, metadata.offset

        def refused(error: BaseException) -> None:
            self.written.refused.append(repr(error))

        with headrace.Producer(self.bootstrap, **settings) as producer:
            while self._is_writing and not worker.is_stopping:
                for _ in range(BURST):
                    number = self.written.sent["h"]
                    value = b"h-%d" % number
                    self.written.sent["h"] += 1
                    sent = producer.send(NUMBERS, value, b"%d" % (number % KEYS))
                    sent.add_callback(delivered, value).add_errback(refused)
                time.sleep(2 * PAUSE_S)
            producer.flush(WAIT_S)

    # --- those who read ---------------------------------------------------------------------------------

    def _read(self, worker: Worker) -> None:
        handled, progress = self.handled[READERS], self.progress[READERS]
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": READERS,
            "isolation.level": "read_committed",
        }
        consumer = Consumer(COMMON | MEMBER | settings)
        consumer.subscribe([NUMBERS])
        while not worker.is_stopping:
            ends: dict[int, int] = {}
            for message in consumer.consume(500, 0.2):
                if (error := message.error()) is not None:
                    self.errors[error.name()] += 1
                    continue
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                handled.handle(partition, offset, message.value() or b"")
                ends[partition] = offset + 1
            if ends:
                places = [TopicPartition(NUMBERS, partition, end) for partition, end in ends.items()]
                try:
                    done = consumer.commit(offsets=places, asynchronous=False)
                except KafkaException as failure:
                    self.errors[failure.args[0].name()] += 1
                    continue
                for place in done:
                    if place.error is None:
                        progress.committed(place.partition, place.offset)
        consumer.close()

    def _read_ours(self, worker: Worker) -> None:
        handled, progress = self.handled[OUR_READERS], self.progress[OUR_READERS]
        settings = OURS | MEMBER | {"isolation.level": "read_committed", "group.id": OUR_READERS}
        with headrace.Consumer(self.bootstrap, **settings) as consumer:
            consumer.subscribe([NUMBERS])
            while not worker.is_stopping:
                try:
                    messages = consumer.poll(0.2)
                    for message in messages:
                        handled.handle(message.partition, message.offset, message.value or b"")
                    ends = {(each.topic, each.partition): each.offset + 1 for each in messages}
                    if ends:
                        for at, done in consumer.commit(ends, timeout=10).items():
                            progress.committed(at.partition, done.offset)
                except headrace.ClientError as error:
                    self.errors[type(error).__name__] += 1

    def _tend_copier(self, worker: Worker) -> None:
        """It ends when one of its calls does not come back; then it is started again."""
        order = {
            "bootstrap": self.bootstrap,
            "group": COPIERS,
            "id": "copier",
            "source": NUMBERS,
            "target": COPY,
            "membership": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
        }
        process: subprocess.Popen[bytes] | None = None
        try:
            while not worker.is_stopping:
                if process is None or process.poll() is not None:
                    self.copiers_started += 1
                    process = subprocess.Popen(
                        [sys.executable, "-m", "chaos.copier", json.dumps(order)],
                        env=os.environ | {"PYTHONPATH": str(TESTS)},
                        stderr=subprocess.DEVNULL,
                    )
                time.sleep(0.1)
        finally:
            if process is not None:
                process.kill()
                process.wait()

    # --- those who ask ----------------------------------------------------------------------------------

    def _ask(self, worker: Worker) -> None:
        readers = {group: self._reader(group) for group in self.progress}
        while not worker.is_stopping:
            for group, progress in self.progress.items():
                lowest = progress.lowest()
                told = self._committed(group, readers[group])
                if told is not None:
                    progress.told(lowest, told)
            time.sleep(0.05)
        for reader in readers.values():
            reader.close()

    def _reader(self, group: str) -> Consumer:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False}
        return Consumer(COMMON | settings)

    def _committed(self, group: str, reader: Consumer | None = None) -> dict[int, int] | None:
        asking = reader or self._reader(group)
        try:
            places = asking.committed([TopicPartition(NUMBERS, p) for p in range(PARTITIONS)], 2)
        except KafkaException:
            return None
        finally:
            if reader is None:
                asking.close()
        if any(place.error is not None for place in places):
            return None
        return {place.partition: max(place.offset, 0) for place in places}

    def _ends(self, topic: str) -> dict[int, tuple[int, int]]:
        with contextlib.closing(self._reader("judge")) as reader:
            return {
                p: reader.get_watermark_offsets(TopicPartition(topic, p), timeout=WAIT_S)
                for p in range(PARTITIONS)
            }

    def _read_all(self, topic: str) -> Log:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        log: Log = {partition: [] for partition in range(PARTITIONS)}
        ended: set[int] = set()
        patience = Patience(WAIT_S)
        with contextlib.closing(Consumer(COMMON | settings)) as reader:
            reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
            while len(ended) < PARTITIONS:
                assert not patience.is_over, f"{topic} is not read to its end"
                for message in reader.consume(10_000, 1.0):
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    if (error := message.error()) is None:
                        assert offset is not None
                        log[partition].append((offset, message.value() or b""))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(partition)
        return log
