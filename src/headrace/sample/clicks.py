"""Sample data: ads that are shown and clicked, as two topics of JSON with errors, and the correct counts.

`SampleClicks.events` publishes in order of the record timestamps. One seed gives one sequence; a shorter
sequence is the beginning of a longer one. `truth` does not know how the events are generated: it reads what
was published and applies the rules one after the other, so that the results of a pipeline can be compared
with it:

    decode → late? → duplicates of a click → joined with its impression → robots → counts per ad and minute
"""

import json
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random
from typing import NamedTuple

IMPRESSIONS = "impressions"
CLICKS = "clicks"

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS

LATENESS_MS = 2 * MINUTE_MS  # a click that is published later than this after it was made is not counted
CLICK_WINDOW_MS = 10 * MINUTE_MS  # nor one that was made longer than this after its impression
FRAUD_LIMIT = 5  # who clicks an ad more often than this within a minute is a robot

LATE, UNKNOWN, EXPIRED, FRAUD = "late", "unknown impression", "expired", "fraud"

CLOSING_AD = "closing"
# Ahead of every window, join and watermark of these rules, yet within the hour that brokers let a timestamp
# be ahead of their clocks (message.timestamp.after.max.ms).
CLOSING_AHEAD_MS = 30 * MINUTE_MS

_SITES = ("news", "sport", "weather", "games", "music")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Event(NamedTuple):
    """A record to publish, at timestamp_ms of the sample's clock."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleClicks:
    """The parameters of the sample: ads, clicks and errors. Rates are shares of the clicks."""

    seed: int = 0
    # Brokers delete records by their timestamps: begin near the present if they are to stay.
    start_ms: int = 1_767_225_600_000  # 2026-01-01
    first_impression: int = 1  # its number; ids of clicks follow those of impressions
    ads: int = 20
    users: int = 500
    impressions_per_s: float = 50.0
    click_rate: float = 0.2  # of the impressions
    duplicate_rate: float = 0.03  # published again, within 30 s
    # A click has at most one of these troubles.
    disorder_rate: float = 0.05  # published up to 20 s after it was made, behind younger ones
    late_rate: float = 0.02  # published after more than LATENESS_MS
    expired_rate: float = 0.01  # made after more than CLICK_WINDOW_MS
    unknown_rate: float = 0.02  # of an impression that never was
    robot_rate: float = 0.005  # the first of some ten clicks within half a minute
    malformed_rate: float = 0.01  # cut short, or without a field

    def __post_init__(self) -> None:
        if min(self.ads, self.users) < 1 or self.impressions_per_s <= 0:
            raise ValueError("ads, users and impressions_per_s must be at least 1, 1 and more than 0")
        if min(self.click_rate, self.duplicate_rate, *self._troubles()) < 0 or sum(self._troubles()) > 1:
            raise ValueError(
                "rates are shares of the clicks: each must be at least 0, and their sum at most 1"
            )

    def events(self, seconds: float | None = None) -> Iterator[Event]:
        """The events of the first seconds, or without end, in order of the timestamps."""
        die = Random(self.seed)  # nosec B311  # generated samples
        clicks = _Clicks(self, die)
        popularity = list(accumulate(1 / (3 + ad) for ad in range(self.ads)))
        end_ms = float("inf") if seconds is None else self.start_ms + seconds * 1_000
        per_ms = self.impressions_per_s / 1_000
        moment = float(self.start_ms)
        for number in count(self.first_impression):
            moment += die.expovariate(per_ms)
            shown_ms = int(moment)
            yield from clicks.due(min(shown_ms, end_ms))
            if shown_ms >= end_ms:
                return
            ad = f"ad-{bisect(popularity, die.random() * popularity[-1]) + 1:02d}"
            user = f"u-{int(die.random() * self.users) + 1:04d}"
            impression = f"i-{number:06d}"
            value = (
                f'{{"impression": "{impression}", "ad": "{ad}", "user": "{user}",'
                f' "shown_at": "{_written(shown_ms)}", "site": "{_SITES[int(die.random() * len(_SITES))]}",'
                f' "price": {0.002 + 0.03 * die.random():.4f}}}'
            )
            yield Event(IMPRESSIONS, impression.encode(), value.encode(), shown_ms)
            if die.random() < self.click_rate:
                clicks.make(number, ad, user, shown_ms)

    @staticmethod
    def closing_events(after_ms: int) -> Iterator[Event]:
        """Events so far in the future that every watermark passes the earlier ones; they are not counted.

        There are several of each topic, with keys of their own, so that they reach all of a few partitions.
        """
        for number in range(16):
            at_ms = after_ms + CLOSING_AHEAD_MS + number * SECOND_MS
            shown, clicked = f"i-closing-{number:02d}", f"i-never-{number:02d}"
            impression = {
                "impression": shown,
                "ad": CLOSING_AD,
                "user": "u-0000",
                "shown_at": _written(at_ms),
            }
            click = {"click": f"c-closing-{number:02d}", "impression": clicked, "ad": CLOSING_AD}
            yield _event(IMPRESSIONS, shown, {**impression, "site": _SITES[0], "price": 0.01}, at_ms)
            yield _event(CLICKS, clicked, {**click, "user": "u-0000", "clicked_at": _written(at_ms)}, at_ms)

    def _troubles(self) -> tuple[float, ...]:
        """The shares of `_Clicks`' troubles, in its order."""
        return (
            self.disorder_rate,
            self.late_rate,
            self.expired_rate,
            self.unknown_rate,
            self.robot_rate,
            self.malformed_rate,
        )


