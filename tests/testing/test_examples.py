"""examples/testing, run as its readers would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_examples_pass() -> None:
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-c", "/dev/null", "--rootdir=."]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=ROOT / "examples" / "testing",
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "11 passed" in run.stdout
