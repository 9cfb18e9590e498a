"""What reaches the client: `kafka.*` as it is, patience with brokers, and options that have nothing to do."""

from __future__ import annotations

import os
import signal

import pytest
from pyspark.errors import PySparkException

import headrace
from harness.certificates import Authority
from harness.headrace import Headrace
from harness.kafka import Kafka
from harness.secure_kafka import PASSWORD, USER, SecureKafka
from harness.spark_queries import await_end

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(read, new_topic, servers, codec):
    topic = new_topic()
    texts = [b"%d " % number * 50 for number in range(200)]
    with headrace.Producer(servers, compression_type=codec, linger_ms=1000) as producer:
        for text in texts:
            producer.send(topic, text)
    assert [bytes(row.value) for row in read(topic).orderBy("offset").collect()] == texts


def test_options_without_effect_are_taken(read, new_topic, fill):
    topic = new_topic()
    fill(topic, 2)
    taken = {
        "fetchOffset__numRetries": 5,
        "fetchOffset__retryIntervalMs": 20,
        "partition__metadata__cache__ttl__ms": 1000,
    }
    assert read(topic, **taken).count() == 2


def test_settings_of_the_client_are_taken(read, new_topic, fill):
    """Small fetches change nothing but how many there are."""
    topic = new_topic()
    fill(topic, 300, each=10)
    small = {"kafka__max__partition__fetch__bytes": 500, "kafka__client__id": "spark"}
    assert read(topic, **small).count() == 300
    with pytest.raises(PySparkException, match=r"max\.partition\.fetch\.bytes"):
        read(topic, kafka__max__partition__fetch__bytes="plenty").collect()


@pytest.mark.parametrize("kind", [Headrace, Kafka], ids=lambda kind: kind.name)
def test_a_task_waits_for_a_broker_but_not_for_ever(spark, tmp_path, kind):
    with kind(tmp_path) as broker:
        with headrace.Producer(broker.bootstrap) as producer, headrace.Admin(broker.bootstrap) as admin:
            admin.create_topic("silence", partitions=1)
            producer.send("silence", b"value")
        reader = spark.read.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
        planned = reader.option("kafkaConsumer.pollTimeoutMs", 1500).load("silence").select("offset").rdd
        assert planned.getNumPartitions() == 1
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            said = r"partition silence-0: nothing was fetched from offset 0 on for 1\.5 s"
            with pytest.raises(Exception, match=said):
                planned.collect()
        finally:
            os.kill(broker.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    """Kafka with TLS and passwords, and what a client must know of it."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with SecureKafka(tmp_path_factory.mktemp("secure"), authority) as kafka:
        yield {
            "kafka.bootstrap.servers": f"localhost:{kafka.ports['SASLTLS']}",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{JAAS} username="{USER}" password="{PASSWORD}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(authority.certificate),
        }


def test_security_is_that_of_the_client(spark, secure, tmp_path):
    """Batches and streams, out and in: as a user of Spark's own connector writes it down."""
    client = {name.removeprefix("kafka."): value for name, value in secure.items()}
    with headrace.Admin(client) as admin:
        admin.create_topic("secret", partitions=2)
        admin.create_topic("copy", partitions=1)
    numbers = spark.range(10).selectExpr("cast(id as string) as value")
    numbers.write.format("headrace").options(**secure, topic="secret").mode("append").save()
    assert spark.read.format("headrace").options(**secure).load("secret").count() == 10
    stream = spark.readStream.format("headrace").options(**secure, startingOffsets="earliest").load("secret")
    query = (
        stream.select("value")
        .writeStream.format("headrace")
        .options(**secure, topic="copy", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    await_end(query)
    assert spark.read.format("headrace").options(**secure).load("copy").count() == 10
    wrong = {**secure, "kafka.sasl.jaas.config": f'{JAAS} username="{USER}" password="guessed";'}
    with pytest.raises(PySparkException, match=f"the broker refused user {USER} with PLAIN"):
        spark.read.format("headrace").options(**wrong).load("secret").count()
