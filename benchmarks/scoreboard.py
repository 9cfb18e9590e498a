"""The scoreboard: docs/scoreboard.md, one line and one chart for each figure, made by the runs themselves.

A run of some rows replaces these rows and leaves the others; what the page knows is in docs/scoreboard.json.
Each figure has its own date and commit. Only whole runs beside the rival are taken: not those of a smaller
scale, and not those beside an earlier commit.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.report import Measure, figure, shown

DATA = "scoreboard.json"
PAGE = "scoreboard.md"
CHARTS = "scoreboard"

BAR_PX = 420
LINE_PX = 22
TEXT_PX = 110
COLOURS = {"headrace": "#1b7f6b", "rival": "#8a8f98"}

INTRODUCTION = """\
# Scoreboard

`make bench` writes this page. For each row it shows the newest complete run, in which Headrace and
Apache Kafka 4.3.1 (or another system that the row names) took turns on one machine. The figures are
medians with their range. The ratio is Headrace's median divided by the other one. The last column
has the date, the commit, and the machine's load average at the end of the run.
[benchmarks.md](benchmarks.md) explains the rows and how we measure.

"""


def update(directory: Path, measures: Sequence[Measure], *, at: str, commit: str, load: float) -> None:
    """Put a run's figures into the scoreboard in that directory. `load` is the machine's at the run's end."""
    path = directory / DATA
    entries: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    rows = {measure.row for measure in measures}
    entries = [entry for entry in entries if entry["row"] not in rows]
    entries += [_entry(measure, at, commit, load) for measure in measures if measure.median("headrace")]
    entries.sort(key=lambda entry: (_rank(entry["row"]), entry["row"]))  # within a row, as it was measured
    path.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    (directory / PAGE).write_text(page(entries))
    charts = directory / CHARTS
    charts.mkdir(exist_ok=True)
    for old in charts.glob("*.svg"):
        old.unlink()
    for row in dict.fromkeys(entry["row"] for entry in entries):
        (charts / f"{row}.svg").write_text(chart([entry for entry in entries if entry["row"] == row]))


def _entry(measure: Measure, at: str, commit: str, load: float) -> dict[str, Any]:
    return {
        "row": measure.row,
        "what": measure.what,
        "unit": measure.unit,
        "higher_is_better": measure.higher_is_better,
        "target": measure.target,
        "verdict": measure.verdict,
        "ratio": measure.ratio,
        "rival": measure.rival,
        "headrace": measure.repeats["headrace"],
        "theirs": measure.repeats.get(measure.rival, []),
        "at": at,
        "commit": commit,
        "load": load,
    }


def _rank(row: str) -> tuple[str, int]:
    """T2 before T10, and rows without a number last."""
    letters, digits = row[:1], row[1:]
    return (letters, int(digits)) if digits.isdigit() else ("~", 0)


def page(entries: Sequence[dict[str, Any]]) -> str:
    judged = [entry for entry in entries if entry["verdict"]]
    met = sum(entry["verdict"] == "ok" for entry in judged)
    lines = [INTRODUCTION + f"{met} of {len(judged)} targets are met.\n"]
    lines.append("| row | what | unit | Headrace | Kafka 4.3.1, or as named | ratio | target | | measured |")
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for entry in entries:
        theirs = shown(entry["theirs"])
        if entry["rival"] != "kafka" and entry["theirs"]:
            theirs += f" {entry['rival']}"
        ratio = f"{entry['ratio']:.2f}×" if entry["ratio"] is not None else ""
        measured = f"{entry['at'][:10]}, {entry['commit']}, load {entry['load']:.1f}"
        cells = [entry["row"], entry["what"], entry["unit"], shown(entry["headrace"]), theirs, ratio]
        lines.append("| " + " | ".join([*cells, entry["target"], entry["verdict"], measured]) + " |")
    lines.append("")
    for row in dict.fromkeys(entry["row"] for entry in entries):
        lines.append(f"![{row}]({CHARTS}/{row}.svg)\n")
    return "\n".join(lines)


def chart(entries: Sequence[dict[str, Any]]) -> str:
    """Bars of one row: Headrace's medians and its rivals', each figure on a scale of its own."""
    drawn: list[str] = []
    y = 0
    for entry in entries:
        y += LINE_PX
        better = "more is better" if entry["higher_is_better"] else "less is better"
        title = f"{entry['row']}: {entry['what']}, {entry['unit']} ({better})"
        drawn.append(f'<text x="0" y="{y}" font-weight="bold">{escape(title)}</text>')
        bars = [("headrace", "headrace", entry["headrace"])]
        if entry["theirs"]:
            bars.append((entry["rival"], "rival", entry["theirs"]))
        most = max(statistics.median(values) for _, _, values in bars) or 1.0
        for name, kind, values in bars:
            middle = statistics.median(values)
            width = max(1, round(BAR_PX * middle / most))
            drawn.append(f'<text x="0" y="{y + LINE_PX - 4}">{escape(name)}</text>')
            drawn.append(
                f'<rect x="{TEXT_PX}" y="{y + 6}" width="{width}" height="{LINE_PX - 8}"'
                f' fill="{COLOURS[kind]}"/>'
            )
            drawn.append(f'<text x="{TEXT_PX + width + 6}" y="{y + LINE_PX - 4}">{figure(middle)}</text>')
            y += LINE_PX
        y += LINE_PX // 2
    size = f'width="{TEXT_PX + BAR_PX + 110}" height="{y + LINE_PX // 2}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *drawn, "</svg>"]) + "\n"
