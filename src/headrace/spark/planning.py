"""Planning of reads: which offsets a batch query or a micro-batch reads, and how tasks share them.

A batch query is planned once (`plan_batch`). A stream has one `StreamPlanner`, in one process beside Spark's
driver, which Spark asks twice per micro-batch:

    next_end(start, limit) → where the micro-batch ends     tasks(start, end) → the tasks that read it

Spark asks where a micro-batch ends only when everything before `start` is done, so that is when progress is
committed: as that of a consumer group, which every tool that shows lag can see. Spark's own commit call
comes later, and after the last micro-batch not at all.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from headrace.client.admin.topics import TopicDescription
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError
from headrace.client.threads.range_reader import DataLost, ReadTask, task_settings
from headrace.spark.filters import Bounds
from headrace.spark.loss import TOPIC_DELETED, TRUNCATED, Loss, find_losses, without_losses
from headrace.spark.options import Offsets, SourceOptions, offsets_from_json
from headrace.spark.query_topics import QueryTopics, check_topic_ids
from headrace.spark.ranges import (
    Range,
    count_offsets,
    is_too_small,
    limit_ends,
    ranges_between,
    split_by_records,
    split_to_count,
)
from headrace.spark.reading import ADVICE

if TYPE_CHECKING:
    from headrace.spark.history import History, HistoryTask

# A task reads this in about a second: short enough to keep all cores busy to the end, long enough that
# starting it costs little.
BATCH_BYTES_PER_PARTITION = 64 << 20

# A topic counts as deleted if brokers leave it out for this long: one that was just started may know less
# than the others.
DELETED_AFTER_S = 10.0
ASKED_AGAIN_AFTER_S = 0.5

log = logging.getLogger("headrace.spark")


# --- batch queries ---------------------------------------------------------------------------------------


def plan_batch(options: SourceOptions, bounds: Bounds) -> list[ReadTask | HistoryTask]:
    history = _history(options)
    with QueryTopics(options) as query:
        topics = query.required_topics()
        starts = query.resolve(options.start, topics)
        if history is not None:
            starts = history.begin(starts, options.start, topics)
        ends = query.resolve(options.end, topics)
        ranges = bounds.narrow(ranges_between(starts.by_partition, ends.by_partition))
        cold, ranges = _split_history(history, ranges, topics, options, is_batch=True)
        ranges = drop_lost(query, ranges, query.partitions(topics), options)
        if bounds.since_ms is not None:
            ranges = _since(query, ranges, bounds.since_ms)
        bytes_max = options.bytes_per_partition_max
        if bytes_max is None and options.partitions_min is None and options.records_per_partition_max is None:
            bytes_max = BATCH_BYTES_PER_PARTITION
        return [*cold, *tasks_for(_split(query, ranges, options, bytes_max), topics, options)]


def _since(query: QueryTopics, ranges: list[Range], since_ms: int) -> list[Range]:
    """Drop what lies before the first record with a timestamp of at least `since_ms`."""
    found = query.list_offsets({each.partition: since_ms for each in ranges})
    first = {at: listed.offset for at, listed in found.items()}
    return [
        Range(each.partition, max(each.start, offset), each.end)
        for each in ranges
        if (offset := first[each.partition]) is not None and offset < each.end
    ]


# --- both ------------------------------------------------------------------------------------------------


def drop_lost(
    query: QueryTopics, ranges: list[Range], partitions: Iterable[TopicPartition], options: SourceOptions
) -> list[Range]:
    """Return what still exists of the ranges; raise DataLost if that is not all and failOnDataLoss is set."""
    existing = set(partitions).intersection(each.partition for each in ranges)
    losses = find_losses(ranges, query.earliest(existing), query.log_ends(existing))
    if losses:
        report_losses(query, losses, options)
    return without_losses(ranges, losses)


def report_losses(query: QueryTopics, losses: list[Loss], options: SourceOptions) -> None:
    text = query.describe(losses)
    if options.fails_on_data_loss:
        raise DataLost(f"{text} {ADVICE.lost}")
    log.warning("%s", text)


def _history(options: SourceOptions) -> History | None:
    if options.history is None:
        return None
    from headrace.spark.history import History  # only queries with a table need it

    return History(options)


def _split_history(
    history: History | None,
    ranges: list[Range],
    topics: Mapping[str, TopicDescription],
    options: SourceOptions,
    *,
    is_batch: bool,
) -> tuple[list[HistoryTask], list[Range]]:
    if history is None:
        return [], ranges
    settings = task_settings(options.settings, options.isolation_level)
    return history.split(ranges, topics, settings, bytes_max=BATCH_BYTES_PER_PARTITION if is_batch else None)


def _split(
    query: QueryTopics, ranges: list[Range], options: SourceOptions, bytes_max: int | None
) -> list[Range]:
    parts = query.split_by_bytes(ranges, bytes_max) if bytes_max is not None and ranges else ranges
    parts = split_by_records(parts, options.records_per_partition_max)
    return split_to_count(parts, options.partitions_min)


def tasks_for(
    ranges: Iterable[Range], topics: Mapping[str, TopicDescription], options: SourceOptions
) -> list[ReadTask]:
    settings = task_settings(options.settings, options.isolation_level)
    return [
        ReadTask(
            each,
            topics[each.partition.topic].topic_id,
            settings,
            options.poll_timeout_s,
            options.fails_on_data_loss,
            ADVICE,
        )
        for each in ranges
    ]


# --- streams ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Limit:
    """How much the next micro-batch may read; None: no limit of that kind."""

    rows: int | None = None
    bytes: int | None = None
    is_everything: bool = False  # ReadAllAvailable: the options' limits do not apply


class StreamPlanner:
    """Invariant: with AvailableNow, no micro-batch ends after `_target`."""

    def __init__(
        self,
        options: SourceOptions,
        query: QueryTopics,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self._options = options
        self._query = query
        self._history = _history(options)
        self._clock = clock
        self._pause = pause
        self._group = options.group_id or f"{options.group_id_prefix}-{uuid.uuid4()}"
        self._target: dict[TopicPartition, int] | None = None
        self._triggered_at: float | None = None  # None: no micro-batch yet, so the first one need not wait
        self._committed: dict[TopicPartition, int] = {}
        self._commit_failure = ""  # the last one that was logged

    def close(self) -> None:
        self._query.close()

    def initial_offsets(self) -> dict[str, Any]:
        topics = self._query.required_topics()
        found = self._query.resolve(self._options.start, topics)
        if self._history is not None:
            found = self._history.begin(found, self._options.start, topics)
        return found.to_json()

    def stop_at_current_ends(self) -> None:
        """AvailableNow: this run reads nothing that is written from now on."""
        self._target = self._query.latest(self._query.partitions(self._query.topics()))

    def latest_offsets(self) -> dict[str, Any]:
        """Return the ends of all partitions, for Spark's progress reports."""
        topics = self._query.topics()
        ends = self._query.latest(self._query.partitions(topics))
        return Offsets(ends, _ids(topics)).to_json()

    def next_end(self, start: dict[str, Any], limit: Limit) -> dict[str, Any]:
        """Return where the micro-batch that begins at `start` ends; `start` itself if it should wait."""
        given = offsets_from_json(start)
        topics = self._topics_with(given)
        before = self._without_replaced(given, _ids(topics))
        check_topic_ids(before.topic_ids, _ids(topics))
        partitions = self._query.partitions(topics)
        done = {at: before.by_partition[at] for at in partitions if at in before.by_partition}
        self._commit_progress(done)
        deleted = self._check_deleted(before, partitions)
        ends = self._query.latest(partitions)
        if self._target is not None:
            ends = {at: min(end, self._target[at]) for at, end in ends.items() if at in self._target}
            ends |= {at: offset for at, offset in done.items() if at not in ends}
        ends |= self._ends_before_start(before, ends)
        starts = self._with_new_partitions(before, ends)
        count = count_offsets(starts, ends)
        if self._should_wait(count, limit):
            return start
        ends = self._apply_limit(starts, ends, limit)
        if count:
            self._triggered_at = self._clock()
        # The stream keeps its place in what is gone: it may come back.
        left = {name: before.topic_ids[name] for name in before.topic_ids if name not in topics}
        missing = {at.topic for at in deleted if at.topic not in topics}
        return Offsets(ends | deleted, left | _ids(topics), missing).to_json()

    def _topics_with(self, offsets: Offsets) -> dict[str, TopicDescription]:
        """The topics of the query. Asks again, for some seconds, for a partition that was there before."""
        until = self._clock() + DELETED_AFTER_S
        while True:
            topics = self._query.topics()
            absent = set(offsets.by_partition).difference(self._query.partitions(topics))
            if all(at.topic in offsets.missing for at in absent) or self._clock() >= until:
                return topics
            self._pause(ASKED_AGAIN_AFTER_S)

    def _without_replaced(self, offsets: Offsets, ids: Mapping[str, str]) -> Offsets:
        """Forget the place in a topic that was reported to be gone and now has a successor."""
        if self._options.fails_on_data_loss:
            return offsets
        known = offsets.topic_ids
        replaced = {
            name for name in offsets.missing if name in ids and known.get(name, ids[name]) != ids[name]
        }
        return Offsets(
            {at: offset for at, offset in offsets.by_partition.items() if at.topic not in replaced},
            {name: its_id for name, its_id in known.items() if name not in replaced},
            offsets.missing - replaced,
        )

    def _should_wait(self, count: int, limit: Limit) -> bool:
        if not count or limit.is_everything or self._target is not None or self._triggered_at is None:
            return False
        return is_too_small(
            count,
            self._options.offsets_per_trigger_min,
            self._clock() - self._triggered_at,
            delay_max_s=self._options.trigger_delay_max_s,
        )

    def _apply_limit(
        self, starts: Mapping[TopicPartition, int], ends: dict[TopicPartition, int], limit: Limit
    ) -> dict[TopicPartition, int]:
        if limit.is_everything:
            return ends
        if limit.rows is not None:
            ends = limit_ends(starts, ends, limit.rows)
        if limit.bytes is not None:
            ends = self._query.limit_by_bytes(starts, ends, limit.bytes)
        return ends

    def _with_new_partitions(
        self, before: Offsets, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Partitions that are new since the last micro-batch start at their first record."""
        new = [at for at in ends if at not in before.by_partition]
        return {**before.by_partition, **self._query.earliest(new)} if new else before.by_partition

    def _check_deleted(self, before: Offsets, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the stream is in partitions that are gone; those of a topic are reported once."""
        deleted = sorted(set(before.by_partition).difference(partitions))
        is_reported = before.missing if not self._options.fails_on_data_loss else ()
        losses = [
            Loss(at, before.by_partition[at], None, TOPIC_DELETED)
            for at in deleted
            if at.topic not in is_reported
        ]
        if losses:
            report_losses(self._query, losses, self._options)
        return {at: before.by_partition[at] for at in deleted}

    def _ends_before_start(
        self, before: Offsets, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Ends of the partitions whose readable end lies before the offset that was read last.

        A truncated log continues at its new end. A log in which only an open transaction begins there stays
        where it is.
        """
        behind = [at for at, end in ends.items() if end < before.by_partition.get(at, 0)]
        log_ends = self._query.log_ends(behind) if behind else {}
        losses = [
            Loss(at, end, before.by_partition[at], TRUNCATED)
            for at, end in log_ends.items()
            if end < before.by_partition[at]
        ]
        if losses:
            report_losses(self._query, losses, self._options)
        return {at: min(log_ends[at], before.by_partition[at]) for at in behind}

    def _commit_progress(self, done: dict[TopicPartition, int]) -> None:
        """Commit that everything before these offsets was processed."""
        if done == self._committed:
            return
        try:
            self._query.commit(self._group, done)
            self._committed = done
            self._commit_failure = ""
        except ClientError as error:
            if str(error) == self._commit_failure:
                return  # said once, not with each micro-batch
            self._commit_failure = str(error)
            log.warning(
                "the progress of the stream was not committed to group %r (its lag is not shown; the stream "
                "itself continues): %s",
                self._group,
                error,
            )

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[ReadTask | HistoryTask]:
        after = offsets_from_json(end)
        before = self._without_replaced(offsets_from_json(start), after.topic_ids)
        topics = self._topics_with(after)
        check_topic_ids(after.topic_ids, _ids(topics))
        partitions = self._query.partitions(topics)
        # a new partition's first record has offset 0
        starts = dict.fromkeys(after.by_partition, 0) | before.by_partition
        ranges = ranges_between(starts, after.by_partition)
        cold, ranges = _split_history(self._history, ranges, topics, self._options, is_batch=False)
        ranges = drop_lost(self._query, ranges, partitions, self._options)
        bytes_max = self._options.bytes_per_partition_max
        hot = tasks_for(_split(self._query, ranges, self._options, bytes_max), topics, self._options)
        return [*cold, *hot]


def _ids(topics: Mapping[str, TopicDescription]) -> dict[str, str]:
    return {name: topic.topic_id for name, topic in topics.items()}
