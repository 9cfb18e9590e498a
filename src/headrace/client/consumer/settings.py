"""What a consumer's machines are told at their birth, by Kafka's names; times in seconds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from headrace.base.dice import Dice
from headrace.base.time import Duration
from headrace.client.assignors import ASSIGNORS, Assignor
from headrace.client.backoff import backoff
from headrace.client.configuration import Configuration, InvalidSetting
from headrace.client.membership.settings import GroupProtocol, GroupSettings

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2  # ListOffsets' special timestamps

# As ISO 8601 writes durations: days and smaller, since months have no length.
_DURATION = re.compile(
    r"P(?=[0-9T])(?:(?P<days>[0-9]+)D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+(?:\.[0-9]+)?)S)?)?"
)
_BY_DURATION = "by_duration:"


class ResetKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"  # the application is told instead
    BY_DURATION = "by_duration"


class Reset(NamedTuple):
    """Where to begin when no position is known or the known one is gone (auto.offset.reset)."""

    kind: ResetKind
    duration_ms: int = 0  # how far back, by duration

    def timestamp(self, wall_ms: int) -> int:
        """What to ask ListOffsets for."""
        match self.kind:
            case ResetKind.EARLIEST:
                return EARLIEST
            case ResetKind.BY_DURATION:
                return max(0, wall_ms - self.duration_ms)
            case _:
                return LATEST


DURATION_CHARACTERS_MAX = 100  # more digits than any time has, and few enough to compute with

TO_EARLIEST = Reset(ResetKind.EARLIEST)
TO_LATEST = Reset(ResetKind.LATEST)


def parse_reset(text: str) -> Reset:
    """From `earliest`, `latest`, `none` or `by_duration:P1DT2H`.

    >>> parse_reset("by_duration:PT1M")
    Reset(kind=<ResetKind.BY_DURATION: 'by_duration'>, duration_ms=60000)
    """
    lowered = text.lower()
    if lowered.startswith(_BY_DURATION):
        found = _DURATION.fullmatch(text[len(_BY_DURATION) :].upper())
        if found is not None and len(text) <= DURATION_CHARACTERS_MAX:
            days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
            seconds = ((days * 24 + hours) * 60 + minutes) * 60 + float(found["seconds"] or 0)
            return Reset(ResetKind.BY_DURATION, round(seconds * 1000))
    elif lowered in ("earliest", "latest", "none"):
        return Reset(ResetKind(lowered))
    allowed = "earliest, latest, none or by_duration:PnDTnHnMn.nS"
    raise InvalidSetting(f"auto.offset.reset cannot be {text!r:.200}: it is {allowed}")


@dataclass(slots=True, frozen=True)
class ConsumerSettings:
    group: GroupSettings | None = None  # None: partitions are assigned, and nothing is committed
    reset: Reset = TO_LATEST
    isolation: int = READ_UNCOMMITTED
    checks_crcs: bool = True
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 50 << 20  # of an answer, and of all that is fetched ahead
    fetch_wait_max_ms: int = 500
    partition_bytes_max: int = 8 << 20  # of an answer
    max_poll_records: int = 500
    request_timeout_s: float = 30.0
    api_timeout_s: float = 60.0  # of calls without a timeout of their own
    metadata_age_s: float = 300.0
    allow_auto_create_topics: bool = True
    retry_first_s: float = 0.1
    retry_last_s: float = 1.0
    unreachable_s: float | None = None  # of an outage, before calls that wait raise; None: never

    def backoff(self, attempt: int, dice: Dice) -> Duration:
        return backoff(attempt, dice, first_s=self.retry_first_s, last_s=self.retry_last_s)


def consumer_settings(
    configuration: Configuration, *, assignors: Sequence[Assignor] = ()
) -> ConsumerSettings:
    """A consumer's settings; `assignors` are the user's own, known by their names."""
    committed_only = configuration.text("isolation.level").lower() == "read_committed"
    return ConsumerSettings(
        group=_group_settings(configuration, assignors),
        reset=parse_reset(configuration.text("auto.offset.reset")),
        isolation=READ_COMMITTED if committed_only else READ_UNCOMMITTED,
        checks_crcs=configuration.flag("check.crcs"),
        fetch_bytes_min=configuration.number("fetch.min.bytes"),
        fetch_bytes_max=configuration.number("fetch.max.bytes"),
        fetch_wait_max_ms=configuration.number("fetch.max.wait.ms"),
        partition_bytes_max=configuration.number("max.partition.fetch.bytes"),
        max_poll_records=configuration.number("max.poll.records"),
        request_timeout_s=configuration.seconds("request.timeout.ms"),
        api_timeout_s=configuration.seconds("default.api.timeout.ms"),
        metadata_age_s=configuration.seconds("metadata.max.age.ms"),
        allow_auto_create_topics=configuration.flag("allow.auto.create.topics"),
        retry_first_s=configuration.seconds("retry.backoff.ms"),
        retry_last_s=configuration.seconds("retry.backoff.max.ms"),
        unreachable_s=configuration.optional_seconds("headrace.unreachable.timeout.ms"),
    )


def _group_settings(configuration: Configuration, own: Sequence[Assignor]) -> GroupSettings | None:
    group_id = configuration.optional_text("group.id")
    commits_itself = configuration.flag("enable.auto.commit")
    if group_id is None:
        if commits_itself and "enable.auto.commit" in configuration.given:
            raise InvalidSetting("enable.auto.commit needs group.id: offsets are committed to a group")
        return None
    protocol = GroupProtocol(configuration.text("group.protocol").lower())
    session_s = configuration.seconds("session.timeout.ms")
    heartbeat_s = configuration.seconds("heartbeat.interval.ms")
    if protocol is GroupProtocol.CLASSIC and heartbeat_s >= session_s:
        raise InvalidSetting("heartbeat.interval.ms must be lower than session.timeout.ms")
    return GroupSettings(
        group_id,
        protocol=protocol,
        instance_id=configuration.optional_text("group.instance.id"),
        rack=configuration.text("client.rack") or None,
        session_timeout_s=session_s,
        heartbeat_interval_s=heartbeat_s,
        max_poll_interval_s=configuration.seconds("max.poll.interval.ms"),
        assignors=_assignors(configuration.items_of("partition.assignment.strategy"), own),
        server_assignor=configuration.optional_text("group.remote.assignor"),
        metadata_max_age_s=configuration.seconds("metadata.max.age.ms"),
        allow_auto_create_topics=configuration.flag("allow.auto.create.topics"),
        excludes_internal_topics=configuration.flag("exclude.internal.topics"),
        request_timeout_s=configuration.seconds("request.timeout.ms"),
        api_timeout_s=configuration.seconds("default.api.timeout.ms"),
        auto_commit_interval_s=configuration.seconds("auto.commit.interval.ms") if commits_itself else None,
    )


# What Java's configuration files say for the same four.
_JAVA_ASSIGNORS = {
    f"org.apache.kafka.clients.consumer.{name}Assignor": assignor
    for name, assignor in (
        ("Range", "range"),
        ("RoundRobin", "roundrobin"),
        ("Sticky", "sticky"),
        ("CooperativeSticky", "cooperative-sticky"),
    )
}


def _assignors(names: Sequence[str], own: Sequence[Assignor]) -> tuple[Assignor, ...]:
    known = ASSIGNORS | {assignor.name: assignor for assignor in own}
    chosen: dict[str, Assignor] = {}
    for given in names:
        name = _JAVA_ASSIGNORS.get(given, given)
        if name not in known:
            raise InvalidSetting(
                f"partition.assignment.strategy cannot be {given!r}; known are {', '.join(sorted(known))}"
            )
        chosen[name] = known[name]
    if not chosen:
        raise InvalidSetting("partition.assignment.strategy must name an assignor")
    return tuple(chosen.values())
