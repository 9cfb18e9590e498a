"""Settings of a consumer and of its group; the defaults are Kafka's, where `keys` does not say otherwise."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from headrace.base.randomness import Randomness
from headrace.base.time import Duration
from headrace.client.assignors import ASSIGNORS, Assignor
from headrace.client.backoff import backoff
from headrace.client.settings.configuration import (
    Configuration,
    InvalidSetting,
    optional_seconds,
    seconds,
    typed_values,
    value,
)

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
    NONE = "none"  # an error is raised instead
    BY_DURATION = "by_duration"


class Reset(NamedTuple):
    """Where to begin when there is no position, or when the position is out of range (auto.offset.reset)."""

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
    raise InvalidSetting(f"auto.offset.reset={text:.200}: must be {allowed}")


class GroupProtocol(Enum):
    """Who assigns partitions (group.protocol): a member of the group, or the broker (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(slots=True, frozen=True)
class GroupSettings:
    group_id: str
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    instance_id: str | None = value("group.instance.id")  # of a static member (KIP-345)
    rack: str | None = None
    session_timeout_s: float = seconds("session.timeout.ms")
    heartbeat_interval_s: float = seconds("heartbeat.interval.ms")
    max_poll_interval_s: float = seconds("max.poll.interval.ms")  # the group's rebalance timeout, too
    # Members of a group must have one in common. If all are cooperative, the group rebalances cooperatively.
    assignors: tuple[Assignor, ...] = (ASSIGNORS["range"], ASSIGNORS["cooperative-sticky"])
    server_assignor: str | None = value("group.remote.assignor")  # None: the broker's choice
    metadata_max_age_s: float = seconds("metadata.max.age.ms")
    allow_auto_create_topics: bool = value("allow.auto.create.topics")
    excludes_internal_topics: bool = value("exclude.internal.topics")  # from patterns
    request_timeout_s: float = seconds("request.timeout.ms")
    api_timeout_s: float = seconds("default.api.timeout.ms")  # of commits and fetches of offsets
    auto_commit_interval_s: float | None = None  # None: only the application commits
    # Offsets of open transactions are waited for. Java always asks for it: a reader of committed records
    # must, and for others it costs nothing (KIP-447).
    require_stable: bool = True


@dataclass(slots=True, frozen=True)
class ConsumerSettings:
    group: GroupSettings | None = None  # None: partitions are assigned by hand, and nothing is committed
    reset: Reset = TO_LATEST
    isolation: int = READ_UNCOMMITTED
    checks_crcs: bool = value("check.crcs")
    fetch_bytes_min: int = value("fetch.min.bytes")
    fetch_bytes_max: int = value("fetch.max.bytes")  # of a response, and of all that is fetched ahead
    fetch_wait_max_ms: int = value("fetch.max.wait.ms")
    partition_bytes_max: int = value("max.partition.fetch.bytes")  # of a response
    max_poll_records: int = value("max.poll.records")
    request_timeout_s: float = seconds("request.timeout.ms")
    api_timeout_s: float = seconds("default.api.timeout.ms")
    metadata_age_s: float = seconds("metadata.max.age.ms")
    allow_auto_create_topics: bool = value("allow.auto.create.topics")
    retry_first_s: float = seconds("retry.backoff.ms")
    retry_last_s: float = seconds("retry.backoff.max.ms")
    unreachable_s: float | None = optional_seconds("headrace.unreachable.timeout.ms")

    def backoff(self, attempt: int, rng: Randomness) -> Duration:
        return backoff(attempt, rng, first_s=self.retry_first_s, last_s=self.retry_last_s)


def consumer_settings(
    configuration: Configuration, *, assignors: Sequence[Assignor] = ()
) -> ConsumerSettings:
    """`assignors` are the application's own, known by their names."""
    committed_only = configuration.text("isolation.level").lower() == "read_committed"
    return typed_values(
        ConsumerSettings,
        configuration,
        group=_group_settings(configuration, assignors),
        reset=parse_reset(configuration.text("auto.offset.reset")),
        isolation=READ_COMMITTED if committed_only else READ_UNCOMMITTED,
    )


def _group_settings(configuration: Configuration, own: Sequence[Assignor]) -> GroupSettings | None:
    group_id = configuration.optional_text("group.id")
    commits_itself = configuration.flag("enable.auto.commit")
    if group_id is None:
        if commits_itself and "enable.auto.commit" in configuration.given:
            raise InvalidSetting("enable.auto.commit needs group.id: offsets are committed to a group")
        return None
    settings = typed_values(
        GroupSettings,
        configuration,
        group_id=group_id,
        protocol=GroupProtocol(configuration.text("group.protocol").lower()),
        rack=configuration.text("client.rack") or None,
        assignors=_assignors(configuration.items_of("partition.assignment.strategy"), own),
        auto_commit_interval_s=configuration.seconds("auto.commit.interval.ms") if commits_itself else None,
    )
    is_classic = settings.protocol is GroupProtocol.CLASSIC
    if is_classic and settings.heartbeat_interval_s >= settings.session_timeout_s:
        raise InvalidSetting("heartbeat.interval.ms must be lower than session.timeout.ms")
    return settings


# The names of the same four in configuration files of Java's clients.
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
                f"partition.assignment.strategy={given}: must be one or more of {', '.join(sorted(known))}"
            )
        chosen[name] = known[name]
    if not chosen:
        raise InvalidSetting("partition.assignment.strategy must name at least one assignor")
    return tuple(chosen.values())
