"""Others that write to the same sink: tasks that nobody waits for, copies that Spark starts of slow ones, and
runs long after the last one. Whatever they do, each record counts once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace
from harness.committed import committed_texts
from harness.headrace import Headrace
from harness.spark_cluster import environment, spark_cluster
from harness.spark_queries import await_end
from harness.wait import eventually, run_to_end
from headrace.client.admin.transactions import Sink
from headrace.client.errors import KafkaError
from headrace.client.producer.sink_attempt import AttemptId, State
from headrace.client.threads.producer import SinkAttempt

pytestmark = pytest.mark.parametrize("broker", [Headrace], indirect=True, scope="session", ids=["headrace"])

QUERY, RUN = "a query", "its run"


def table(*texts: str) -> pa.Table:
    return pa.table({"value": list(texts)})


@pytest.fixture
def sink(admin: headrace.Admin, new_topic: Callable[..., str]) -> tuple[str, str, Callable[[], Sink]]:
    """A topic, a sink that is named after it, and how far it is."""
    topic = new_topic()
    return (
        topic,
        f"sink of {topic}",
        lambda: next(one for one in admin.list_sinks() if one.app_id == f"sink of {topic}"),
    )


# --- tasks -----------------------------------------------------------------------------------------------


def test_a_zombie_that_writes_on_does_not_count(
    servers: str, admin: headrace.Admin, sink: tuple[str, str, Callable[[], Sink]]
) -> None:
    """An executor was given up for dead, its task was tried elsewhere and the batch committed; it lives."""
    topic, app_id, told = sink
    with SinkAttempt(servers, AttemptId(app_id, QUERY, RUN, 0, task=0, attempt=0)) as zombie:
        assert zombie.join() is State.WRITING
        zombie.send_arrow(topic, table("of the zombie"))
        zombie.finish()
        with SinkAttempt(servers, AttemptId(app_id, QUERY, RUN, 0, task=0, attempt=1)) as other:
            assert other.join() is State.WRITING
            other.send_arrow(topic, table("of the other"))
            producer = other.finish()
        admin.commit_sink(app_id, QUERY, RUN, 0, [producer])
        zombie.send_arrow(topic, table("of the zombie, later"))
        with pytest.raises(KafkaError):
            zombie.finish()
    with SinkAttempt(servers, AttemptId(app_id, QUERY, RUN, 0, task=0, attempt=2)) as late:
        assert late.join() is State.COMMITTED
    assert (told().committed_batch_id, told().open_attempts) == (0, 0)
    eventually(lambda: committed_texts(servers, topic), ["of the other"])


def test_a_batch_that_nobody_was_heard_of_is_not_committed(
    servers: str, admin: headrace.Admin, sink: tuple[str, str, Callable[[], Sink]]
) -> None:
    """The driver was asleep for longer than the timeout. Nothing counts, and the batch is written again."""
    topic, app_id, told = sink
    attempt_id = AttemptId(app_id, QUERY, RUN, 0, task=0, attempt=0)
    with SinkAttempt(servers, attempt_id, transaction_timeout_ms=1_000) as attempt:
        attempt.join()
        attempt.send_arrow(topic, table("too late"))
        producer = attempt.finish()
    eventually(lambda: told().open_attempts, 0)
    with pytest.raises(KafkaError, match="not open any more; nothing was committed"):
        admin.commit_sink(app_id, QUERY, RUN, 0, [producer])
    with SinkAttempt(servers, attempt_id._replace(run_id="the next run")) as attempt:
        assert attempt.join() is State.WRITING
        attempt.send_arrow(topic, table("in time"))
        producer = attempt.finish()
    admin.commit_sink(app_id, QUERY, "the next run", 0, [producer])
    eventually(lambda: committed_texts(servers, topic), ["in time"])


SPECULATING = '''
"""The first copy of a task waits for the second, which Spark starts because the first is slow."""

import time
from pathlib import Path

mark = Path("{directory}") / "speculated"


def hesitate(batches):
    from pyspark import TaskContext

    context = TaskContext.get()
    yield from batches
    if context.partitionId() == 1:
        if context.attemptNumber() > 0:
            mark.touch()
        while not mark.exists():
            time.sleep(0.05)


rows = spark.range(0, 40, 1, 4).selectExpr("cast(id as string) as value")
rows = rows.mapInArrow(hesitate, rows.schema)
rows.write.format("headrace").option("kafka.bootstrap.servers", "{servers}").mode("append").save("{topic}")
'''


def test_a_speculative_copy_and_its_original_count_once(
    servers: str, new_topic: Callable[..., str], admin: headrace.Admin, tmp_path: Path
) -> None:
    topic, script = new_topic(2), tmp_path / "job.py"
    script.write_text(SPECULATING.format(directory=tmp_path, servers=servers, topic=topic))
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.ui.enabled": "false",
    }
    settings = [part for name, value in speculation.items() for part in ("-c", f"{name}={value}")]
    command = [str(Path(sys.executable).with_name("headrace")), "spark", str(script), *settings]
    # no copy is started on the host of the original
    with spark_cluster(tmp_path / "cluster", 2, hosts=["127.0.0.1", "127.0.0.2"]) as master:
        done = run_to_end([*command, "--master", master], env=environment())
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "speculated").exists()
    assert committed_texts(servers, topic) == sorted(map(str, range(40)))
    assert [one for one in admin.list_sinks() if one.open_attempts] == []


# --- time ------------------------------------------------------------------------------------------------


@contextmanager
def forgetful_broker(directory: Path) -> Iterator[Headrace]:
    """Forgets transactional ids at once."""
    settings = {
        "transactional.id.expiration.ms": "100",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
    }
    with Headrace(directory, settings) as broker:
        yield broker


def test_a_ledger_does_not_expire(spark: SparkSession, tmp_path: Path, broker: Headrace) -> None:
    """Transactional ids do; a query that comes back much later still writes nothing twice."""
    with forgetful_broker(tmp_path / "broker") as forgetful, headrace.Admin(forgetful.bootstrap) as admin:
        servers = forgetful.bootstrap
        for topic in ("in", "out"):
            admin.create_topic(topic, partitions=1)
        with headrace.Producer(servers, transactional_id="plain") as producer, producer.transaction():
            for number in range(5):
                producer.send("in", str(number))

        def run() -> None:
            rows = spark.readStream.format("headrace").options(
                **{"kafka.bootstrap.servers": servers, "startingOffsets": "earliest"}
            )
            query = (
                rows.load("in")
                .selectExpr("cast(value as string) as value")
                .writeStream.format("headrace")
                .options(**{"kafka.bootstrap.servers": servers, "topic": "out"})
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            await_end(query)

        run()
        eventually(lambda: [one.transactional_id for one in admin.list_transactions()], [])
        forgetful.kill()
        forgetful.start()
        for name in ("0", ".0.crc"):  # the driver died before it wrote down that the batch was done
            (tmp_path / "checkpoint" / "commits" / name).unlink()
        run()
        assert committed_texts(servers, "out") == [str(number) for number in range(5)]
        (ledger,) = admin.list_sinks()
        assert (ledger.committed_batch_id, ledger.open_attempts) == (0, 0)
