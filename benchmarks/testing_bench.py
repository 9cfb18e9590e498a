"""T16: a broker in a test, from nothing to ready, and from one test to the next."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

from benchmarks.bench import Bench

TIMEOUT_S = 300


def run(bench: Bench) -> None:
    measures = {
        "start": bench.measure(
            "T16", "a fresh broker in a test, imports done", "ms", higher_is_better=False, limit=150
        ),
        "reset": bench.measure("T16", "reset between two tests", "ms", higher_is_better=False, limit=10),
        "beside": bench.measure("T16", "a fresh broker beside the test", "ms", higher_is_better=False),
    }
    kinds = bench.headraces()
    for repeat in range(bench.repeats):
        for kind, environment in kinds if repeat % 2 == 0 else reversed(kinds):
            command = [sys.executable, "-m", "benchmarks.testing_loads"]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S, env=environment
            )
            figures = {name: median(values) for name, values in json.loads(done.stdout).items()}
            for name, measure in measures.items():
                measure.add(kind, figures[name])
            told = f"start {figures['start']:.1f} ms, reset {figures['reset']:.1f} ms"
            bench.say(f"T16  {kind:8} {repeat + 1}/{bench.repeats}  {told}")
