"""The plan of a stream, one micro-batch after the other; lives in one process beside Spark's driver.

    latest(start, all) → where the next batch ends      tasks(start, end) → who reads what of it

Spark asks where a batch ends only when everything before `start` is done, so that is when progress is
committed: as that of a consumer group, which every tool that shows lag can see. Spark's own call at the end
of a batch comes later, and after the last batch not at all.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from headrace.client.admin.topics import TopicDescription
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError
from headrace.spark.batch import report_loss, split, tasks_of, without_lost
from headrace.spark.loss import TOPIC_DELETED, TRUNCATED, Loss
from headrace.spark.offsets import Offsets, from_json
from headrace.spark.options import SourceOptions
from headrace.spark.planning import is_too_early, limited, ranges_between, waiting
from headrace.spark.reading import Task
from headrace.spark.survey import Survey, check_identities

log = logging.getLogger("headrace.spark")


class StreamPlanner:
    """Invariant: no batch ends behind `_target`, once there is one (AvailableNow)."""

    def __init__(
        self, options: SourceOptions, survey: Survey, clock: Callable[[], float] = monotonic
    ) -> None:
        self._options = options
        self._survey = survey
        self._clock = clock
        self._group = options.group_id or f"{options.group_id_prefix}-{uuid.uuid4()}"
        self._target: dict[TopicPartition, int] | None = None
        self._triggered_at: float | None = None  # None: no batch yet, so the first one need not wait
        self._committed: dict[TopicPartition, int] = {}

    def close(self) -> None:
        self._survey.close()

    def initial(self) -> dict[str, Any]:
        topics = self._survey.required_topics()
        return self._survey.resolve(self._options.start, topics).to_json()

    def stop_at_what_is_there(self) -> None:
        """AvailableNow: nothing that comes later is read by this run."""
        self._target = self._survey.latest(self._survey.partitions(self._survey.topics()))

    def newest(self) -> dict[str, Any]:
        """The ends of everything, for Spark's reports."""
        topics = self._survey.topics()
        ends = self._survey.latest(self._survey.partitions(topics))
        return Offsets(ends, _ids(topics)).to_json()

    # --- where a batch ends --------------------------------------------------------------------------------

    def latest(self, start: dict[str, Any], limit: Limit) -> dict[str, Any]:
        before = from_json(start)
        topics = self._survey.topics()
        check_identities(before.topic_ids, _ids(topics))
        partitions = self._survey.partitions(topics)
        self._show({at: before.at[at] for at in partitions if at in before.at})
        self._check_gone(before, partitions)
        ends = self._survey.latest(partitions)
        if self._target is not None:
            ends = {at: min(end, self._target[at]) for at, end in ends.items() if at in self._target}
            ends |= {at: before.at[at] for at in partitions if at in before.at and at not in ends}
        ends |= self._ends_before(before, ends)
        starts = self._with_new(before, ends)
        count = waiting(starts, ends)
        if self._has_to_wait(count, limit):
            return start
        ends = self._limited(starts, ends, limit)
        if count:
            self._triggered_at = self._clock()
        return Offsets(ends, _ids(topics)).to_json()

    def _has_to_wait(self, count: int, limit: Limit) -> bool:
        if not count or limit.is_everything or self._target is not None or self._triggered_at is None:
            return False
        return is_too_early(
            count,
            self._options.offsets_per_trigger_min,
            self._clock() - self._triggered_at,
            delay_max_s=self._options.trigger_delay_max_s,
        )

    def _limited(
        self, starts: Mapping[TopicPartition, int], ends: dict[TopicPartition, int], limit: Limit
    ) -> dict[TopicPartition, int]:
        if limit.is_everything:
            return ends
        if limit.rows is not None:
            ends = limited(starts, ends, limit.rows)
        if limit.bytes is not None:
            ends = self._survey.limited_by_bytes(starts, ends, limit.bytes)
        return ends

    def _with_new(self, before: Offsets, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where each partition goes on; those that are new since then begin with their first record."""
        new = [at for at in ends if at not in before.at]
        return {**before.at, **self._survey.earliest(new)} if new else before.at

    def _check_gone(self, before: Offsets, partitions: list[TopicPartition]) -> None:
        gone = sorted(set(before.at).difference(partitions))
        if gone:
            losses = [Loss(at, before.at[at], None, TOPIC_DELETED) for at in gone]
            report_loss(self._survey, losses, self._options)

    def _ends_before(self, before: Offsets, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of partitions that seem to end before what was read: a log that was cut goes on from its new end,
        while one in which only an open transaction begins there stays where it is.
        """
        behind = [at for at, end in ends.items() if end < before.at.get(at, 0)]
        log_ends = self._survey.log_ends(behind) if behind else {}
        losses = [
            Loss(at, end, before.at[at], TRUNCATED) for at, end in log_ends.items() if end < before.at[at]
        ]
        if losses:
            report_loss(self._survey, losses, self._options)
        return {at: min(log_ends[at], before.at[at]) for at in behind}

    def _show(self, done: dict[TopicPartition, int]) -> None:
        """Everything before these is read."""
        if done == self._committed:
            return
        try:
            self._survey.commit(self._group, done)
            self._committed = done
        except ClientError as error:
            log.warning("progress is not shown as that of group %r: %s", self._group, error)

    # --- who reads what of it ------------------------------------------------------------------------------

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        before, after = from_json(start), from_json(end)
        topics = self._survey.topics()
        check_identities(after.topic_ids, _ids(topics))
        partitions = self._survey.partitions(topics)
        starts = dict.fromkeys(after.at, 0) | before.at  # a new partition's first record has offset 0
        ranges = ranges_between(starts, after.at)
        ranges = without_lost(self._survey, ranges, partitions, self._options)
        bytes_max = self._options.bytes_per_partition_max
        return tasks_of(split(self._survey, ranges, self._options, bytes_max), topics, self._options)


class Limit:
    """How much Spark lets the next batch read: what the options say, or everything."""

    __slots__ = ("bytes", "is_everything", "rows")

    def __init__(
        self, *, rows: int | None = None, bytes: int | None = None, is_everything: bool = False
    ) -> None:
        self.rows = rows
        self.bytes = bytes
        self.is_everything = is_everything


def _ids(topics: Mapping[str, TopicDescription]) -> dict[str, str]:
    return {name: topic.topic_id for name, topic in topics.items()}
