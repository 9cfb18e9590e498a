"""One task's part: the records of one range, fetched ahead by a consumer's session and handed out as columns.

No group is joined and nothing is committed: Spark knows what was read. A topic with the name but another id
is an error from the first record on; records that are gone are an error or are stepped over, as
failOnDataLoss says.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from headrace.base.ids import id_text
from headrace.client.clock import clock, wall_ms
from headrace.client.configuration import Configuration, consumer_keys
from headrace.client.consumer.session import ConsumerSession
from headrace.client.consumer.settings import consumer_settings
from headrace.client.errors import ClientError, KafkaError, LogTruncation, TimedOut
from headrace.client.network_settings import network_settings
from headrace.client.threads.driver import Driver
from headrace.protocol.errors import ErrorCode
from headrace.records._columns import Columns
from headrace.spark.errors import DataLost, TopicRecreated
from headrace.spark.planning import Range

CLOSE_S = 1.0

log = logging.getLogger("headrace.spark")


class Task(NamedTuple):
    """What a task is told; sent from the planner to the executors."""

    range: Range
    topic_id: str
    settings: dict[str, str]
    poll_timeout_s: float
    fails_on_data_loss: bool


def task_settings(settings: Mapping[str, str], isolation_level: str) -> dict[str, str]:
    """A consumer's settings for reading a range."""
    return {
        **settings,
        "isolation.level": isolation_level,
        "auto.offset.reset": "none",
        "enable.auto.commit": "false",
        "allow.auto.create.topics": "false",
    }


def read_range(task: Task) -> Iterator[Columns]:
    """The records of the range in order; the last of them may be followed by some behind its end."""
    at, position, end = task.range
    with _consumer(task) as (session, driver):
        is_checked = False
        while position < end:
            columns = Columns()
            try:
                _wait(session, driver, columns, task)
            except (KafkaError, LogTruncation) as error:
                position = _after_loss(session, driver, task, position, error)
                continue
            if not is_checked:
                _check_identity(session, task)
                is_checked = True
            with driver.lock:
                position = session.position(at) or position
            if columns.row_count:
                yield columns


@contextmanager
def _consumer(task: Task) -> Iterator[tuple[ConsumerSession, Driver]]:
    configuration = Configuration(consumer_keys(), task.settings)
    session = ConsumerSession(consumer_settings(configuration), random.SystemRandom(), wall_ms=wall_ms)
    driver = Driver(session, network_settings(configuration), name="headrace-spark")
    session.assign(clock(), {task.range.at: task.range.start})
    session.fetch_until(task.range.at, task.range.end)
    driver.start()
    try:
        yield session, driver
        with driver.lock:  # brokers keep fetch sessions of those who leave without a word
            closed = session.close(clock(), CLOSE_S)
            driver.wake()
            driver.wait_until(lambda: closed.is_done, CLOSE_S)
    finally:
        driver.close()


def _wait(session: ConsumerSession, driver: Driver, columns: Columns, task: Task) -> None:
    """Until something was fetched, be it only what is not to be shown."""
    until = clock() + task.poll_timeout_s
    with driver.lock:
        while True:
            for event in session.take_events():
                log.warning("%s", event)
            if session.take_columns(clock(), columns):
                if session.needs_turn:
                    driver.wake()
                return
            if session.needs_turn:
                driver.wake()
            if not driver.wait_until(lambda: session.has_news, until - clock()):
                raise TimedOut(
                    f"nothing was fetched of partition {task.range.at} from offset "
                    f"{session.position(task.range.at)} on for {task.poll_timeout_s:g} s "
                    "(kafkaConsumer.pollTimeoutMs)"
                )


def _check_identity(session: ConsumerSession, task: Task) -> None:
    topic = session.cluster.topics.get(task.range.at.topic)
    if topic is None or not task.topic_id:
        return
    found = id_text(topic.topic_id)
    if found != task.topic_id:
        raise TopicRecreated(recreated(task.range.at.topic, task.topic_id, found))


def recreated(topic: str, before: str, now: str) -> str:
    return (
        f"topic {topic!r} was deleted and made anew: its id was {before} and is {now}. Offsets of the "
        "old one mean nothing in it; start with a new checkpoint to read it from its beginning."
    )


def _after_loss(
    session: ConsumerSession, driver: Driver, task: Task, position: int, error: ClientError
) -> int:
    """Where to go on behind records that are gone; raises if that is not wanted, or not what happened."""
    at = task.range.at
    if isinstance(error, KafkaError) and error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        raise error
    _check_identity(session, task)
    with driver.lock:
        pending = session.beginning_offsets(clock(), [at], task.poll_timeout_s)
        driver.wake()
        driver.wait_until(lambda: pending.is_done, task.poll_timeout_s)
        first = pending.result()[at]
    lost_to = min(max(first, position), task.range.end)
    if lost_to == position:  # it is not the beginning that went
        lost_to = task.range.end
    said = f"offsets {position} to {lost_to - 1} of partition {at} went while they were being read: {error}"
    if task.fails_on_data_loss:
        raise DataLost(f"{said}. Set failOnDataLoss to false to go on without them.") from error
    log.warning("%s", said)
    if lost_to < task.range.end:
        with driver.lock:
            session.seek(clock(), at, lost_to)
            driver.wake()
    return lost_to
