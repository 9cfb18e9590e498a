"""Tokens that expire while a query runs: those that can be renewed are, and a query whose login is over says
so.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import headrace
from harness.spark_queries import check_runs
from harness.wait import Patience
from headrace.cli.spark_errors import sentence_of
from headrace.client.admin.acls import AclOperation, AclResource
from spark.secured import SCRAM, Secured, spark_options

LIFETIME_S = 6.0
READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP, TRANSACTIONAL_ID = AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID


class Copy:
    """A stream from topic to topic that runs while records arrive."""

    def __init__(self, spark: SparkSession, secured: Secured, settings: dict[str, Any], place: Path) -> None:
        self.secured = secured
        self.source, self.target = f"{place.name}-in", f"{place.name}-out"
        for topic in (self.source, self.target):
            secured.admin.create_topic(topic, partitions=1)
        secured.allow(
            (READ, TOPIC, self.source),
            (WRITE, TOPIC, self.target),
            (READ, TOPIC, self.target),
            (READ, GROUP, self.source),
            (WRITE, TRANSACTIONAL_ID, self.source),
        )
        self.sent = 0
        # the driver gives up soon, so that the test need not wait for it
        options = spark_options(settings | {"default.api.timeout.ms": "5000"})
        stream = spark.readStream.format("headrace").options(**options, startingOffsets="earliest")
        self.query: StreamingQuery = (
            stream.options(**{"kafka.group.id": self.source, "kafkaConsumer.pollTimeoutMs": "5000"})
            .load(self.source)
            .select("value")
            .writeStream.format("headrace")
            .options(**options, topic=self.target, txnAppId=self.source, deliveryGuarantee="exactly-once")
            .option("checkpointLocation", str(place))
            .start()
        )

    def pass_on(self) -> None:
        """One more record goes through."""
        admin_settings = self.secured.login("SASL", "PLAIN", "admin", "admin's")
        with headrace.Producer(admin_settings) as producer:
            producer.send(self.source, b"%d" % self.sent).get()
        self.sent += 1
        settings = admin_settings | {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        patience = Patience(60.0)
        with headrace.Consumer(settings) as consumer:
            consumer.assign([headrace.TopicPartition(self.target, 0)])
            found: list[bytes | None] = []
            while len(found) < self.sent:
                check_runs(self.query)
                assert not patience.is_over, f"{len(found)} of {self.sent} came: {self.query.status}"
                found += [message.value for message in consumer.poll(1.0)]
        assert found == [b"%d" % number for number in range(self.sent)]

    def failure(self) -> str:
        """What the query says when it has ended, which it does by itself."""
        patience = Patience(60.0)
        while self.query.isActive:
            assert not patience.is_over, f"it still runs: {self.query.status}"
            time.sleep(0.2)
        error = self.query.exception()
        assert isinstance(error, StreamingQueryException)
        said = sentence_of(error)
        assert said is not None, str(error)
        return said


@pytest.fixture
def copy(spark: SparkSession, secured: Secured, tmp_path: Path) -> Iterator[Callable[..., Copy]]:
    made: list[Copy] = []

    def start(settings: dict[str, Any]) -> Copy:
        made.append(Copy(spark, secured, settings, tmp_path))
        return made[-1]

    secured.forbid_all()
    yield start
    for one in made:
        one.query.stop()


def test_tokens_of_an_identity_provider(secured: Secured, copy: Callable[..., Copy]) -> None:
    """Driver and tasks get new ones, until there are none."""
    secured.issuer.lifetime_s = LIFETIME_S
    try:
        running = copy(secured.login("SASL", "OAUTHBEARER"))
        until = time.monotonic() + 2.5 * LIFETIME_S
        while time.monotonic() < until:
            running.pass_on()
        secured.issuer.is_closed = True
        with headrace.Producer(secured.login("SASL", "PLAIN", "admin", "admin's")) as producer:
            producer.send(running.source, b"too late").get()
        said = running.failure()
        assert "/token answered 401" in said or "refused the token" in said
    finally:
        secured.issuer.lifetime_s, secured.issuer.is_closed = 300.0, False


def test_a_delegation_token_that_is_renewed_and_then_not(secured: Secured, copy: Callable[..., Copy]) -> None:
    """Its owner renews it while the query runs; the query never has the owner's password."""
    with headrace.Admin(secured.login("SASL", "SCRAM-SHA-256")) as owner:
        token = owner.create_token()
        owner.renew_token(token.hmac, int(LIFETIME_S * 1000))
        password = b64encode(token.hmac).decode()
        login = f'username="{token.token_id}" password="{password}" tokenauth="true"'
        settings = secured.login("SASLTLS", "SCRAM-SHA-512")
        del settings["sasl.username"], settings["sasl.password"]
        ends = Event()

        def renew() -> None:
            while not ends.wait(LIFETIME_S / 6):
                owner.renew_token(token.hmac, int(LIFETIME_S * 1000))

        with ThreadPoolExecutor(1) as beside:  # a micro-batch may take longer than a token counts
            renewing = beside.submit(renew)
            try:
                running = copy(settings | {"sasl.jaas.config": f"{SCRAM} required {login};"})
                until = time.monotonic() + 2.5 * LIFETIME_S
                while time.monotonic() < until:
                    running.pass_on()
            finally:
                ends.set()
            renewing.result()
        said = running.failure()
        assert "the broker refused user" in said
        assert password not in said
