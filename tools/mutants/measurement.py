"""Traced runs of all tests without a mutant: they find out which test executes which line.

Their notes are kept, and taken again as long as the sources and the tests of a folder are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutants.reach import Reach
from mutants.suites import Run
from mutants.tree import Tree


def measure(runs: Collection[Run], trees: Collection[Tree], folder: Path, cpu_s: int) -> Reach:
    root = next(iter(trees)).path
    folder = folder / f"reach-{_digest(sorted((root / 'src').rglob('*.py')))}"
    folder.mkdir(parents=True, exist_ok=True)
    free: SimpleQueue[Tree] = SimpleQueue()
    for tree in trees:
        free.put(tree)
    reach = Reach(name for run in runs for name in names_of(run))

    def trace(run: Run) -> Path:
        subject = run.name.replace("/", "-").replace(", ", "-")
        notes = folder / f"{subject}-{_digest(root / file for file in run.files)}.json"
        if not notes.exists():
            tree = free.get()
            # without -x: a test that fails anyway must not hide those behind it
            arguments = [argument for argument in run.without(()) if argument != "-x"]
            tree.run(["-m", "mutants.trace", str(notes), run.name, *arguments], cpu_s)
            free.put(tree)
        return notes

    with ThreadPoolExecutor(len(trees)) as pool:
        for run, notes in zip(runs, pool.map(trace, runs), strict=True):
            if notes.exists():
                reach.add(names_of(run), notes)
            else:
                print(f"not measured, and always asked: {run.name}", flush=True)
    return reach


def names_of(run: Run) -> tuple[str, ...]:
    return run.files or (run.name,)


def _digest(files: Iterable[Path]) -> str:
    seen = hashlib.sha256()
    for file in files:
        seen.update(file.name.encode() + b"\0" + file.read_bytes())
    return seen.hexdigest()[:12]
