"""What a well-behaved client notices of its neighbours: its p99 alone, and beside each kind of attack.

Beside it stands what a client of an idle echo server notices at the same time: what the machine itself does.
The bystander writes one record and reads it back, again and again, in a process of its own; each attacker is
another. `python -m benchmarks.bystander_bench attack NAME PORT` is such an attacker.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.bench import Bench, create_topic
from benchmarks.idle_loop import ECHO, IdleLoop
from benchmarks.report import Measure
from chaos.asking import PLAIN, ask_without_reading, fill, produce, produce_request
from chaos.bombs import BOMBS, MEGABYTE
from chaos.bystander import TOPIC as BYSTANDERS_TOPIC
from chaos.bystander import Bystander
from chaos.hostile_batches import REFUSED, Batch, many_headers, record
from chaos.hostile_frames import CLOSES
from chaos.peer import Peer, encoded
from harness.broker import Broker
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.records.compression import Codec, compress

SECONDS = 5.0  # beside each attacker: some 1,500 rounds if it does no harm
LIMIT_MS = 5.0  # the target
ECHO_RATIO = 1.5  # or so many times the p99 of an idle echo server
NOBODY = "nobody"
OPENED, WIDE, PACKED, CROWD = "opened", "wide", "packed", "crowd"
CROWD_PARTITIONS = 2_000
FRAME_BYTES = 80 * MEGABYTE

Attack = Callable[[int], Iterator[None]]  # of the broker's port; one step after the other


def malformed_frames(port: int) -> Iterator[None]:
    for data in itertools.cycle(CLOSES.values()):
        with Peer(port) as peer:
            peer.send(data)
            peer.answer()
        yield


def refused_batches(port: int) -> Iterator[None]:
    with Peer(port) as peer:
        for batch, _ in itertools.cycle(REFUSED.values()):
            produce(peer, PLAIN, batch)
            yield


def bombs(port: int) -> Iterator[None]:
    """Each codec's, back to back, to a topic that opens batches."""
    batches = [
        Batch(make(megabytes), attributes=codec).encoded() for codec, make, megabytes in BOMBS.values()
    ]
    fitting = [batch for batch in batches if len(batch) <= MEGABYTE]
    with Peer(port) as peer:
        for batch in itertools.cycle(fitting):
            produce(peer, OPENED, batch)
            yield


def million_headers(port: int) -> Iterator[None]:
    batch = Batch(compress(Codec.GZIP, record(headers=many_headers(10**6))), attributes=Codec.GZIP).encoded()
    with Peer(port) as peer:
        while True:
            produce(peer, OPENED, batch)
            yield


def refused_frames(port: int) -> Iterator[None]:
    """Far more than the topic takes, which is known when all of it is there."""
    request = encoded(produce_request(PLAIN, Batch(record(bytes(FRAME_BYTES))).encoded()), 9)
    with Peer(port) as peer:
        while True:
            peer.send(request)
            peer.answer()
            yield


def fresh_frames(port: int) -> Iterator[None]:
    """The same, each on a connection of its own."""
    request = encoded(produce_request(PLAIN, Batch(record(bytes(FRAME_BYTES))).encoded()), 9)
    while True:
        with Peer(port) as peer:
            peer.send(request)
            peer.answer()
        yield


def taken_frames(port: int) -> Iterator[None]:
    """Messages of 10 MB to a topic that takes them."""
    batch = Batch(record(bytes(10 * MEGABYTE))).encoded()
    with Peer(port) as peer:
        while True:
            produce(peer, WIDE, batch)
            yield


def idle_readers(port: int) -> Iterator[None]:
    """They ask for long answers and never read them."""
    with Peer(port) as peer:
        fill(peer, WIDE, 32 * MEGABYTE)
    peers = [Peer(port) for _ in range(30)]
    for peer in peers:
        ask_without_reading(peer, WIDE, 20)
    while True:
        peers.append(Peer(port))
        ask_without_reading(peers[-1], WIDE, 20)
        peers.pop(0).socket.close()
        yield


def idle_connections(port: int) -> Iterator[None]:
    peers = [Peer(port) for _ in range(1_000)]
    for peer in itertools.cycle(peers):
        peer.send(b"\0")  # a byte of a length that never comes
        yield


def many_names(port: int) -> Iterator[None]:
    """As many topics as one request may name."""
    asked = [MetadataRequestTopic(name=f"t{number}") for number in range(35_000)]
    request = encoded(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 4)
    with Peer(port) as peer:
        while True:
            peer.send(request)
            peer.answer()
            yield


def look_ups(port: int) -> Iterator[None]:
    """By time, into a batch that is 200 MB when it is opened."""
    codec, make, _ = BOMBS["zstd"]
    with Peer(port) as peer:
        batch = Batch(make(200), count=2, attributes=codec, timestamp=1_700_000_000_000).encoded()
        assert produce(peer, PACKED, batch) == 0
        asked = ListOffsetsPartition(partition_index=0, timestamp=1)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=PACKED, partitions=[asked])]
        )
        while True:
            peer.ask(request, 4)
            yield


