"""`make demo`, smaller: the story to its end with both kills, and what it does where it cannot go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from headrace.sample.clicks import Truth

EXAMPLE = Path(__file__).parents[2] / "examples" / "ad_clicks"
DEMO = [sys.executable, str(EXAMPLE / "demo.py"), "--fast"]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the demo makes its directory, so that one that was left behind is seen."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    return directory


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A module of the demo, which is a program and no package."""
    monkeypatch.syspath_prepend(EXAMPLE)
    return import_module


def environment(temporary: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temporary), **more}


@pytest.mark.brief
@pytest.mark.timeout(1500)  # two JVMs start one after the other, on a machine that may be busy
def test_counts_are_the_truth_though_a_broker_and_the_driver_are_killed(
    tmp_path: Path, temporary: Path
) -> None:
    picture = tmp_path / "demo.svg"
    done = subprocess.run(
        [*DEMO, "--json", "--chart", str(picture)],
        capture_output=True,
        text=True,
        env=environment(temporary),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["is_equal"]
    assert facts["windows_repeated"] == 0
    assert facts["clicks"]["truth"] == facts["clicks"]["topic"] == facts["clicks"]["table"] > 1000
    assert facts["late"]["truth"] == facts["late"]["topic"] > 0
    assert facts["dead"]["truth"] == facts["dead"]["topic"] > 0
    assert [kill["victim"] for kill in facts["kills"]] == ["broker", "driver"]
    assert 0 < facts["kills"][0]["batch"] < facts["kills"][1]["batch"] < facts["batches"]
    titles = [text.text for text in ElementTree.parse(picture).iter(f"{SVG}text")]
    assert titles.count("kill -9 broker") == titles.count("kill -9 driver") == 2
    assert not list(temporary.iterdir())


def test_ctrl_c_ends_everybody_and_leaves_nothing(
    tmp_path: Path, temporary: Path, part: Callable[[str], ModuleType]
) -> None:
    command = [*DEMO, "--chart", str(tmp_path / "demo.svg")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(temporary)) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("3. "):
                break
        players = part("demo_processes").descendants(demo.pid)
        assert len(players) >= 5  # three brokers, the pipeline, the table's writer
        demo.send_signal(signal.SIGINT)
        assert demo.wait() != 0
    assert not [pid for pid in players if Path(f"/proc/{pid}").exists()]
    assert not list(temporary.iterdir())


def test_without_a_jdk_it_says_so_in_a_sentence(temporary: Path) -> None:
    done = subprocess.run(
        DEMO,
        capture_output=True,
        text=True,
        env=environment(temporary, JAVA_HOME="/nowhere"),
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "JDK 17 or newer" in done.stderr
    assert not list(temporary.iterdir())


def test_a_count_that_is_not_the_truth_is_told(part: Callable[[str], ModuleType]) -> None:
    truth = Truth(counts={("ad-01", 0): 3, ("ad-02", 60_000): 5}, rejected=Counter(late=2), malformed=1)
    verdict = part("demo_counts").Verdict
    assert verdict(truth, truth.counts, [], truth.counts, 2, 1).problems() == []
    lost = {("ad-01", 0): 3}
    doubled = {("ad-01", 0): 6, ("ad-02", 60_000): 5}
    assert verdict(truth, lost, [], doubled, 3, 0).problems() == [
        "ad-02, 00:01: 0 in the topic, truly 5",
        "ad-01, 00:00: 6 in the table, truly 3",
        "3 clicks were rejected as late, truly 2",
        "0 records are dead letters, truly 1",
    ]
    assert verdict(truth, truth.counts, [("ad-01", 0)], truth.counts, 2, 1).problems() == [
        "ad-01, 00:00: twice in the topic"
    ]


def test_the_chart_in_characters(part: Callable[[str], ModuleType]) -> None:
    chart, watch = part("demo_chart"), part("demo_watch")
    samples = [
        watch.Sample(float(second), 0, 320 if second >= 36 else 10, 0, None, 0) for second in range(73)
    ]
    kills = [watch.Kill("broker", 9.0, 0, 1, 12.0), watch.Kill("driver", 18.0, 60_000, 2, 30.0)]
    clicks = {0: 4, 60_000: 8}
    assert chart.lines(chart.Run(samples, kills, clicks, clicks)) == [
        "events behind, over 72 s (at most 320)",
        " " * 36 + "█" * 36,
        " " * 36 + "█" * 36,
        " " * 36 + "█" * 36,
        "▁" * 36 + "█" * 36,
        "         ▲ kill -9 broker",
        "                  ▲ kill -9 driver",
        "clicks that count, per minute from 00:00 to 00:01 (at most 8)",
        " " * 36 + "█" * 36,
        "█" * 72,
    ]
