"""The scoreboard that benchmark runs write: rows are replaced one by one, and charts can be read."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import scoreboard
from benchmarks.report import Measure

SVG = "{http://www.w3.org/2000/svg}"


def measure(row: str, ours: list[float], theirs: list[float], **more: object) -> Measure:
    made = Measure(row, "writes & reads", "MB/s", **more)  # type: ignore[arg-type]
    made.repeats = {"headrace": ours, made.rival: theirs}
    return made


def put(directory: Path, *measures: Measure, commit: str = "abc") -> str:
    scoreboard.update(directory, measures, at="2026-01-02T03:04:05Z", commit=commit, load=0.5)
    return (directory / "scoreboard.md").read_text()


def lines(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| T")]


def test_each_figure_has_its_ratio_verdict_date_and_commit(tmp_path: Path) -> None:
    page = put(
        tmp_path,
        measure("T1", [300.0, 100.0, 200.0], [100.0], ratio_target=1.5),
        measure("T2", [50.0], [100.0], ratio_target=1.2),
    )
    first, second = lines(page)
    assert "200 (100–300)" in first
    assert "2.00×" in first
    assert "| ok | 2026-01-02, abc, load 0.5 |" in first
    assert "missed" in second
    assert "1 of 2 targets are met." in page


def test_a_run_of_one_row_leaves_the_others(tmp_path: Path) -> None:
    put(tmp_path, measure("T10", [1.0], [2.0]), measure("T2", [3.0], [4.0]), commit="old")
    page = put(tmp_path, measure("T2", [5.0], [6.0]), commit="new")
    rows = lines(page)
    assert [row.split(" | ")[0] for row in rows] == ["| T2", "| T10"]
    assert "new" in rows[0]
    assert "old" in rows[1]
    assert len(json.loads((tmp_path / "scoreboard.json").read_text())) == 2


def test_charts_are_drawings_of_every_row(tmp_path: Path) -> None:
    nothing = measure("T3", [0.0], [0.0])
    page = put(tmp_path, measure("T1", [200.0], [100.0]), measure("T1", [1.0], []), nothing)
    (chart,) = sorted((tmp_path / "scoreboard").glob("*.svg"))
    assert f"](scoreboard/{chart.name})" in page
    drawing = ElementTree.fromstring(chart.read_text())
    bars = [one for one in drawing.iter(f"{SVG}rect") if one.get("x")]
    assert [int(bar.get("width", "0")) for bar in bars] == [420, 210, 420]
    texts = [one.text for one in drawing.iter(f"{SVG}text")]
    assert "T1: writes & reads, MB/s (more is better)" in texts