def log_directories(port: int) -> Iterator[None]:
    with Peer(port) as peer:
        while True:
            peer.ask(DescribeLogDirsRequest(topics=None), 1)
            yield


def configs(port: int) -> Iterator[None]:
    asked = DescribeConfigsResource(resource_type=2, resource_name=PLAIN, configuration_keys=None)
    request = encoded(
        DescribeConfigsRequest(resources=[asked] * 10_000, include_synonyms=True, include_documentation=True),
        4,
    )
    with Peer(port) as peer:
        while True:
            peer.send(request)
            peer.answer()
            yield


ATTACKS: dict[str, Attack] = {
    "malformed frames": malformed_frames,
    "refused batches": refused_batches,
    "compression bombs, opened": bombs,
    "a million headers, opened": million_headers,
    "80 MB frames, refused": refused_frames,
    "80 MB frames, refused, each on a new connection": fresh_frames,
    "10 MB messages, taken": taken_frames,
    "30 readers that never read": idle_readers,
    "1,000 idle connections": idle_connections,
    "Metadata of 35,000 names": many_names,
    "ListOffsets into a batch of 200 MB": look_ups,
    f"DescribeLogDirs of {CROWD_PARTITIONS} partitions": log_directories,
    "DescribeConfigs of 10,000 resources": configs,
}


def run(bench: Bench) -> None:
    """Kafka's figures are printed and written to the file: they have no target."""
    measures = {NOBODY: bench.measure("hostile", NOBODY, "ms p99", higher_is_better=False, rival=ECHO)}
    for name in ATTACKS:
        measures[name] = bench.measure(
            "hostile",
            name,
            "ms p99",
            higher_is_better=False,
            limit=LIMIT_MS,
            ratio_target=ECHO_RATIO,
            rival=ECHO,
            either=True,
        )
    for kind in bench.kinds:
        # records of 1970 stay where they are
        with bench.only(kind, {"log.retention.ms": "-1"}) as broker:
            _watch(bench, broker, measures)


def _watch(bench: Bench, broker: Broker, measures: dict[str, Measure]) -> None:
    opened = {"headrace_validate_records": "true"} if broker.name == "headrace" else {}  # Kafka always does
    create_topic(broker, BYSTANDERS_TOPIC)
    create_topic(broker, PLAIN)
    create_topic(broker, OPENED, **opened)
    create_topic(broker, WIDE, max_message_bytes=str(100 * MEGABYTE), retention_bytes=str(256 * MEGABYTE))
    create_topic(broker, PACKED)
    create_topic(broker, CROWD, CROWD_PARTITIONS)
    bystander, idle = Bystander(broker.port), IdleLoop()
    is_ours = broker.name == "headrace"
    try:
        bystander.rounds(300)  # until everything is warm
        durations_ms, echoes_ms = _for_a_while(bystander, idle)
        quiet_ms = p99(durations_ms)
        measures[NOBODY].add(broker.name, quiet_ms)
        if is_ours:
            measures[NOBODY].add(ECHO, p99(echoes_ms))
        for name in ATTACKS:
            try:
                durations_ms, echoes_ms = _beside(name, broker.port, bystander, idle)
            except AssertionError as error:
                if is_ours:
                    raise
                bench.say(f"hostile  {broker.name:8} {name}: the bystander's request failed: {error}")
                return  # what this broker would have done to the others is not known
            measures[name].add(broker.name, p99(durations_ms))
            if is_ours:
                measures[name].add(ECHO, p99(echoes_ms))
            told = ", ".join(
                f"p{100 * share:g} {quantile(durations_ms, share):.2f}" for share in (0.5, 0.99, 1)
            )
            told += f" ms (alone: {quiet_ms:.2f}, echo: {p99(echoes_ms):.2f})"
            bench.say(f"hostile  {broker.name:8} {name}: {told}")
    finally:
        bystander.stop()
        idle.stop()


def _beside(name: str, port: int, bystander: Bystander, idle: IdleLoop) -> tuple[list[float], list[float]]:
    command = [sys.executable, "-m", "benchmarks.bystander_bench", "attack", name, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        attacker.stdout.readline()  # the first blow was struck
        durations_ms, echoes_ms = _for_a_while(bystander, idle)
        assert attacker.poll() is None, "the attacker has given up"
        attacker.kill()
    return durations_ms, echoes_ms


def _for_a_while(bystander: Bystander, idle: IdleLoop) -> tuple[list[float], list[float]]:
    """Of the bystander's writes, and of the echoes meanwhile."""
    bystander.produces(0)
    idle.rounds_ms()
    time.sleep(SECONDS)
    return bystander.produces(1), idle.rounds_ms()


def p99(values: list[float]) -> float:
    return quantile(values, 0.99)


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def attack(name: str, port: int) -> None:
    steps = ATTACKS[name](port)
    next(steps)
    print("struck", flush=True)
    for _ in steps:
        pass


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    attack(sys.argv[2], int(sys.argv[3]))
