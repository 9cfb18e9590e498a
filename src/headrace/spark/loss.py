"""Records that a query was to read and that are gone: found by comparing offsets, told with what is known.

log start behind where the query is       deleted: by retention, or on request
log end before where the query is         truncated: a leader without those records took over
no such partition                         the topic was deleted
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.client.cluster import TopicPartition
from headrace.spark.planning import Range


class Loss(NamedTuple):
    at: TopicPartition
    start: int
    end: int | None  # behind the last offset that is gone; None: nobody knows how many there were
    why: str


def find_losses(
    ranges: Iterable[Range],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[Loss]:
    """What of these ranges is not there any more."""
    losses: list[Loss] = []
    for each in ranges:
        if each.at not in earliest:
            losses.append(Loss(each.at, each.start, each.end, TOPIC_DELETED))
            continue
        first, end = earliest[each.at], latest[each.at]
        if each.start < first:
            losses.append(Loss(each.at, each.start, min(first, each.end), DELETED))
        if each.end > end:
            losses.append(Loss(each.at, max(end, each.start), each.end, TRUNCATED))
    return losses


DELETED = "deleted"
TOPIC_DELETED = "the topic, or this partition of it, was deleted"
TRUNCATED = "the log ends before them: it was cut when a replica without them became the leader"


def remaining(ranges: Iterable[Range], losses: Iterable[Loss]) -> list[Range]:
    """The ranges without what is lost, which lies at their beginning or at their end."""
    left: list[Range] = []
    gone: dict[TopicPartition, list[Loss]] = {}
    for loss in losses:
        gone.setdefault(loss.at, []).append(loss)
    for each in ranges:
        start, end = each.start, each.end
        for loss in gone.get(each.at, ()):
            loss_end = end if loss.end is None else loss.end
            if loss.start <= start < loss_end:
                start = min(loss_end, end)
            elif loss.start < end <= loss_end:
                end = loss.start
        if start < end:
            left.append(Range(each.at, start, end))
    return left


def told(
    losses: Iterable[Loss],
    *,
    config_of: Callable[[str], Mapping[str, str | None]],
    first_ms: Callable[[TopicPartition], int | None],
) -> str:
    """One sentence per loss; the topic's settings and the time of the first record left explain it."""
    return " ".join(_told(loss, config_of, first_ms) for loss in losses)


def _told(
    loss: Loss,
    config_of: Callable[[str], Mapping[str, str | None]],
    first_ms: Callable[[TopicPartition], int | None],
) -> str:
    if loss.end is None:
        which = f"All offsets from {loss.start} on"
    else:
        which = f"Offsets {loss.start} to {loss.end - 1}"
    said = f"{which} of partition {loss.at} are gone"
    if loss.why != DELETED:
        return f"{said}: {loss.why}."
    oldest_ms = first_ms(loss.at)
    since = "nothing is left" if oldest_ms is None else f"the oldest record left is of {_moment(oldest_ms)}"
    return f"{said}: {_reason(config_of(loss.at.topic))}; {since}."


def _reason(config: Mapping[str, str | None]) -> str:
    """What deletes records of such a topic."""
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
