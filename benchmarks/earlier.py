"""An earlier commit of Headrace as one more broker, so that a change is measured beside what was before it.

Its tree is taken out of git once, under .cache/trees, and compiled there; it runs with this environment's
interpreter and packages, so the only difference between the two brokers is their source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from harness.broker import CACHE, ROOT, Broker
from harness.headrace import Headrace

NAME = "earlier"


def broker(revision: str) -> type[Broker]:
    place = tree(revision)
    source = place / "src"

    class Earlier(Headrace):
        name = NAME
        command = (sys.executable, str(_script(place)))
        environment = os.environ | {"PYTHONPATH": str(source)}

    return Earlier


def tree(revision: str) -> Path:
    """The checkout of that commit, with its compiled modules; made on first use."""
    commit = _git("rev-parse", "--verify", f"{revision}^{{commit}}").stdout.decode().strip()
    place = CACHE / "trees" / commit
    if (place / ".complete").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(place)], input=_git("archive", commit).stdout, check=True)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src"], cwd=place, check=True)
    (place / ".complete").touch()
    return place


def _script(place: Path) -> Path:
    """What pip would have made of that commit's entry point, which need not be today's."""
    entry = re.search(r'^headrace = "([\w.]+):(\w+)"', (place / "pyproject.toml").read_text(), re.MULTILINE)
    assert entry is not None, f"{place} has no entry point"
    script = place / "headrace-command.py"
    script.write_text(f"import sys\nfrom {entry[1]} import {entry[2]}\nsys.exit({entry[2]}())\n")
    return script


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)
