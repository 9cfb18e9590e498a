"""Our own client through a bad network to a broker that is killed; `chaos.client_faults` is the long run."""

from __future__ import annotations

from pathlib import Path

from chaos.client_faults import Plan, play


def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path) -> None:
    play(tmp_path, Plan(records=2_500, kills=1), print)
