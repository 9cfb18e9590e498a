"""One Spark for all tests, and the brokers that each of them runs against: Headrace and Apache Kafka."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import headrace
import headrace.spark
from harness.broker import Broker
from harness.headrace import Headrace
from harness.registry_broker import RegistryBroker
from harness.spark_queries import await_end
from harness.tokens import IdentityProvider
from harness.wait import run_to_end
from headrace.spark import worker_python
from spark.rival import KAFKA
from spark.secured import Secured

FORMAT = "headrace"
WORKER_MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
# One partition each for the coordinators: a Kafka that starts makes fifty of them. Logs are cleaned at once,
# and nothing is deleted unless a topic asks for it: records of these tests are of 1970.
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "100",
}
_names = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Spark waits ten seconds for a worker, which in a new environment reads its modules from disk first.
    run_to_end([worker_python.command(), "-c", f"import pyspark_headrace, {WORKER_MODULE}"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the JVM's start: sockets that pyspark leaves to the collector
        session = headrace.spark.session(
            "tests",
            master="local[2, 2]",  # tasks are tried twice
            config={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": 2},
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session", params=[pytest.param(Headrace, id=Headrace.name), KAFKA])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with request.param(tmp_path_factory.mktemp(request.param.name), SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def servers(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def admin(servers: str) -> Iterator[headrace.Admin]:
    with headrace.Admin(servers) as admin:
        yield admin


@pytest.fixture(scope="session")
def producer(servers: str) -> Iterator[headrace.Producer]:
    with headrace.Producer(servers) as producer:
        yield producer


@pytest.fixture
def new_topic(admin: headrace.Admin) -> Callable[..., str]:
    """Makes a topic with a name of its own."""

    def make(partitions: int = 1, *, prefix: str = "topic", config: Mapping[str, str] | None = None) -> str:
        name = f"{prefix}-{next(_names)}"
        admin.create_topic(name, partitions=partitions, configs=config)
        return name

    return make


Fill = Callable[..., None]


@pytest.fixture
def fill(producer: headrace.Producer) -> Fill:
    """Writes so many records to each of some partitions: key, value and timestamp tell the offset."""

    def write(
        topic: str,
        count: int,
        partitions: Iterable[int] = (0,),
        *,
        first: int = 0,
        each: int = 1000,
        **more: Any,
    ) -> None:
        for partition in partitions:
            for number in range(first, first + count):
                producer.send(
                    topic,
                    b"value-%d" % number,
                    b"key-%d" % number,
                    partition=partition,
                    timestamp_ms=1_000 * (number + 1),
                    **more,
                )
                if number % each == each - 1:
                    producer.flush()  # a batch ends
        producer.flush()

    return write


@pytest.fixture
def read(spark: SparkSession, servers: str) -> Callable[..., DataFrame]:
    """A batch query; options by name, with `_` for the dots of Kafka's."""

    def load(topic: str | None = None, *, schema: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format(FORMAT).option("kafka.bootstrap.servers", servers)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load(topic) if topic is not None else reader.load()

    return load


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., tuple[list[tuple[int, int]], list[int]]]:
    """Runs a stream with AvailableNow into a table; (partition, offset) of all rows so far, and the size of
    each micro-batch. Called again it goes on from its checkpoint.
    """

    def go(frame: DataFrame, name: str = "run") -> tuple[list[tuple[int, int]], list[int]]:
        query = (
            frame.select("partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / name))
            .option("checkpointLocation", str(tmp_path / f"{name}.checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        await_end(query)
        rows = spark.read.schema("partition int, offset bigint").parquet(str(tmp_path / name)).collect()
        sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        return sorted((row.partition, row.offset) for row in rows), sizes

    return go


@pytest.fixture
def going_on(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[DataFrame], StreamingQuery]]:
    """Starts a stream that runs until the test ends; its rows are in the table of its name."""
    queries: list[StreamingQuery] = []

    def start(frame: DataFrame) -> StreamingQuery:
        name = f"stream_{next(_names)}"
        query = (
            frame.writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(tmp_path / name))
            .start()
        )
        queries.append(query)
        return query

    yield start
    for query in queries:
        failed = query.exception()
        query.stop()
        assert failed is None, failed


@pytest.fixture
def stream(spark: SparkSession, servers: str) -> Callable[..., DataFrame]:
    def load(topic: str | None = None, **options: Any) -> DataFrame:
        reader = spark.readStream.format(FORMAT).option("kafka.bootstrap.servers", servers)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        return reader.load(topic) if topic is not None else reader.load()

    return load


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that lets nobody in without a login, and nothing be done without a right."""
    with IdentityProvider() as issuer:
        made = Secured(tmp_path_factory.mktemp("secured"), issuer)
        made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="session")
def registry_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryBroker]:
    """A broker of Headrace with its registry."""
    settings = {**SETTINGS, "headrace.metrics.port": "0"}
    with Headrace(tmp_path_factory.mktemp("registry"), settings) as broker:
        yield RegistryBroker(broker)


@pytest.fixture
def orders(registry_broker: RegistryBroker) -> str:
    """A topic there."""
    name = f"orders-{next(_names)}"
    with headrace.Admin(registry_broker.servers) as admin:
        admin.create_topic(name, partitions=1)
    return name
