"""Schedules of jobs: all the time, at an interval, by a cron expression, once, or on demand.

A job has one run at a time. Moments that pass while it runs, or while no runner is there, are not made up
for one by one: the job runs once as soon as it can.
"""

import re
from dataclasses import dataclass
from typing import Final

from headrace.machines.jobs.cron import Cron, parse_cron

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_INTERVAL = re.compile(r"(\d+)\s*([smhd])")
_FORMS: Final = "write continuous, every 5m, cron 0 3 * * *, once or on demand"


class NotASchedule(ValueError):
    """The text is not a schedule; the message says what would be."""


@dataclass(frozen=True, slots=True)
class Continuous:
    """The job goes on by itself; a run that ends is started again."""

    def __str__(self) -> str:
        return "continuous"


@dataclass(frozen=True, slots=True)
class Every:
    interval_ms: int
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Once:
    """Until a run succeeds, and never again."""

    def __str__(self) -> str:
        return "once"


@dataclass(frozen=True, slots=True)
class OnDemand:
    """Only when somebody asks."""

    def __str__(self) -> str:
        return "on demand"


Schedule = Continuous | Every | Cron | Once | OnDemand


def parse_schedule(text: str) -> Schedule:
    """ValueError says what is wrong."""
    word, _, rest = text.strip().lower().partition(" ")
    match word, rest.strip():
        case "continuous", "":
            return Continuous()
        case "once", "":
            return Once()
        case "on", "demand":
            return OnDemand()
        case "every", interval:
            read = _INTERVAL.fullmatch(interval)
            if read is None or int(read[1]) == 0:
                raise NotASchedule(f"{text!r} is not an interval; write every 30s, 5m, 2h or 1d")
            return Every(int(read[1]) * _UNITS_MS[read[2]], f"every {read[1]}{read[2]}")
        case "cron", fields:
            return parse_cron(fields)
    raise NotASchedule(f"{text!r} is not a schedule; {_FORMS}")


def first_ms(schedule: Schedule, now_ms: int) -> int | None:
    """When a job that never ran begins; None: when somebody asks."""
    match schedule:
        case Continuous() | Every() | Once():
            return now_ms
        case Cron():
            return schedule.next_ms(now_ms)
        case OnDemand():
            return None


def next_ms(schedule: Schedule, started_ms: int, now_ms: int) -> int | None:
    """When a job runs again whose run was started then and has succeeded now; None: when somebody asks."""
    match schedule:
        case Continuous():
            return now_ms
        case Every():
            return max(now_ms, started_ms + schedule.interval_ms)
        case Cron():
            return schedule.next_ms(now_ms)
        case Once() | OnDemand():
            return None
