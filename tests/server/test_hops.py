"""How many files a request passes on its way from the socket to the log and back: the number only falls."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import headrace
from headrace.node.settings import Settings
from headrace.protocol.api import request_codec
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records.builder import build_batch
from headrace.server.logs import Log
from headrace.server.process import Process
from headrace.simulator.frames import joined
from headrace.simulator.manual_host import ONE_NODE

ROOT = Path(headrace.__file__).parent

# Values and counters that decide nothing, the loop's own timer, which is looked at after every read, a line
# in the log about a slow machine, and what the judge of every test (`harness/answer_order.py`) asks.
UNCOUNTED = {
    "base/time.py",
    "node/metrics.py",
    "node/ports.py",
    "protocol/api.py",
    "protocol/parts.py",
    "protocol/varint.py",
    "server/clock.py",
    "server/driver.py",
    "server/logs.py",
    "server/process.py",
    "storage/disk.py",
}

# The append to a log, from the partition down: a JoinGroup counts it as one.
APPEND = {
    "node/partition.py",
    "machines/replication/leader.py",
    "storage/appending.py",
    "records/batch.py",
    "storage/segment.py",
    "server/disk.py",
}

BATCH = build_batch([(0, b"k", b"v" * 100, ())])


def produce() -> tuple[Any, int]:
    """Two partitions: of one alone the fast path would be told."""
    data = [PartitionProduceData(index=index, records=BATCH) for index in range(2)]
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    ), 9


def usual_produce() -> tuple[Any, int]:
    """What a connection says again and again: one partition."""
    request, version = produce()
    del request.topic_data[0].partition_data[1:]
    return request, version


def fetch() -> tuple[Any, int]:
    """Two partitions, for the same reason."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=400, current_leader_epoch=-1)
        for index in range(2)
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=wanted)],
    ), 12


def usual_fetch() -> tuple[Any, int]:
    """A consumer that reads on in one partition."""
    request, version = fetch()
    del request.topics[0].partitions[1:]
    return request, version


def join() -> tuple[Any, int]:
    """By version 3 a member is taken without asking twice."""
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"x")],
    ), 3


def frame(request: Any, version: int) -> bytes:
    body = request_codec(type(request).KEY, version).encode(request)
    return joined(request_frame(type(request).KEY, version, 1, "test", [body]))


async def passed(directory: Path, requests: list[tuple[Any, int]]) -> list[set[str]]:
    """The files of each request, in a process that has answered the same before."""
    texts = {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "headrace.metrics.port": "-1",
        "group.initial.rebalance.delay.ms": "0",
        **ONE_NODE,
        "offsets.topic.num.partitions": "1",
    }
    process = Process(Settings.parse(texts), log=Log())
    await process.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", process.settings.listeners[0].port)

    async def ask(asked: bytes) -> None:
        writer.write(asked)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)))

    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    await ask(frame(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7))
    await ask(frame(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4))
    found = []
    for request in requests:
        await ask(frame(*request))
        if isinstance(request[0], JoinGroupRequest):
            request[0].group_id = "another"
        again = frame(*request)
        seen: set[str] = set()

        def note(running: FrameType, event: str, _: object, seen: set[str] = seen) -> None:
            path = Path(running.f_code.co_filename)
            if event == "call" and path.is_relative_to(ROOT):
                seen.add(str(path.relative_to(ROOT)))

        sys.setprofile(note)
        try:
            await ask(again)
        finally:
            sys.setprofile(None)
        found.append(seen - UNCOUNTED)
    writer.close()
    await process.stop()
    return found


@pytest.mark.parametrize(
    ("make", "count", "in_node"),
    [
        # one less without the judge, which reads the header of every frame
        (usual_produce, 10, {"node.py", "partition.py", "produce_fast_path.py"}),
        (produce, 10, {"node.py", "handlers/produce.py", "partition.py"}),
        (usual_fetch, 10, {"node.py", "fetch_fast_path.py"}),
        (fetch, 10, {"node.py", "handlers/fetch.py", "partition.py", "fetch_sessions.py"}),
        (
            join,
            14 - 1 + len(APPEND),
            {
                *("node.py", "handlers/join_group.py", "partition.py", "connection.py", "waiting.py"),
                *("coordinators/coordinator.py", "coordinators/shard.py"),
            },
        ),
    ],
)
def test_a_request_passes_few_files(
    tmp_path: Path, make: Callable[[], tuple[Any, int]], count: int, in_node: set[str]
) -> None:
    is_fetch = make in (fetch, usual_fetch)
    requests = [produce(), make()] if is_fetch else [make()]  # something to read
    files = asyncio.run(passed(tmp_path, requests))[-1]
    assert {name.removeprefix("node/") for name in files if name.startswith("node/")} <= in_node
    assert len(files) <= count, "\n".join(sorted(files))
    assert is_fetch or files >= APPEND
