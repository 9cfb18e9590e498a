"""The results as readers see them, from the topic and from the table, and how they compare with the truth."""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import headrace
from headrace.sample.clicks import CLOSING_AD, LATE, Truth
from headrace.schemas.dead_letters import read_dead_letter

COUNTS, REJECTED, DEAD = "clicks_per_minute", "clicks_rejected", "clicks_dead"
DIFFERENCES_MAX = 5  # more are counted, not told

Window = tuple[str, int]  # an ad, and the minute's first millisecond


class Counts:
    """Reads committed counts from the topic, on and on, as any consumer would."""

    def __init__(self, servers: str) -> None:
        self.by_window: dict[Window, int] = {}
        self.repeated: list[Window] = []  # what came twice: exactly-once means there is none
        self._consumer = headrace.Consumer(
            servers, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        self._consumer.assign([(COUNTS, at.index) for at in self._consumer.partitions_for(COUNTS)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def windows(self) -> int:
        return len(self.by_window)

    def read_on(self, timeout_s: float = 0.0) -> int:
        """Takes what is there; how many counts that were."""
        messages = self._consumer.poll(timeout_s)
        for message in messages:
            count = json.loads(message.value)
            self._add((count["ad"], minute_ms(count["minute"])), count["clicks"])
        return len(messages)

    def read_to_end(self, timeout_s: float) -> None:
        places = self._consumer.assignment
        ends = self._consumer.end_offsets(places, timeout_s)
        while any(self._consumer.position(at) < end for at, end in ends.items()):
            self.read_on(0.2)

    def _add(self, window: Window, clicks: int) -> None:
        if window[0] == CLOSING_AD:
            return
        if window in self.by_window:
            self.repeated.append(window)
        self.by_window[window] = self.by_window.get(window, 0) + clicks


def minute_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def in_table(path: Path) -> dict[Window, int]:
    """What to_database.py has put there by now."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            rows = database.execute(f"SELECT ad, minute, clicks FROM {COUNTS}").fetchall()
        except sqlite3.OperationalError:
            return {}  # the table is not there yet
    return {(ad, minute_ms(minute)): clicks for ad, minute, clicks in rows if ad != CLOSING_AD}


def _per_minute(counts: Mapping[Window, int]) -> dict[int, int]:
    """Of all ads together."""
    sums: Counter[int] = Counter()
    for (_, minute), clicks in counts.items():
        sums[minute] += clicks
    return dict(sorted(sums.items()))


def _name(window: Window) -> str:
    ad, minute = window
    return f"{ad}, {datetime.fromtimestamp(minute / 1000, UTC):%H:%M}"


def _differences(where: str, expected: Mapping[Window, int], found: Mapping[Window, int]) -> list[str]:
    """A sentence for each of the first windows that are not as they should be."""
    wrong = [
        f"{_name(window)}: {found.get(window, 0)} in {where}, truly {expected.get(window, 0)}"
        for window in sorted(expected.keys() | found.keys())
        if expected.get(window, 0) != found.get(window, 0)
    ]
    more = [f"… and {len(wrong) - DIFFERENCES_MAX} more"] if len(wrong) > DIFFERENCES_MAX else []
    return wrong[:DIFFERENCES_MAX] + more


def _committed(servers: str, topic: str) -> list[headrace.Message]:
    with headrace.Consumer(servers, isolation_level="read_committed") as consumer:
        places = [(topic, at.index) for at in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(dict.fromkeys(places, 0))
        found: list[headrace.Message] = []
        while any(consumer.position(at) < end for at, end in ends.items()):
            found += consumer.poll(0.2)
    return found


@dataclass(slots=True, frozen=True)
class Verdict:
    """The truth, and what was found of it."""

    truth: Truth
    in_topic: Mapping[Window, int]
    repeated: list[Window]
    in_table: Mapping[Window, int]
    late: int
    dead: int

    @classmethod
    def of(cls, truth: Truth, counts: Counts, table: Path, servers: str) -> Self:
        late = len(_committed(servers, REJECTED))
        letters = [read_dead_letter(dead.key, dead.value, dead.headers) for dead in _committed(servers, DEAD)]
        # at least once is what is promised of dead letters; where they came from tells doubles apart
        dead = len({(letter.topic, letter.partition, letter.offset) for letter in letters})
        return cls(truth, counts.by_window, counts.repeated, in_table(table), late, dead)

    @property
    def clicks_per_minute(self) -> tuple[dict[int, int], dict[int, int]]:
        """As they are, and as they were counted."""
        return _per_minute(self.truth.counts), _per_minute(self.in_topic)

    def problems(self) -> list[str]:
        """What is wrong; nothing, if all is exactly once."""
        problems = [f"{_name(window)}: twice in the topic" for window in self.repeated[:DIFFERENCES_MAX]]
        problems += _differences("the topic", self.truth.counts, self.in_topic)
        problems += _differences("the table", self.truth.counts, self.in_table)
        if self.late != self.truth.rejected[LATE]:
            problems.append(f"{self.late} clicks were rejected as late, truly {self.truth.rejected[LATE]}")
        if self.dead != self.truth.malformed:
            problems.append(f"{self.dead} records are dead letters, truly {self.truth.malformed}")
        return problems

    def lines(self) -> list[str]:
        """A small table of three columns of sums."""
        sums = [
            (len(counts), sum(counts.values()))
            for counts in (self.truth.counts, self.in_topic, self.in_table)
        ]
        rows = [
            ("", "truth", "topic", "SQLite"),
            ("windows (ad and minute)", *(f"{count:,}" for count, _ in sums)),
            ("clicks that count", *(f"{count:,}" for _, count in sums)),
            ("late clicks, rejected", f"{self.truth.rejected[LATE]:,}", f"{self.late:,}"),
            ("dead letters", f"{self.truth.malformed:,}", f"{self.dead:,}"),
        ]
        return [f"{name:<24}" + "".join(f"{cell:>10}" for cell in cells) for name, *cells in rows]

    def facts(self) -> dict[str, object]:
        return {
            "is_equal": not self.problems(),
            "windows": len(self.in_topic),
            "windows_repeated": len(self.repeated),
            "clicks": {
                "truth": sum(self.truth.counts.values()),
                "topic": sum(self.in_topic.values()),
                "table": sum(self.in_table.values()),
            },
            "late": {"truth": self.truth.rejected[LATE], "topic": self.late},
            "dead": {"truth": self.truth.malformed, "topic": self.dead},
        }
