"""The report: the rate, the survivors as diffs, and which of them are explained as equivalent."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from mutants.verdict import Verdict

EXPLAINED = Path(__file__).with_name("explained.txt")


def explained() -> dict[tuple[str, str, str], str]:
    """By file, removed lines and added lines: why no test can tell such a mutant from the original."""
    known = {}
    for block in EXPLAINED.read_text().split("\n\n"):
        path, *lines = [line for line in block.splitlines() if not line.startswith("#")] or [""]
        if not path:
            continue
        why = [line for line in lines if not line.startswith(("-", "+"))]
        known[path.strip(), *_exchanged(lines)] = " ".join(line.removeprefix("why:").strip() for line in why)
    return known


def key(verdict: Verdict) -> tuple[str, str, str]:
    """By which it is looked up among the explained ones."""
    return verdict.mutant.path, *_exchanged(verdict.diff.splitlines()[2:])


def _exchanged(diff: list[str]) -> tuple[str, str]:
    removed = " ".join(line[1:].strip() for line in diff if line.startswith("-"))
    added = " ".join(line[1:].strip() for line in diff if line.startswith("+"))
    return removed, added


def tell(seed: int, verdicts: list[Verdict], failing: dict[str, str], file: Path) -> float:
    """Prints the report, writes it to the file as JSON, and answers the rate."""
    counted = [verdict for verdict in verdicts if not verdict.explained]
    survivors = [verdict for verdict in counted if not verdict.killed_by]
    killed = len(counted) - len(survivors)
    rate = killed / len(counted) if counted else 1.0
    for verdict in survivors:
        print(f"\nsurvived:\n{verdict.diff}", end="")
    for name, said in failing.items():
        print(f"\nfails without a mutant, and was left out: {name}: {said}")
    print(
        f"\nseed {seed}: {killed} of {len(counted)} mutants killed, {rate:.0%}; "
        f"{len(verdicts) - len(counted)} explained"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "seed": seed,
        "rate": rate,
        "failing_without": failing,
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }
    file.write_text(json.dumps(report, indent=1))
    return rate
