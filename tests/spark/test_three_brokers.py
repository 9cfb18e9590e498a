"""A stream from three brokers and to them, which are killed with -9 in turn: each record arrives once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace
from harness.broker_killer import BrokerKiller
from harness.cluster import Cluster
from harness.committed import committed_texts
from harness.spark_queries import check_runs
from harness.wait import WAIT_S, Patience

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
SOURCE, TARGET = "source", "target"
PARTITIONS = 3
KILLS = 4  # each broker once, and one of them again
ROWS_PER_BATCH = 300


@pytest.mark.brief
@pytest.mark.timeout(1800)
def test_a_stream_copies_each_record_once_while_brokers_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Cluster("headrace", tmp_path / "cluster", SETTINGS) as cluster:
        servers = cluster.bootstrap
        with headrace.Admin(servers) as admin:
            for topic in (SOURCE, TARGET):
                admin.create_topic(topic, partitions=PARTITIONS)
        rows = (
            spark.readStream.format("headrace")
            .option("kafka.bootstrap.servers", servers)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
            .load(SOURCE)
        )
        query = (
            rows.selectExpr("CAST(value AS string) AS value")
            .writeStream.format("headrace")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", TARGET)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        killer = BrokerKiller(cluster)
        killer.start()
        sent: list[str] = []
        patience = Patience(4 * WAIT_S)
        with headrace.Producer(servers) as producer:
            while killer.kills < KILLS or len(query.recentProgress) < KILLS:
                assert killer.failure is None, killer.failure
                assert not patience.is_over, f"{killer.kills} kills, {query.lastProgress}"
                check_runs(query)
                for _ in range(ROWS_PER_BATCH // 10):
                    sent.append(f"{len(sent):06}")
                    producer.send(SOURCE, sent[-1])
                producer.flush(WAIT_S)
                query.awaitTermination(1)
        killer.stop()
        query.processAllAvailable()
        query.stop()
        assert committed_texts(servers, TARGET) == sent
