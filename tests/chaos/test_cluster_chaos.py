"""Some faults in a cluster of three processes; `python -m chaos.cluster` plays all of them, and longer."""

from __future__ import annotations

from pathlib import Path

from chaos.cluster import run

# A node that is silent for three seconds is taken for dead, so that a short silence is enough.
QUICK = {"broker.session.timeout.ms": "3000", "replica.lag.time.max.ms": "3000"}


def test_a_cluster_survives_kills_pauses_and_cuts(tmp_path: Path) -> None:
    faults = ("kill-leader", "pause-controller", "isolate-leader")
    run(tmp_path, faults, 0, print, settings=QUICK, pause_s=4, cut_s=4)
