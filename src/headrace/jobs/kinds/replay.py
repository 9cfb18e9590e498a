"""Kind `replay`: copies records of a topic into another one, by time or offset, with a rate and a filter.

source, target    the topics
from, to          positions as in `headrace consume`: earliest, 1234, -1h, 2026-01-31T12:00:00Z
filter            an expression; records for which it is false are skipped
rate, rate_bytes  records or bytes a second
partition         same: each record keeps its partition; key: the target's partitioner decides
timestamps        keep, or now
allow_loss        go on if the source deleted records before they were copied
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.jobs.copying import Copy, CopyOptions, Outgoing, parse_copy
from headrace.jobs.errors import JobFailed
from headrace.jobs.expressions import Condition, NotAnExpression, parse_condition
from headrace.jobs.options import Options
from headrace.jobs.work import Work
from headrace.records._messages import Message


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    copy: CopyOptions
    condition: Condition | None
    partition: str
    keeps_timestamps: bool


def parse(options: Options) -> ReplayOptions:
    return ReplayOptions(
        parse_copy(options),
        parse_filter(options),
        options.choice("partition", ("same", "key"), "same"),
        options.choice("timestamps", ("keep", "now"), "keep") == "keep",
    )


def parse_filter(options: Options) -> Condition | None:
    text = options.optional("filter")
    try:
        return None if text is None else parse_condition(text)
    except NotAnExpression as error:
        raise options.wrong("filter", str(error)) from None


def run(options: ReplayOptions, work: Work) -> bool:
    if options.partition == "same":
        _check_partitions(options.copy, work)

    def transform(message: Message) -> Outgoing | None:
        if options.condition is not None and not options.condition(message):
            return None
        return Outgoing(
            options.copy.target,
            message.key,
            message.value,
            message.headers,
            message.partition if options.partition == "same" else None,
            kept_timestamp(message) if options.keeps_timestamps else None,
        )

    return Copy(options.copy, transform, work).run()


def kept_timestamp(message: Message) -> int | None:
    return message.timestamp_ms if message.timestamp_ms >= 0 else None


def _check_partitions(options: CopyOptions, work: Work) -> None:
    with work.admin() as admin:
        counts = [len(admin.describe_topic(name).partitions) for name in (options.source, options.target)]
    if counts[1] < counts[0]:
        raise JobFailed(
            f"topic {options.target!r} has {counts[1]} partitions, and {options.source!r} has {counts[0]}",
            "Add partitions, or set `partition: key` to let the keys decide.",
        )
