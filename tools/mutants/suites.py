"""The tests that run against a mutant, nearest first, in portions that each fit into one process.

First those of the files that import the changed module, then those of the same folder, then seeds of every
play of the simulator, then the other unit and property tests; of all of these only what executes the changed
line, and those that compute for long last. In the end, the files that import the module as a whole.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from mutants.changes import Mutant
from mutants.reach import Reach

PLAYS = ("logs", "coordinators", "clients", "cluster", "cluster_coordinators")
FILES_PER_RUN = 40  # of tests, so that no run takes too long by itself
TESTS_PER_RUN = 500
SLOW_S = 2.0  # of computing: so long a test comes after all others
PYTEST = ("-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--timeout=300")


@dataclass(frozen=True)
class Run:
    """Some tests that are asked about a mutant, or some seeds of the simulator."""

    name: str
    arguments: tuple[str, ...]
    files: tuple[str, ...] = ()  # of tests, or single tests of them

    def without(self, failing: Collection[str]) -> list[str]:
        """The arguments that leave out what fails anyway."""
        files = [
            file for file in self.files if file not in failing and file.partition("::")[0] not in failing
        ]
        inside = [test for test in sorted(failing) if test.partition("::")[0] in files]
        return [*self.arguments, *(argument for test in inside for argument in ("--deselect", test)), *files]

    @property
    def key(self) -> str:
        return f"{self.name}, {self.files[0]} to {self.files[-1]}" if self.files else self.name

    def is_left_out(self, failing: Collection[str]) -> bool:
        if self.key in failing:
            return True
        return bool(self.files) and self.without(failing) == list(self.arguments)


def tests_of(root: Path) -> list[Path]:
    """The test files of `make unit`, except those of the tools: these read the sources as texts, in which
    every change shows.
    """
    # unit tests come first: they are quicker, and what they say is easier to understand
    files = [
        file
        for folder in ("unit", "property")
        for file in sorted((root / "tests" / folder).rglob("test_*.py"))
    ]
    return [file.relative_to(root) for file in files if "tools" not in file.relative_to(root).parts]


def stages(mutant: Mutant, root: Path, tests: list[Path]) -> Iterator[tuple[str, list[str]]]:
    """Test files in the order in which they are likely to notice."""
    parts = Path(mutant.path).relative_to("src/headrace").with_suffix("").parts
    module = ".".join(("headrace", *parts))
    patterns = (
        re.compile(rf"(from|import) {re.escape(module)}\b"),
        re.compile(rf"from {re.escape(module.rpartition('.')[0])} import [^#]*\b{re.escape(parts[-1])}\b"),
    )
    near, folder, package, rest = [], [], [], []
    for file in tests:
        text = (root / file).read_text()
        name = file.as_posix()
        if any(pattern.search(text) for pattern in patterns) or parts[-1] in file.stem:
            near.append(name)
        elif all(part in file.parts for part in parts[:-1]):
            folder.append(name)
        elif parts[0] in file.parts:
            package.append(name)
        else:
            rest.append(name)
    broker = [name for name in rest if not re.search(r"/(client|cli|spark|sample|schemas)", name)]
    yield "tests of the module", near
    yield "tests of its folder", folder
    yield "tests of its package", package
    yield "other tests of the broker", broker
    yield "the rest of make unit", [name for name in rest if name not in broker]


def runs(mutant: Mutant, root: Path, tests: list[Path], seeds: int, reach: Reach) -> Iterator[Run]:
    """The simulator's turn comes early: some seconds of it notice more than minutes of distant tests."""
    reaching = reach.of(mutant, (root / mutant.path).read_text())
    of_file: dict[str, list[str]] = defaultdict(list)
    for test in sorted(reaching):
        of_file[test.partition("::")[0]].append(test)
    quick: list[tuple[str, list[str]]] = []
    slow: list[tuple[str, list[str]]] = []
    for name, files in stages(mutant, root, tests):
        found = [test for file in files for test in (of_file[file] if file not in reaching else [file])]
        quick.append((name, [test for test in found if reach.seconds[test] < SLOW_S]))
        slow.append((f"{name}, slow", [test for test in found if reach.seconds[test] >= SLOW_S]))
    near, folder, *distant = quick
    _, files_of_module = next(stages(mutant, root, tests))
    yield from _portions(*near)
    yield from _portions(*folder)
    for play in plays(seeds):
        if play.name in reaching:
            yield play
    for name, found in (*distant, *slow, ("all tests of the module", files_of_module)):
        yield from _portions(name, found)


def plays(seeds: int) -> Iterator[Run]:
    for play in PLAYS if seeds else ():
        arguments = ("-m", "headrace.simulator", "--seeds", f"1..{seeds}", "--play", play, "--jobs", "1")
        yield Run(f"simulator, {play}", arguments)


def everything(tests: list[Path], seeds: int) -> Iterator[Run]:
    """Every test once, a folder at a time, and every play."""
    for folder, files in groupby(tests, key=lambda file: file.parent.as_posix()):
        yield Run(folder, PYTEST, tuple(file.as_posix() for file in files))
    yield from plays(seeds)


def _portions(name: str, files: list[str]) -> Iterator[Run]:
    size = TESTS_PER_RUN if any("::" in file for file in files) else FILES_PER_RUN
    for start in range(0, len(files), size):
        yield Run(name, PYTEST, tuple(files[start : start + size]))
