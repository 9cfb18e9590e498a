"""What the pages about Spark say is so: their blocks run, one behind the other, in a program of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.headrace import COMMAND

HERE = Path(__file__).resolve()
DOCS = HERE.parents[2] / "docs"
PAGE, TUTORIAL = DOCS / "spark.md", DOCS / "spark-tutorial.md"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", re.DOTALL)


def test_the_page_runs(servers, admin, producer, tmp_path):
    admin.create_topic("clicks", partitions=1)
    for number in range(10):
        producer.send("clicks", b'{"ad": "a%d", "price": %.1f}' % (number % 3, number / 2))
    producer.flush()
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 6
    program = tmp_path / "page.py"
    known = f"servers, directory = {servers!r}, {str(tmp_path)!r}\n"
    program.write_text(known + "\n".join(block for block, _ in blocks))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    for _, expected in blocks:
        assert expected.strip() in done.stdout


@pytest.fixture
def sample(tmp_path):
    """The address of a broker as the tutorial starts it."""
    command = [*COMMAND, "up", "--sample", "clicks", "--port", "0", "--data", str(tmp_path / "data")]
    with (tmp_path / "up.txt").open("w") as notes:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=notes, text=True)
    assert process.stdout is not None
    with process.stdout as said:
        try:
            yield said.readline().removeprefix("ready ").strip()
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.timeout(600)  # a pipeline is started twice beside the tutorial's own session
def test_the_tutorial_runs(sample, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, str(HERE.with_name("page_job.py")), str(TUTORIAL), sample],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    shown = [expected.strip() for _, expected in BLOCK.findall(TUTORIAL.read_text()) if expected]
    assert len(shown) >= 2
    assert [text for text in shown if text not in done.stdout] == []


@pytest.mark.parametrize("page", sorted(DOCS.glob("spark*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (DOCS / target).exists(), target
