"""Reads one range of offsets of a partition: no group, no commit, the whole range or an error.

Tasks of Spark and the copier of lake tables read with it. If the topic was deleted and created again, it
fails at the first record. If records no longer exist, it fails or skips them, as the task says.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from headrace.base.ids import id_text
from headrace.base.secret import Secret
from headrace.client.clock import clock, wall_ms
from headrace.client.cluster import OffsetRange
from headrace.client.consumer.session import ConsumerSession
from headrace.client.errors import ClientError, KafkaError, LogTruncation, TimedOut
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.consumer import consumer_settings
from headrace.client.settings.keys import consumer_keys
from headrace.client.settings.network import network_settings
from headrace.client.threads.driver import Driver
from headrace.protocol.errors import ErrorCode
from headrace.records._columns import Columns

CLOSE_S = 1.0

log = logging.getLogger("headrace.client")


class DataLost(Exception):
    """Records that were to be read no longer exist; the message says which ones, and why."""


class TopicRecreated(DataLost):
    """The topic was deleted and created again; offsets of the old topic are invalid in the new one."""


class Advice(NamedTuple):
    """What to do about an error, in the words of the program that reads."""

    slow: str = "check that its leader is running, or allow more time"
    lost: str = "Allow loss to continue without them."
    recreated: str = "Read the new topic from its start."


class ReadTask(NamedTuple):
    """One range, and how to read it."""

    range: OffsetRange
    topic_id: str
    settings: dict[str, str | Secret]
    poll_timeout_s: float
    fails_on_data_loss: bool
    advice: Advice = Advice()


def task_settings(settings: Mapping[str, str | Secret], isolation_level: str) -> dict[str, str | Secret]:
    """Return the consumer settings of a task."""
    return {
        **settings,
        "isolation.level": isolation_level,
        "auto.offset.reset": "none",
        "enable.auto.commit": "false",
        "allow.auto.create.topics": "false",
    }


def read_range(task: ReadTask) -> Iterator[Columns]:
    """Yield the records of the range in order; the last batch may contain records after its end."""
    at, position, end = task.range
    with _consumer(task) as (session, driver):
        is_checked = False
        while position < end:
            try:
                columns = _wait(session, driver, task)
            except (KafkaError, LogTruncation) as error:
                position = _after_loss(session, driver, task, position, error)
                continue
            if not is_checked:
                _check_topic_id(session, task)
                is_checked = True
            with driver.lock:
                position = session.position(at) or position
            if columns.row_count:
                yield columns


@contextmanager
def _consumer(task: ReadTask) -> Iterator[tuple[ConsumerSession, Driver]]:
    configuration = Configuration(consumer_keys(), task.settings)
    session = ConsumerSession(consumer_settings(configuration), random.SystemRandom(), wall_ms=wall_ms)
    driver = Driver(session, network_settings(configuration), name="headrace-range-reader")
    session.assign(clock(), {task.range.partition: task.range.start})
    session.fetch_until(task.range.partition, task.range.end)
    driver.start()
    try:
        yield session, driver
        with driver.lock:  # else the broker keeps the fetch session until it expires
            closed = session.close(clock(), CLOSE_S)
            driver.wake()
            driver.wait_until(lambda: closed.is_done, CLOSE_S)
    finally:
        driver.close()


def _wait(session: ConsumerSession, driver: Driver, task: ReadTask) -> Columns:
    """Return what was fetched, which may be control records or aborted ones only: then there is no row."""
    until = clock() + task.poll_timeout_s
    with driver.lock:
        while True:
            for event in session.take_events():
                log.warning("%s", event)
            columns = Columns(*session.buffered())  # columns that have to grow are copied
            if session.take_columns(clock(), columns):
                if session.needs_turn:
                    driver.wake()
                return columns
            if session.needs_turn:
                driver.wake()
            if not driver.wait_until(lambda: session.has_news, until - clock()):
                position, outage = session.position(task.range.partition), session.reachability.outage
                raise TimedOut(
                    f"partition {task.range.partition}: nothing was fetched from offset {position} on for "
                    f"{task.poll_timeout_s:g} s: {task.advice.slow}"
                    + ("" if outage is None else f". No broker can be reached: {outage}")
                )


def _check_topic_id(session: ConsumerSession, task: ReadTask) -> None:
    topic = session.cluster.topics.get(task.range.partition.topic)
    if topic is None or not task.topic_id:
        return
    found = id_text(topic.topic_id)
    if found != task.topic_id:
        raise TopicRecreated(recreated_text(task.range.partition.topic, task.topic_id, found, task.advice))


def recreated_text(topic: str, before: str, now: str, advice: Advice) -> str:
    return (
        f"topic {topic!r} was deleted and created again: its id was {before} and is now {now}. Offsets of "
        f"the old topic are invalid in the new one. {advice.recreated}"
    )


def _after_loss(
    session: ConsumerSession, driver: Driver, task: ReadTask, position: int, error: ClientError
) -> int:
    """Return the offset after the lost records; raise if loss is not allowed, or nothing was lost."""
    at = task.range.partition
    if isinstance(error, KafkaError) and error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        raise error
    _check_topic_id(session, task)
    with driver.lock:
        pending = session.beginning_offsets(clock(), [at], task.poll_timeout_s)
        driver.wake()
        driver.wait_until(lambda: pending.is_done, task.poll_timeout_s)
        first = pending.result()[at]
    lost_to = min(max(first, position), task.range.end)
    if lost_to == position:  # the log was truncated: its end was lost, not its start
        lost_to = task.range.end
    text = f"offsets {position} to {lost_to - 1} of partition {at} were deleted during the read: {error}"
    if task.fails_on_data_loss:
        raise DataLost(f"{text}. {task.advice.lost}") from error
    log.warning("%s", text)
    if lost_to < task.range.end:
        with driver.lock:
            session.seek(clock(), at, lost_to)
            driver.wake()
    return lost_to
