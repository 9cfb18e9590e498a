"""Data loss: records that a query was to read and that no longer exist.

The query's offsets are compared with the log's:

log start after the query's offset     deleted: by retention, or on request
log end before the query's offset      truncated: a leader without those records took over
no such partition                      the topic was deleted
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.client.cluster import TopicPartition
from headrace.spark.ranges import Range

DELETED = "deleted"
TOPIC_DELETED = "the topic, or this partition of it, was deleted"
TRUNCATED = "the log ends before them: it was truncated when a replica without them became the leader"


class Loss(NamedTuple):
    partition: TopicPartition
    start: int
    end: int | None  # the offset after the last lost one; None: unknown
    cause: str


def find_losses(
    ranges: Iterable[Range],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[Loss]:
    """Return the parts of these ranges that are no longer in the logs."""
    losses: list[Loss] = []
    for each in ranges:
        if each.partition not in earliest:
            losses.append(Loss(each.partition, each.start, each.end, TOPIC_DELETED))
            continue
        first, end = earliest[each.partition], latest[each.partition]
        if each.start < first:
            losses.append(Loss(each.partition, each.start, min(first, each.end), DELETED))
        if each.end > end:
            losses.append(Loss(each.partition, max(end, each.start), each.end, TRUNCATED))
    return losses


def without_losses(ranges: Iterable[Range], losses: Iterable[Loss]) -> list[Range]:
    """Return the ranges without the lost offsets, which are at their start or at their end."""
    left: list[Range] = []
    by_partition: dict[TopicPartition, list[Loss]] = {}
    for loss in losses:
        by_partition.setdefault(loss.partition, []).append(loss)
    for each in ranges:
        start, end = each.start, each.end
        for loss in by_partition.get(each.partition, ()):
            loss_end = end if loss.end is None else loss.end
            if loss.start <= start < loss_end:
                start = min(loss_end, end)
            elif loss.start < end <= loss_end:
                end = loss.start
        if start < end:
            left.append(Range(each.partition, start, end))
    return left


def describe_losses(
    losses: Iterable[Loss],
    *,
    config_of: Callable[[str], Mapping[str, str | None]],
    first_ms: Callable[[TopicPartition], int | None],
) -> str:
    """One sentence per loss, with the topic's retention settings and the time of the oldest record left."""
    return " ".join(_describe(loss, config_of, first_ms) for loss in losses)


def _describe(
    loss: Loss,
    config_of: Callable[[str], Mapping[str, str | None]],
    first_ms: Callable[[TopicPartition], int | None],
) -> str:
    if loss.end is None:
        which = f"All offsets from {loss.start} on"
    else:
        which = f"Offsets {loss.start} to {loss.end - 1}"
    text = f"{which} of partition {loss.partition} no longer exist"
    if loss.cause != DELETED:
        return f"{text}: {loss.cause}."
    oldest_ms = first_ms(loss.partition)
    left = (
        "no records remain"
        if oldest_ms is None
        else f"the oldest remaining record is from {_moment(oldest_ms)}"
    )
    return f"{text}: {_deletion_cause(config_of(loss.partition.topic))}; {left}."


def _deletion_cause(config: Mapping[str, str | None]) -> str:
    limits = [
        f"{name} is {config[name]}"
        for name in ("retention.ms", "retention.bytes")
        if config.get(name) not in (None, "-1")
    ]
    if "delete" in (config.get("cleanup.policy") or "delete") and limits:
        return f"deleted by retention ({', '.join(limits)}) or on request"
    return "deleted on request (retention keeps everything)"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
