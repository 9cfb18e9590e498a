"""The plan of a batch query: from where to where, without what is gone, cut so that all cores have work."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from headrace.client.admin.topics import TopicDescription
from headrace.client.cluster import TopicPartition
from headrace.spark.errors import DataLost
from headrace.spark.filters import Bounds
from headrace.spark.loss import Loss, find_losses, remaining
from headrace.spark.options import SourceOptions
from headrace.spark.planning import Range, cut_by_records, cut_to_count, ranges_between
from headrace.spark.reading import Task, task_settings
from headrace.spark.survey import Survey

# A task that reads this takes about a second: short enough to keep all cores busy to the end, long enough
# that starting it costs little.
BATCH_BYTES_PER_PARTITION = 64 << 20

log = logging.getLogger("headrace.spark")


def plan_batch(options: SourceOptions, bounds: Bounds) -> list[Task]:
    with Survey(options) as survey:
        topics = survey.required_topics()
        starts = survey.resolve(options.start, topics)
        ends = survey.resolve(options.end, topics)
        ranges = bounds.narrowed(ranges_between(starts.at, ends.at))
        ranges = without_lost(survey, ranges, survey.partitions(topics), options)
        if bounds.since_ms is not None:
            ranges = _since(survey, ranges, bounds.since_ms)
        bytes_max = options.bytes_per_partition_max
        if bytes_max is None and options.partitions_min is None and options.records_per_partition_max is None:
            bytes_max = BATCH_BYTES_PER_PARTITION
        return tasks_of(split(survey, ranges, options, bytes_max), topics, options)


def without_lost(
    survey: Survey, ranges: list[Range], partitions: Iterable[TopicPartition], options: SourceOptions
) -> list[Range]:
    """What is still there of the ranges; DataLost if that is not all, unless failOnDataLoss is false."""
    there = set(partitions).intersection(each.at for each in ranges)
    losses = find_losses(ranges, survey.earliest(there), survey.log_ends(there))
    if losses:
        report_loss(survey, losses, options)
    return remaining(ranges, losses)


def report_loss(survey: Survey, losses: list[Loss], options: SourceOptions) -> None:
    said = survey.explain(losses)
    if options.fails_on_data_loss:
        raise DataLost(f"{said} Set failOnDataLoss to false to go on without them.")
    log.warning("%s", said)


def _since(survey: Survey, ranges: list[Range], since_ms: int) -> list[Range]:
    """Without what lies before the first record as late as that."""
    found = survey.listed({each.at: since_ms for each in ranges})
    first = {at: listed.offset for at, listed in found.items()}
    return [
        Range(each.at, max(each.start, offset), each.end)
        for each in ranges
        if (offset := first[each.at]) is not None and offset < each.end
    ]


def split(survey: Survey, ranges: list[Range], options: SourceOptions, bytes_max: int | None) -> list[Range]:
    parts = survey.cut_by_bytes(ranges, bytes_max) if bytes_max is not None and ranges else ranges
    parts = cut_by_records(parts, options.records_per_partition_max)
    return cut_to_count(parts, options.partitions_min)


def tasks_of(
    ranges: Iterable[Range], topics: Mapping[str, TopicDescription], options: SourceOptions
) -> list[Task]:
    settings = task_settings(options.settings, options.isolation_level)
    return [
        Task(
            each, topics[each.at.topic].topic_id, settings, options.poll_timeout_s, options.fails_on_data_loss
        )
        for each in ranges
    ]
