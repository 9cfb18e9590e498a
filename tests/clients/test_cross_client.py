"""What one client writes, every other reads as the same bytes; each codec has its own framing per client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clients.every_client import READERS, Write, aiokafka_writes, confluent_writes, kafka_python_writes
from clients.samples import CODECS, SAMPLES


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(confluent_writes, id="confluent-kafka"),
        pytest.param(aiokafka_writes, id="aiokafka"),
        pytest.param(kafka_python_writes, id="kafka-python"),
    ],
)
def test_all_read_what_one_writes(
    bootstrap: str, new_topic: Callable[..., str], write: Write, codec: str
) -> None:
    topic = new_topic()
    write(bootstrap, topic, codec)
    for reader, read in READERS.items():
        assert read(bootstrap, topic, len(SAMPLES)) == list(SAMPLES), reader


def test_codecs_mix_in_one_partition(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    for write in (confluent_writes, aiokafka_writes, kafka_python_writes):
        for codec in CODECS:
            write(bootstrap, topic, codec)
    rounds = 3 * len(CODECS)
    expected = [
        sample._replace(offset=sample.offset + turn * len(SAMPLES))
        for turn in range(rounds)
        for sample in SAMPLES
    ]
    for reader, read in READERS.items():
        assert read(bootstrap, topic, len(expected)) == expected, reader
