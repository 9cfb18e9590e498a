"""The topic with the states of jobs, for commands: what it says about each job, and orders to their runners.

Runners use it by themselves (runner.py). The topic is compacted, and a command reads all of it: some records
for each job.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from headrace.client.admin.offsets import OffsetAt
from headrace.client.admin.topics import NewTopic
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, KafkaError, TimedOut
from headrace.client.threads.admin import Admin
from headrace.client.threads.consumer import Consumer
from headrace.client.threads.producer import Producer
from headrace.jobs.file import cursors_of
from headrace.jobs.progress import Progress, read_progress
from headrace.jobs.work import wall_ms
from headrace.machines.jobs.job import Order
from headrace.machines.jobs.records import (
    ORDER,
    PROGRESS,
    STATE,
    Described,
    Key,
    Unreadable,
    encode_order,
    read_json,
    read_key,
    read_state,
)
from headrace.protocol.errors import ErrorCode

POLL_S: Final = 0.5
REPLICAS: Final = 3
# Small segments: the states of jobs change often, and only closed segments are compacted.
TOPIC_CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": 16 * 2**20, "segment.ms": 3_600_000}


@dataclass(slots=True)
class JobStatus:
    """What the topic says about a job."""

    name: str
    partition: int
    described: Described | None = None
    progress: Progress | None = None
    progress_run: int = 0
    owner: str | None = None  # the runner that has the job's partition now


def partition_of(job: str, partitions: int) -> int:
    return zlib.crc32(job.encode()) % partitions


def ensure_topics(admin: Admin, topic: str, partitions: int) -> int:
    """Create the topics if they do not exist; return the number of partitions."""
    replicas = min(REPLICAS, len(admin.list_brokers()))
    for name in (topic, cursors_of(topic)):
        try:
            admin.create_topics([NewTopic(name, partitions, replicas, configs=TOPIC_CONFIG)])
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    return len(admin.describe_topic(topic).partitions)


class StateTopic:
    """Reads and follows the topic."""

    def __init__(
        self, admin: Admin, clients: Mapping[str, Any], topic: str, group: str | None = None
    ) -> None:
        self._admin = admin
        self._clients = clients
        self.topic = topic
        self._group = group or topic
        self.jobs: dict[str, JobStatus] = {}
        self.partitions = 0

    @contextmanager
    def opened(self, timeout_s: float) -> Iterator[None]:
        """Read everything that the topic has; inside, `follow` reads on."""
        self.partitions = len(self._admin.describe_topic(self.topic).partitions)
        places = [TopicPartition(self.topic, index) for index in range(self.partitions)]
        settings = {
            **self._clients["consumer"],
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
        }
        with Consumer(settings) as consumer:
            self._consumer = consumer
            ends = self._admin.list_offsets(
                dict.fromkeys(places, OffsetAt.LATEST), isolation_level="read_committed"
            )
            consumer.assign(dict.fromkeys(places, 0))
            consumer.seek_to_beginning()
            until = time.monotonic() + timeout_s
            while any(consumer.position(at) < (ends[at].offset or 0) for at in places):
                self._take(POLL_S)
                if time.monotonic() > until:
                    raise TimedOut(f"topic {self.topic} was not read within {timeout_s:g} s")
            yield

    def follow(self, timeout_s: float) -> None:
        """Read what is new."""
        self._take(timeout_s)

    def _take(self, timeout_s: float) -> None:
        for message in self._consumer.poll(timeout_s):
            try:
                self._absorb(read_key(message.key), message)
            except Unreadable:
                continue  # not ours

    def _absorb(self, key: Key, message: Any) -> None:
        if key.kind == ORDER:
            return
        status = self.jobs.setdefault(key.job, JobStatus(key.job, message.partition))
        if key.kind == STATE:
            status.described = read_state(message.value)
        elif key.kind == PROGRESS:
            facts = read_json(message.value)
            try:
                status.progress, status.progress_run = read_progress(facts["progress"]), int(facts["run"])
            except (KeyError, TypeError, ValueError) as error:
                raise Unreadable(f"it is not the progress of a job: {error}") from error

    def find_owners(self) -> None:
        """Who serves each partition now, by the group of the runners."""
        try:
            group = self._admin.describe_group(self._group)
        except ClientError:
            return
        owners = {
            at.partition: f"{member.client_id}"
            for member in group.members
            for at in member.assignment or ()
            if at.topic == self.topic
        }
        for status in self.jobs.values():
            status.owner = owners.get(partition_of(status.name, self.partitions))

    def order(self, job: str, order: Order) -> int:
        """Leave an order; returns its offset, which the state of the job names when it was obeyed."""
        with Producer(self._clients["producer"]) as producer:
            delivery = producer.send(
                self.topic,
                encode_order(order, wall_ms()),
                Key(ORDER, job).encode(),
                partition=partition_of(job, self.partitions),
            )
            producer.flush()
            return delivery.result().offset