class _Clicks:
    """Clicks that were decided on and wait to be published."""

    def __init__(self, sample: SampleClicks, die: Random) -> None:
        self._die = die
        self._duplicate_rate = sample.duplicate_rate
        self._troubles = list(accumulate(sample._troubles()))
        self._waiting: list[tuple[int, int, Event]] = []
        self._serial = count()  # of two at the same moment the one that was decided on first

    def due(self, until_ms: float) -> Iterator[Event]:
        while self._waiting and self._waiting[0][0] < until_ms:
            yield heappop(self._waiting)[2]

    def make(self, number: int, ad: str, user: str, shown_ms: int) -> None:
        die = self._die
        impression, click = f"i-{number:06d}", f"c-{number:06d}"
        clicked_ms = shown_ms + 300 + int(die.expovariate(1 / 8_000))
        published_ms = clicked_ms + 20 + int(die.random() * 180)
        match bisect(self._troubles, die.random()):
            case 0:
                published_ms = clicked_ms + int(die.uniform(1, 20) * SECOND_MS)
            case 1:
                published_ms = clicked_ms + LATENESS_MS + int(die.uniform(1, 180) * SECOND_MS)
            case 2:
                clicked_ms = shown_ms + CLICK_WINDOW_MS + int(die.uniform(1, 300) * SECOND_MS)
                published_ms = clicked_ms + 100
            case 3:
                impression = f"i-lost-{number:06d}"
            case 4:
                for more in range(1, die.randint(FRAUD_LIMIT + 2, FRAUD_LIMIT + 8)):
                    again_ms = clicked_ms + int(die.uniform(0, 30) * SECOND_MS)
                    self._publish(f"{click}-{more}", impression, ad, user, again_ms, again_ms + 100)
            case 5:
                value = _click(click, impression, ad, user, clicked_ms)
                broken = value[:-20] if die.random() < 0.5 else value.replace(f' "ad": "{ad}",', "")
                self._wait(Event(CLICKS, impression.encode(), broken.encode(), published_ms))
                return
        self._publish(click, impression, ad, user, clicked_ms, published_ms)

    def _publish(
        self, click: str, impression: str, ad: str, user: str, clicked_ms: int, published_ms: int
    ) -> None:
        value = _click(click, impression, ad, user, clicked_ms).encode()
        self._wait(Event(CLICKS, impression.encode(), value, published_ms))
        if self._die.random() < self._duplicate_rate:
            again_ms = published_ms + int(self._die.uniform(0, 30) * SECOND_MS)
            self._wait(Event(CLICKS, impression.encode(), value, again_ms))

    def _wait(self, event: Event) -> None:
        heappush(self._waiting, (event.timestamp_ms, next(self._serial), event))


