"""The same key lands in the same partition, whichever client wrote it: our hash beside librdkafka's own."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import confluent_kafka

from headrace.client.producer._accumulator import partition_for_key


def librdkafka() -> ctypes.CDLL:
    """The library inside confluent-kafka's wheel."""
    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = [path for path in beside.iterdir() if path.name.startswith("librdkafka-")]
    library = ctypes.CDLL(str(path))
    library.rd_kafka_msg_partitioner_murmur2_random.restype = ctypes.c_int32
    return library


def test_keys_go_where_murmur2_random_sends_them() -> None:
    theirs = librdkafka().rd_kafka_msg_partitioner_murmur2_random
    rng = random.Random(5)
    for number in range(20_000):
        key = rng.randbytes(number % 70 + 1)
        partitions = rng.randrange(1, 200)
        chosen = theirs(None, key, ctypes.c_size_t(len(key)), ctypes.c_int32(partitions), None, None)
        assert partition_for_key(key, partitions) == chosen, key
