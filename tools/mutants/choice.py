"""The choice of mutants by a seed: files weighted by their lines of code, then any line, then any change."""

from __future__ import annotations

import ast
import random
from pathlib import Path

from mutants.changes import Mutant, Sites

PACKAGES = ("storage", "node", "machines")


def candidates(root: Path) -> dict[str, tuple[int, list[Mutant]]]:
    """Of each file: its lines of code, and what can be changed in it."""
    found = {}
    for package in PACKAGES:
        for file in sorted((root / "src" / "headrace" / package).rglob("*.py")):
            if file.name == "__init__.py" or file.name.endswith("_keys.py"):
                continue
            source = file.read_text()
            path = file.relative_to(root).as_posix()
            lines = sum(
                1 for line in source.splitlines() if line.strip() and not line.strip().startswith("#")
            )
            mutants = Sites(path, source).found
            if mutants:
                found[path] = (lines, mutants)
    return found


def draw(count: int, rng: random.Random, root: Path) -> list[Mutant]:
    """Files by their size, then any line that can be changed, then any change of it; none twice."""
    files = candidates(root)
    names = sorted(files)
    weights = [files[name][0] for name in names]
    drawn: dict[Mutant, None] = {}
    while len(drawn) < count:
        (name,) = rng.choices(names, weights)
        mutants = files[name][1]
        line = rng.choice(sorted({mutant.line for mutant in mutants}))
        mutant = rng.choice([one for one in mutants if one.line == line])
        source = (root / name).read_text()
        try:
            ast.parse(mutant.applied(source))
        except SyntaxError:
            continue
        drawn[mutant] = None
    return list(drawn)
