"""Requests full of rubbish against a running broker: each is answered or its connection closed, and no more.

Where fuzz_frames stops at decoding, these go through the handlers: most point at a topic that exists, carry
extreme numbers and long or strange names, and batches with a right checksum and a wrong header; half of them
are mutated on top. The broker must live and report no mistake of its own. `make test` sends a bounded number
of them; for longer:

    python tests/fuzz/fuzz_broker.py --cases 20000 --seed 7
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.hostile_batches import Batch, record
from chaos.peer import Peer, encoded, frame
from harness.headrace import Headrace
from harness.messages import sample
from harness.mutated_frames import mutated
from headrace.node.routes import SERVED
from headrace.protocol import framing
from headrace.protocol.api import APIS, request_codec
from headrace.protocol.messages.fetch import FetchRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.notation import Primitive, Struct

# A request to a process takes ten times as long as a decoding.
CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "5000")) // 5

TOPIC = "target"
NAMES = (
    *(TOPIC,) * 6,
    *("", "..", "a.b", "other", "\0", "x" * 249, "y" * 32_000, "é" * 249, "é" * 16_000),
    *("1", "9" * 3_000, "retention.ms", "cleanup.policy", "segment.bytes", "max.connections.per.ip"),
)
SIGNED = "bhiq"
WAIT_MS_MAX = 5


def spiced(message: Any, version: int, rng: random.Random) -> None:
    """Some of its values become ones that handlers have to think about."""
    for field in message.__fields__:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    spiced(item, version, rng)
        elif isinstance(value, Struct):
            spiced(value, version, rng)
        elif field.name == "records":
            message.records = batch_of(rng)
        elif isinstance(value, str) and rng.random() < 0.6:
            setattr(message, field.name, rng.choice(NAMES))
        elif type(value) is int and rng.random() < 0.5:
            setattr(message, field.name, number_for(field.kind, rng))


def number_for(kind: Any, rng: random.Random) -> int:
    extremes: tuple[int, ...] = ()
    if isinstance(kind, Primitive) and kind.code in SIGNED:
        most = 1 << (8 * kind.width - 1)
        extremes = (most - 1, -most)
    return rng.choice((0, 0, 1, -1, 2, 5, *extremes))


def batch_of(rng: random.Random) -> bytes:
    """One record, a right checksum, and a header that is right but for a field or two."""
    batch = Batch(record(), attributes=rng.choice((0, 0, 0, 1, 2, 3, 4, 8, 0x10, 0x20, 0x40, 7)))
    for _ in range(rng.randrange(3)):
        name, bits = rng.choice(
            (
                *(("count", 31), ("last_offset_delta", 31), ("length", 31), ("base_offset", 63)),
                *(("timestamp", 63), ("producer_id", 63), ("producer_epoch", 15), ("base_sequence", 31)),
            )
        )
        setattr(batch, name, rng.choice((0, 1, -1, 2, (1 << bits) - 1, -(1 << bits))))
    if batch.count < 0 and batch.last_offset_delta is None:
        batch.last_offset_delta = 0
    return batch.encoded() * rng.choice((1, 1, 1, 2))


def frame_of(rng: random.Random) -> bytes:
    key = rng.choice(sorted(SERVED))
    version = rng.randint(max(SERVED[key][0], APIS[key].first), SERVED[key][1])
    codec = request_codec(key, version)
    message = sample(codec.message, version, rng)
    if rng.random() < 0.8:
        spiced(message, version, rng)
    if isinstance(message, FetchRequest):
        message.max_wait_ms = min(message.max_wait_ms, WAIT_MS_MAX)
    body = codec.encode(message)
    data = (framing.encode_request_header(key, version, 7, "fuzz", len(body)) + body)[4:]
    return mutated(data, rng) if rng.random() < 0.5 else data


def almost_as_usual(peer: Peer, rng: random.Random) -> bytes:
    """A produce request like the two before it, by which the broker learned a short cut, and not quite."""
    version = rng.randint(3, 12)
    usual = encoded(produce_request(Batch(record()).encoded()), version)
    peer.send(usual * 2)
    for _ in range(2):
        assert peer.decoded(ProduceRequest.KEY, version) is not None
    if rng.random() < 0.5:
        return mutated(usual[4:], rng)
    return encoded(produce_request(batch_of(rng)), version)[4:]


def produce_request(records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def run(broker: Headrace, seed: int, cases: int) -> None:
    rng = random.Random(seed)
    with Peer(broker.port) as peer:
        peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 4)
    for case in range(cases):
        data = frame_of(rng)
        with Peer(broker.port) as peer:
            if rng.random() < 0.3:
                data = almost_as_usual(peer, rng)
            peer.send(frame(data))
            peer.shut_down()  # who mutated a length must not wait for the rest, nor for a long poll
            peer.answer()
        assert broker.is_running, f"seed {seed}, case {case}: {data.hex()}"
        if case % 100 == 99 or case == cases - 1:
            mistakes = [line for line in broker.output().splitlines() if "internal_error" in line]
            assert not mistakes, f"seed {seed}, at most 100 before case {case}: {mistakes[0]}"


def test_requests_of_rubbish(tmp_path: Path) -> None:
    with Headrace(tmp_path) as broker:
        run(broker, seed=1, cases=CASES)
        with Peer(broker.port) as peer:
            assert peer.ask(MetadataRequest(topics=[]), 4).brokers


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", type=int, default=20_000)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory, Headrace(Path(directory)) as broker:
        run(broker, given.seed, given.cases)
