"""Kafka's DumpLogSegments judges the files a broker wrote: records, indexes, snapshots, metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaProducer

from harness.broker import Broker
from harness.wait import WAIT_S
from interop.java_tools import DUMP_LOG_COMPLAINTS, JavaTools, Outcome

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC = "dumped"
PER_CODEC = 4000
VALUE_BYTES = 600
BASE_MS = 1_700_000_000_000


@pytest.fixture(scope="module", params=["stopped", "recovered"])
def written(request: pytest.FixtureRequest, new_broker: Callable[..., Broker]) -> Iterator[Path]:
    """A data directory with several segments of every codec, ended cleanly, or by kill -9 and recovered."""
    broker = new_broker().start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    config = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1000", "retention.ms": "-1"}
    created = admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)], operation_timeout=WAIT_S)
    created[TOPIC].result(WAIT_S)
    for turn, codec in enumerate(CODECS):
        compression = None if codec == "none" else codec
        with closing(
            KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=compression)
        ) as sender:
            for number in range(turn * PER_CODEC, (turn + 1) * PER_CODEC):
                value = b"%08d" % number + bytes(number * i % 251 for i in range(VALUE_BYTES - 8))
                sender.send(TOPIC, value, b"key", [("n", b"%d" % number)], 0, BASE_MS + number)
            sender.flush(WAIT_S)
    if request.param == "recovered":
        broker.kill()
        broker.start()
        judge = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "judge", "log_level": 2})
        ends = judge.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=WAIT_S)
        judge.close()
        assert ends == (0, len(CODECS) * PER_CODEC)
    broker.stop()
    yield broker.data
    broker.kill()


def files(data: Path, suffix: str) -> list[Path]:
    found = sorted((data / f"{TOPIC}-0").glob(f"*{suffix}"))
    assert found, f"no {suffix} files under {data}"
    return found


def dump(tools: JavaTools, paths: list[Path], *options: str) -> Outcome:
    outcome = tools("kafka-dump-log", "--files", ",".join(map(str, paths)), *options)
    assert outcome.code == 0, outcome
    for complaint in (*DUMP_LOG_COMPLAINTS, "Non-consecutive"):
        assert complaint not in outcome.out, outcome.out[outcome.out.index(complaint) :][:500]
    return outcome


def test_every_record_is_there_in_order(tools: JavaTools, written: Path) -> None:
    logs = files(written, ".log")
    assert len(logs) > 3, "the data should fill several segments"
    outcome = dump(tools, logs, "--deep-iteration", "--print-data-log")
    records = re.findall(r"offset: (\d+) CreateTime: (\d+) .*? payload: (\d{8})", outcome.out)
    expected = [(str(n), str(BASE_MS + n), f"{n:08}") for n in range(len(CODECS) * PER_CODEC)]
    assert records == expected
    codecs = [name.lower() for name in re.findall(r"compresscodec: (\w+)", outcome.out)]
    assert list(dict.fromkeys(codecs)) == list(CODECS)


def test_segments_begin_at_the_offsets_they_are_named_by(tools: JavaTools, written: Path) -> None:
    for log in files(written, ".log"):
        outcome = dump(tools, [log])
        assert f"Log starting offset: {int(log.stem)}\n" in outcome.out
        first = re.search(r"baseOffset: (\d+)", outcome.out)
        assert first is None or int(first[1]) == int(log.stem)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_are_sane_and_agree_with_the_log(tools: JavaTools, written: Path, suffix: str) -> None:
    indexes = files(written, suffix)
    sane = dump(tools, indexes, "--index-sanity-check")
    assert sane.out.count("passed sanity check.") == len(indexes)
    dump(tools, indexes, "--verify-index-only")
    entries = re.findall(r"^(?:offset|timestamp): (\d+)", dump(tools, indexes).out, re.MULTILINE)
    assert len(entries) > 100


def test_producer_snapshots_are_readable(tools: JavaTools, written: Path) -> None:
    """A segment roll takes a snapshot; the idempotent producer wrote the last ones."""
    outcome = dump(tools, files(written, ".snapshot"))
    assert re.search(
        r"producerId: \d+ producerEpoch: 0 coordinatorEpoch: -1 .*lastSequence: \d+", outcome.out
    )


def test_the_metadata_log_is_kafkas(tools: JavaTools, written: Path) -> None:
    logs = sorted((written / "__cluster_metadata-0").glob("*.log"))
    outcome = dump(tools, logs, "--cluster-metadata-decoder")
    kinds = set(re.findall(r'"type":"(\w+)"', outcome.out))
    assert {"FEATURE_LEVEL_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"} <= kinds, kinds
    assert f'"name":"{TOPIC}"' in outcome.out


def test_the_secret_beside_the_users_is_a_record_of_kafkas(
    tools: JavaTools, new_broker: Callable[..., Broker]
) -> None:
    """A credential of a user without a name, which no request can name, and nobody can log in with."""
    broker = new_broker().start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    added = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("ada", info, b"password")])
    added["ada"].result(WAIT_S)
    told = admin.describe_user_scram_credentials()
    assert isinstance(told, Future)
    assert set(told.result(WAIT_S)) == {"ada"}
    broker.stop()
    logs = sorted((broker.data / "__cluster_metadata-0").glob("*.log"))
    outcome = dump(tools, logs, "--cluster-metadata-decoder")
    users = re.findall(r'"USER_SCRAM_CREDENTIAL_RECORD","version":0,"data":\{"name":"(\w*)"', outcome.out)
    assert users == (["", "ada"] if broker.name == "headrace" else ["ada"])
