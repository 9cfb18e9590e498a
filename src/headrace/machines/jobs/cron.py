"""Cron expressions: five fields, and the next moment that they match, in UTC.

    minute (0-59)  hour (0-23)  day of the month (1-31)  month (1-12, jan-dec)  day of the week (0-7, sun-sat)

A field is `*`, a number, a range `1-5`, a step `*/15` or `8-18/2`, or several of these with commas between
them. As in every cron, a day matches if either of the two day fields does, unless one of them is `*`.
"""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

MINUTE_MS: Final = 60_000
# From a 29th of February to the next there are at most eight years, across 2100. An expression that matches
# no day of so many years matches none.
DAYS_MAX: Final = 8 * 366 + 1

_MONTHS = {
    name: number
    for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)  # noqa: SIM905
}
_DAYS = {name: number for number, name in enumerate("sun mon tue wed thu fri sat".split())}  # noqa: SIM905
_SHORTHANDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_PART = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]+))?")
_EXAMPLE: Final = (
    "write five fields, as in `cron 30 4 * * mon-fri`: minute, hour, day, month, day of the week"
)


class NotACron(ValueError):
    """The text is not a cron expression; the message says which field is wrong."""


@dataclass(frozen=True, slots=True)
class Cron:
    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    is_any_day: bool  # whether the field is `*`
    is_any_weekday: bool

    def __str__(self) -> str:
        return f"cron {self.text}"

    def next_ms(self, after_ms: int) -> int:
        """The first moment after this one that matches, in milliseconds since 1970."""
        minute = (after_ms // MINUTE_MS + 1) * MINUTE_MS
        start = datetime.fromtimestamp(minute / 1000, UTC)
        today = start.date()
        found = self._time_of_day(start.hour, start.minute) if self._matches(today) else None
        if found is None:
            today, found = self._next_day(today), (self.hours[0], self.minutes[0])
        at = datetime(today.year, today.month, today.day, *found, tzinfo=UTC)
        return round(at.timestamp()) * 1000

    def _next_day(self, today: date) -> date:
        for _ in range(DAYS_MAX):
            today += timedelta(days=1)
            if self._matches(today):
                return today
        raise NotACron(f"cron {self.text}: no such day exists")

    def _matches(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        if self.is_any_day or self.is_any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday

    def _time_of_day(self, hour: int, minute: int) -> tuple[int, int] | None:
        """The first matching time of a day from this one on."""
        for one in self.hours:
            if one > hour:
                return one, self.minutes[0]
            if one == hour:
                later = [other for other in self.minutes if other >= minute]
                if later:
                    return one, later[0]
        return None


def parse_cron(text: str) -> Cron:
    told = text.strip().lower()
    fields = _SHORTHANDS.get(told, told).split()
    if len(fields) != 5:
        raise NotACron(f"cron {text}: it has {len(fields)} fields; {_EXAMPLE}")
    minute, hour, day, month, weekday = fields
    weekdays = _field(weekday, "day of the week", 0, 7, _DAYS)
    cron = Cron(
        told,
        tuple(sorted(_field(minute, "minute", 0, 59))),
        tuple(sorted(_field(hour, "hour", 0, 23))),
        _field(day, "day of the month", 1, 31),
        _field(month, "month", 1, 12, _MONTHS),
        frozenset(one % 7 for one in weekdays),
        day == "*",
        weekday == "*",
    )
    if cron.is_any_weekday and not any(_has_day(cron, one) for one in cron.months):
        raise NotACron(f"cron {text}: no month of these has such a day")
    return cron


def _has_day(cron: Cron, month: int) -> bool:
    longest = monthrange(2024, month)[1]  # a leap year
    return min(cron.days) <= longest


def _field(
    text: str, name: str, first: int, last: int, names: dict[str, int] | None = None
) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        read = _PART.fullmatch(part)
        if read is None:
            raise NotACron(f"{name} {text!r}: {part!r} is not *, a number, a range or a step; {_EXAMPLE}")
        begin, end, step = read.groups()
        if begin == "*":
            if end is not None:
                raise NotACron(f"{name} {text!r}: {part!r} is not a range; {_EXAMPLE}")
            low, high = first, last
        else:
            low = _number(begin, name, first, last, names)
            high = low if end is None else _number(end, name, first, last, names)
            if end is None and step is not None:
                high = last  # 5/15 means from 5 on
        if high < low:
            raise NotACron(f"{name} {text!r}: {part!r} ends before it begins")
        if step is not None and int(step) == 0:
            raise NotACron(f"{name} {text!r}: the step of {part!r} must be at least 1")
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, name: str, first: int, last: int, names: dict[str, int] | None) -> int:
    if names is not None and text in names:
        return names[text]
    if not text.isdecimal() or not first <= int(text) <= last:
        known = f", or {', '.join(names)}" if names else ""
        raise NotACron(f"{name} {text!r}: must be {first} to {last}{known}")
    return int(text)
