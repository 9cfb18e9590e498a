"""Passwords and keys that are planted in the options of queries, and looked for in all that Spark shows of
them: plans, progress, logs of driver and workers, errors, the event log, the pages and JSON of its server.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from harness.tokens import IdentityProvider
from harness.wait import run_to_end
from headrace.client.admin.acls import AclOperation, AclResource
from headrace.schemas import Registry, json_serializer
from spark.planted_job import SINK, SOURCE, TARGET
from spark.secured import JOB, PLAIN, Secured, spark_options

HERE = Path(__file__).resolve()
PASSWORD, WRONG, OF_KEY, OF_CLIENT = "planted-jobs", "planted-wrong", "planted-keys", "planted-clients"
# What the job shows, each of which has to be there.
SHOWN = [
    *("batch", "progress", "status", "failed read", "failed write", "wrong option", "failed registry"),
    *("page SQL/", "document sql", "document environment", "page of execution", "event log", "checkpoint"),
]
UNREACHABLE = {
    "kafka.bootstrap.servers": "127.0.0.1:1",  # nobody is there
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": PASSWORD,
    "kafka.ssl.key.password": OF_KEY,
    "kafka.headrace.unreachable.timeout.ms": "1000",
}
JAAS = f'{PLAIN} required username="alice" password="{PASSWORD}";'


def forms(secret: str) -> list[str]:
    """How it could be written: as it is, in hexadecimal digits, in base64 at each of three positions."""
    encoded = [base64.b64encode(b"\0" * shift + secret.encode()).decode() for shift in range(3)]
    return [secret, secret.encode().hex(), *(text[4:-4] for text in encoded)]


def found(text: str, *more: str) -> list[str]:
    """The lines that have one, and how many of them there are."""
    wanted = [form for secret in (PASSWORD, WRONG, OF_KEY, OF_CLIENT, *more) for form in forms(secret)]
    return [line[:300] for line in text.splitlines() if any(form in line for form in wanted)]


# --- in the session of all tests ---------------------------------------------------------------------------


@pytest.mark.brief
@pytest.mark.parametrize("more", [{}, {"kafka.sasl.jaas.config": JAAS}], ids=["password", "jaas"])
def test_plans_and_errors_do_not_have_it(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], more: dict[str, str]
) -> None:
    frame = spark.read.format("headrace").options(**UNREACHABLE, **more).option("subscribe", "t").load()
    frame.explain(mode="extended")
    frame.explain(mode="cost")
    java: Any = frame._jdf
    shown = capfd.readouterr().out
    assert "Plan" in shown
    texts = [shown, repr(frame), java.queryExecution().toString()]
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1") as raised:
        frame.filter("offset > 1").collect()
    texts += ["".join(traceback.format_exception(raised.value)), str(raised.value), *capfd.readouterr()]
    assert found("\n".join(texts)) == []


@pytest.mark.brief
def test_nor_do_those_of_a_sink(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    rows = spark.createDataFrame([(b"v",)], "value binary")
    options = {**UNREACHABLE, "kafka.max.block.ms": "1000", "topic": "t"}
    writer = rows.write.format("headrace").options(**options)
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1") as raised:
        writer.mode("append").save()
    texts = ["".join(traceback.format_exception(raised.value)), str(raised.value), *capfd.readouterr()]
    assert found("\n".join(texts)) == []


# --- a session of its own, with its server and its logs ----------------------------------------------------


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Secured]:
    """A broker whose passwords are the planted ones."""
    with IdentityProvider() as issuer:
        issuer.secret = OF_CLIENT
        made = Secured(tmp_path / "planted", issuer, password=PASSWORD)
        made.start()
        try:
            yield made
        finally:
            made.stop()


def login(secured: Secured, password: str) -> dict[str, str]:
    """With every secret that an option can have: a password, an encrypted key as text and its password, and
    the password of the registry.
    """
    key = secured.certificate.encrypted_key(OF_KEY).read_text()
    return spark_options(
        secured.login("SASLTLS", "SCRAM-SHA-512", password=password)
        | {
            "ssl.keystore.certificate.chain": secured.certificate.certificate.read_text(),
            "ssl.keystore.key": key,
            "ssl.key.password": OF_KEY,
        }
    ) | {
        "schema.registry.url": secured.registry_url("https"),
        "schema.registry.ssl.ca.location": str(secured.authority.certificate),
        "schema.registry.user": JOB,
        "schema.registry.password": password,
        "valueFormat": "json",
    }


def test_spark_shows_none_of_them(planted: Secured, tmp_path: Path) -> None:
    for topic in (SOURCE, TARGET):
        planted.admin.create_topic(topic, partitions=1)
    read, write = AclOperation.READ, AclOperation.WRITE
    planted.allow(
        *((operation, AclResource.TOPIC, topic) for operation in (read, write) for topic in (SOURCE, TARGET)),
        *((write, AclResource.TRANSACTIONAL_ID, name) for name in (SINK, f"{SINK}-stream")),
    )
    works, fails = login(planted, PASSWORD), login(planted, WRONG)
    registry = Registry(
        works["schema.registry.url"],
        user=JOB,
        password=PASSWORD,
        ssl_ca_location=works["schema.registry.ssl.ca.location"],
    )
    schema = json.dumps({"type": "object", "properties": {"number": {"type": "integer"}}})
    with headrace.Producer(
        planted.login("SASL", "PLAIN", "admin", "admin's"),
        value_serializer=json_serializer(registry, schema, topic=SOURCE),
    ) as producer:
        for number in range(3):
            producer.send(SOURCE, {"number": number})
    other = spark_options(planted.login("SASL", "OAUTHBEARER"))
    other["kafka.sasl.oauthbearer.client.secret"] = OF_CLIENT
    given, place = tmp_path / "options.json", tmp_path / "place"
    given.write_text(json.dumps({"works": works, "other": other, "fails": fails}))
    place.mkdir()
    done = run_to_end(
        [sys.executable, str(HERE.with_name("planted_job.py")), str(given), str(place)],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-2000:]
    for what in SHOWN:
        assert f"=== {what}" in done.stdout, what
    assert "\nINFO " in done.stderr
    line_of_key = works["kafka.ssl.keystore.key"].splitlines()[3]
    assert found(done.stdout + done.stderr, line_of_key) == []
    log = planted.broker.output()
    audit = (planted.broker.data / "audit.log").read_text()
    assert "login_refused" in log
    assert found(log + audit, line_of_key) == []


def test_the_search_finds_what_is_there() -> None:
    for form in forms(OF_KEY):
        assert found(f"a line\nwith {form} in it\n") == [f"with {form} in it"]
