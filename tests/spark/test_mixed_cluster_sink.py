"""The sink of `format("headrace")` without a session: tasks write, and the commit decides what counts."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from headrace.client.producer.sink_attempt import AttemptId
from headrace.spark.rows import row_layout
from headrace.spark.sink import StreamWriter, TaskResult, _write_rows
from headrace.spark.sink_options import sink_options
from headrace.testing import Broker

pytestmark = pytest.mark.brief

SCHEMA = StructType([StructField("value", StringType())])


def write_task(servers: str, task: int, value: str, **given: str) -> TaskResult:
    attempt_id = AttemptId("app", "query", "run-1", 0, task, task)
    options = sink_options(options_for(servers, **given), is_stream=True, overwrite=False)
    batch = pa.record_batch({"value": [value]})
    return _write_rows(options, row_layout(SCHEMA, "copies"), attempt_id, iter([batch]))


def options_for(servers: str, **given: str) -> Mapping[str, str]:
    return {"kafka.bootstrap.servers": servers, "topic": "copies"} | given


def test_rows_count_though_other_tasks_met_brokers_without_sinks(
    headrace_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """While brokers are replaced by newer ones, some know sinks and others do not yet."""
    headrace_broker.create_topic("copies")
    servers = headrace_broker.bootstrap_servers
    once = write_task(servers, 0, "once")
    at_least_once = write_task(servers, 1, "at least once", deliveryGuarantee="at-least-once")
    options = sink_options(options_for(servers), is_stream=True, overwrite=False)
    StreamWriter(options, SCHEMA).commit([once, at_least_once], 0)
    headrace_broker.assert_consumed("copies", ["once", "at least once"])
    assert "written at least once" in caplog.text