@dataclass(slots=True)
class Truth:
    """The correct results for some events."""

    counts: dict[tuple[str, int], int] = field(default_factory=dict)  # by ad and minute (its first ms)
    rejected: Counter[str] = field(
        default_factory=Counter
    )  # records by reason: LATE, UNKNOWN, EXPIRED, FRAUD
    malformed: int = 0
    duplicates: int = 0


def truth(
    events: Iterable[Event],
    *,
    lateness_ms: int = LATENESS_MS,
    fraud_limit: int = FRAUD_LIMIT,
    click_window_ms: int = CLICK_WINDOW_MS,
) -> Truth:
    """The counts of these events, in any order; those of CLOSING_AD are left out of everything."""
    found = Truth()
    shown_at: dict[str, int] = {}
    clicks: dict[str, _Click] = {}
    for event in events:
        match _decoded(event):
            case None:
                found.malformed += 1
            case _Impression(ad=ad) | _Click(ad=ad) if ad == CLOSING_AD:
                pass
            case _Impression() as impression:
                shown_at[impression.name] = impression.shown_ms
            case _Click() as click if event.timestamp_ms - click.clicked_ms > lateness_ms:
                found.rejected[LATE] += 1
            case _Click() as click if click.name in clicks:
                found.duplicates += 1
            case _Click() as click:
                clicks[click.name] = click
    joined = []
    for click in clicks.values():
        shown_ms = shown_at.get(click.impression)
        if shown_ms is None:
            found.rejected[UNKNOWN] += 1
        elif not shown_ms <= click.clicked_ms <= shown_ms + click_window_ms:
            found.rejected[EXPIRED] += 1
        else:
            joined.append(click)
    eager = Counter((click.user, click.ad, click.minute_ms) for click in joined)
    for click in joined:
        if eager[click.user, click.ad, click.minute_ms] > fraud_limit:
            found.rejected[FRAUD] += 1
        else:
            place = click.ad, click.minute_ms
            found.counts[place] = found.counts.get(place, 0) + 1
    return found


class _Impression(NamedTuple):
    name: str
    ad: str
    shown_ms: int


class _Click(NamedTuple):
    name: str
    impression: str
    ad: str
    user: str
    clicked_ms: int

    @property
    def minute_ms(self) -> int:
        return self.clicked_ms // MINUTE_MS * MINUTE_MS


def _decoded(event: Event) -> _Impression | _Click | None:
    """None: the text is not JSON, or a field that the rules need is missing or of another type."""
    try:
        fields = json.loads(event.value)
        match event.topic, fields:
            case "impressions", {"impression": str(name), "ad": str(ad), "shown_at": str(at)}:
                return _Impression(name, ad, _read(at))
            case "clicks", {
                "click": str(name),
                "impression": str(impression),
                "ad": str(ad),
                "user": str(user),
            }:
                return _Click(name, impression, ad, user, _read(fields["clicked_at"]))
            case _:
                return None
    except (ValueError, KeyError, TypeError):
        return None


def _event(topic: str, key: str, fields: dict[str, str | float], timestamp_ms: int) -> Event:
    return Event(topic, key.encode(), json.dumps(fields).encode(), timestamp_ms)


def _click(click: str, impression: str, ad: str, user: str, clicked_ms: int) -> str:
    return (
        f'{{"click": "{click}", "impression": "{impression}", "ad": "{ad}", "user": "{user}",'
        f' "clicked_at": "{_written(clicked_ms)}"}}'
    )


def _written(moment_ms: int) -> str:
    return f"{_written_second(moment_ms // SECOND_MS)}.{moment_ms % SECOND_MS:03d}Z"


@lru_cache(
    maxsize=1024
)  # events of one second come close together, and writing a date is the slow part of one
def _written_second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def _read(moment: str) -> int:
    return (datetime.fromisoformat(moment) - _EPOCH) // timedelta(milliseconds=1)
