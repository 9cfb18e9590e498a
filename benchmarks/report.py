"""What a run found: every repeat, medians and ranges, ratios against targets, as a table and as JSON."""

from __future__ import annotations

import json
import math
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.broker import ROOT


@dataclass
class Measure:
    """One figure of one row, measured in turns: Headrace and its rival, which is Kafka unless said."""

    row: str
    what: str
    unit: str
    higher_is_better: bool = True
    ratio_target: float | None = None  # Headrace's median against its rival's
    limit: float | None = None  # for Headrace's median alone, in the unit
    rival: str = "kafka"
    either: bool = False  # where there are both targets, one of them is enough
    repeats: dict[str, list[float]] = field(default_factory=dict)

    def add(self, broker: str, value: float) -> None:
        self.repeats.setdefault(broker, []).append(value)

    def median(self, broker: str) -> float | None:
        values = self.repeats.get(broker)
        return statistics.median(values) if values else None

    @property
    def ratio(self) -> float | None:
        ours, theirs = self.median("headrace"), self.median(self.rival)
        return ours / theirs if ours is not None and theirs else None

    @property
    def target(self) -> str:
        wanted = []
        if self.ratio_target is not None:
            wanted.append(f"{'≥' if self.higher_is_better else '≤'} {self.ratio_target:g}×")
        if self.limit is not None:
            wanted.append(f"{'≥' if self.higher_is_better else '≤'} {self.limit:g} {self.unit}")
        return (" or " if self.either else ", ").join(wanted)

    @property
    def verdict(self) -> str:
        """ok, missed, or nothing where there is no target or nothing to hold it against."""
        sign = 1 if self.higher_is_better else -1
        ours = self.median("headrace")
        verdicts = []
        if self.ratio_target is not None and self.ratio is not None:
            verdicts.append(sign * self.ratio >= sign * self.ratio_target)
        if self.limit is not None and ours is not None:
            verdicts.append(sign * ours >= sign * self.limit)
        if not verdicts:
            return ""
        return "ok" if (any if self.either else all)(verdicts) else "missed"


def figure(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def shown(values: list[float] | None) -> str:
    """median (lowest–highest)"""
    if not values:
        return "–"
    middle = figure(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({figure(min(values))}–{figure(max(values))})"


def table(measures: list[Measure]) -> str:
    rows = [("row", "what", "unit", "headrace", "kafka 4.3.1 or as named", "ratio", "target", "")]
    for m in measures:
        ratio = f"{m.ratio:.2f}×" if m.ratio is not None else ""
        ours, theirs = shown(m.repeats.get("headrace")), shown(m.repeats.get(m.rival))
        if m.rival != "kafka":
            theirs += f" {m.rival}"
        rows.append((m.row, m.what, m.unit, ours, theirs, ratio, m.target, m.verdict))
    return _aligned(rows)


def interval(values: list[float]) -> tuple[float, float]:
    """Where the median lies with at least 95 % (by ranks, so nothing is assumed of how values scatter)."""
    ordered, count = sorted(values), len(values)
    outside = 0
    while 2 * sum(math.comb(count, below) for below in range(outside + 1)) / 2**count <= 0.05:
        outside += 1
    cut = max(outside - 1, 0)
    return ordered[cut], ordered[count - 1 - cut]


def pairs(measures: list[Measure], new: str, old: str) -> str:
    """Each pair's own ratio, so turned that more than 1 is better than before."""
    rows = [("row", "what", "unit", new, old, "pairs", "new/old", "interval", "≥ 0.95")]
    for m in measures:
        both = list(zip(m.repeats.get(new, []), m.repeats.get(old, [])))
        if not both:
            continue
        ratios = [ours / theirs if m.higher_is_better else theirs / ours for ours, theirs in both]
        middle, (low, high) = statistics.median(ratios), interval(ratios)
        ours, theirs = shown(m.repeats[new]), shown(m.repeats[old])
        verdict = "ok" if middle >= 0.95 else "slower"
        rows.append(
            (
                m.row,
                m.what,
                m.unit,
                ours,
                theirs,
                f"{len(both)}",
                f"{middle:.3f}",
                f"{low:.3f}–{high:.3f}",
                verdict,
            )
        )
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def machine() -> dict[str, object]:
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": model,
        "cores": len(Path("/proc/cpuinfo").read_text().split("processor\t")) - 1,
        "memory_gb": round(memory_kb / 1e6, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def commit() -> str:
    described = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(described, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def write(path: Path, measures: list[Measure], settings: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(),
        "machine": machine(),
        "settings": settings,
        "measures": [
            {
                "row": m.row,
                "what": m.what,
                "unit": m.unit,
                "target": m.target,
                "ratio": m.ratio,
                "verdict": m.verdict,
                "rival": m.rival,
                "repeats": m.repeats,
            }
            for m in measures
        ],
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
