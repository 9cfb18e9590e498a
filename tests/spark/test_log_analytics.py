"""Log analytics: the table has every line once although the run is killed and the topic is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from harness.committed import committed
from harness.example_pipelines import ExamplePipeline
from harness.example_programs import SETTINGS
from harness.headrace import Headrace
from harness.wait import WAIT_S, eventually

LINES = 3_000
TABLES, TOPICS = ("logs", "errors_per_minute", "response_times", "causes"), ("logs_dead",)
QUICK_RETENTION = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}


@pytest.mark.timeout(0)  # each step has a patience of its own
def test_the_table_has_all_lines_after_a_kill_and_after_retention(tmp_path: Path) -> None:
    with Headrace(tmp_path / "broker", SETTINGS | QUICK_RETENTION) as broker:
        example = ExamplePipeline("log_analytics", broker.bootstrap, tmp_path, LINES // 6)
        example.run("services.py", "--lines", LINES)
        example.kill_pipeline(lambda: example.table_size("logs"), LINES // 4)
        assert example.table_size("logs") < LINES
        read = example.run_pipeline()

        eventually(lambda: len(committed(broker.bootstrap, "logs")), 0, WAIT_S)
        assert f"{LINES} lines: 0 are left in the topic" in example.run("check.py", "--lines", LINES)
        before = example.sizes(TABLES, TOPICS)
        assert example.run_pipeline() == read
        assert example.sizes(TABLES, TOPICS) == before

        table = DeltaTable(str(example.folder / "storage/headrace/tables/logs"))
        table.delete("service = 'service-07' AND level = 'ERROR'")
        assert "wrong: logs: " in example.fails("check.py", "--lines", LINES)
