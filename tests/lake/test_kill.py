"""A copier under kill -9, at every point of a step.

Pass: the table is clean against the topic, a second run adds nothing, and the group is where the table is.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.broker import Broker
from lake.kill_job import POINTS
from lake.tables import Fill, Lake, all_rows

JOB = Path(__file__).with_name("kill_job.py")
RECORDS = 10


@pytest.mark.parametrize("point", POINTS)
def test_each_record_once_though_the_copier_is_killed(
    point: str, lake: Lake, topic: str, fill: Fill, broker: Broker
) -> None:
    fill(topic, RECORDS)
    command = [sys.executable, str(JOB), broker.bootstrap, topic, str(lake.path), lake.format, point, "2"]
    done = subprocess.run(command, check=False)
    assert done.returncode == -9
    has_committed = POINTS.index(point) >= POINTS.index("commit before its answer")
    assert [held.next for held in lake.ledger.values()] == [6, 6] if has_committed else [3, 3]
    told = {at.partition: each.offset for at, each in lake.admin.list_group_offsets(f"lake-{topic}").items()}
    assert all(told[partition] <= held.next for partition, held in lake.ledger.items())  # never too early
    report = lake.verify()  # what the kill left behind is whole already
    assert report.findings == []
    assert report.compared == (12 if has_committed else 6)
    copied = lake.copy()
    assert copied.rows == 2 * RECORDS - report.rows
    assert lake.rows() == all_rows(RECORDS)
    assert lake.verify().is_clean
    assert lake.copy().rows == 0
    committed = lake.admin.list_group_offsets(f"lake-{topic}")
    assert {at.partition: each.offset for at, each in committed.items()} == {0: RECORDS, 1: RECORDS}
