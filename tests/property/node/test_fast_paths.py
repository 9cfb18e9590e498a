"""The fast paths change nothing but the time: random histories through two nodes, one without fast paths.

Every frame goes to both. What they answer, byte for byte and in which order, which connections they close,
what their coordinators know and what lies on their disks must be the same at every step and at the end.
Requests are drawn from a small stock, so that connections say the same again, in between of what ends a
fast path: refusals, changed settings, topics that go and come back, producers that are fenced, groups that
rebalance, transactions, a disk that is full for a while. HEADRACE_FAST_PATH_HISTORIES=5000
plays more of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from harness.authorizers import Nobody
from headrace.node.commit_fast_path import CommitFastPath
from headrace.node.produce_fast_path import ProduceFastPath
from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.sync_group import SyncGroupRequest
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.simulator.frames import joined
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

HISTORIES = int(os.environ.get("HEADRACE_FAST_PATH_HISTORIES", "60"))
BLOCKS = 6
STEPS = 120

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.min.session.timeout.ms": "1000",
}
TOPICS = ("a", "b")
INTERNAL = ("__consumer_offsets", "__transaction_state")
SET, DELETE = 0, 1
TOPIC_RESOURCE = 2
CHANGES = (
    ("max.message.bytes", "120"),
    ("message.timestamp.type", "LogAppendTime"),
    ("min.insync.replicas", "2"),
    ("flush.messages", "1"),
    ("flush.messages", "5"),
    ("compression.type", "gzip"),
    ("cleanup.policy", "compact"),
    ("message.timestamp.before.max.ms", "1000"),
)
Draw = Callable[[], tuple[Any, int]]


class NodePair:
    """Two nodes that are told the same. What requests need to know is read from the answers of the first."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.quick, self.plain = _host(seed), _host(seed)
        self.connections = [(self.quick.connect(), self.plain.connect()) for _ in range(3)]
        self.forbidden_for = 0  # so many requests
        self.full_for = 0
        self._correlation = 0
        self.producers: dict[str | None, tuple[int, int]] = {}  # by transactional id: producer id, epoch
        self.sequences: Counter[tuple[int, int, str, int]] = Counter()
        self.members: dict[str, tuple[str, int]] = {}  # by group: the last member id and generation known
        self.said: list[bytes] = []

    # --- telling both -------------------------------------------------------------------------------------

    def tell(self, request: Any, version: int, at: int | None = None) -> Any:
        """The first node's answer, if there is one at once."""
        key = type(request).KEY
        self._correlation += 1
        correlation = self._correlation
        body = request_codec(key, version).encode(request)
        frame = joined(request_frame(key, version, correlation, "client", [body]))[4:]
        answers = self.say(self.rng.randrange(len(self.connections)) if at is None else at, frame)
        answer = next((one for one in answers if one[4:8] == correlation.to_bytes(4, "big")), None)
        codec = response_codec(key, version)
        return codec.decode(answer, 8 + codec.header_version) if answer is not None else None

    def say(self, number: int, frame: bytes) -> list[bytes]:
        self.said.append(frame)
        quick, plain = self.connections[number]
        self.quick.send_frame(quick, frame)
        plain.fast_path = None
        self.plain.send_frame(plain, frame)
        return self.compare()

    def advance(self, seconds: float) -> None:
        self.quick.advance(seconds)
        self.plain.advance(seconds)
        self.compare()

    def compare(self) -> list[bytes]:
        """All answers that left since the last time."""
        left: list[bytes] = []
        assert self.quick.closed == self.plain.closed
        for number, (quick, plain) in enumerate(self.connections):
            ours, theirs = self.quick.answers[quick.id], self.plain.answers[plain.id]
            assert list(ours) == list(theirs)
            left += ours
            ours.clear()
            theirs.clear()
            if quick.is_closed:
                self.connections[number] = self.quick.connect(), self.plain.connect()
        return left

    def compare_all(self) -> None:
        for topic in (*TOPICS, *INTERNAL):
            ours, theirs = (
                self.quick.node.broker.partitions.of_name(topic),
                self.plain.node.broker.partitions.of_name(topic),
            )
            assert (ours is None) == (theirs is None)
        for kind in ("groups", "transactions"):
            for index in range(2):
                shards = [getattr(host.node.broker, kind).at(index) for host in (self.quick, self.plain)]
                states = [
                    shard.machine.state() if shard is not None and shard.machine is not None else None
                    for shard in shards
                ]
                assert states[0] == states[1]
        contents = [
            {path: data for disk in _memory(host) for path, data in disk.files()}
            for host in (self.quick, self.plain)
        ]
        assert contents[0] == contents[1]
        requests = [
            {key: api.requests for key, api in host.node.metrics.apis.items() if api.requests}
            for host in (self.quick, self.plain)
        ]
        assert requests[0] == requests[1]

    # --- requests -----------------------------------------------------------------------------------------

    def topic_id(self, topic: str) -> bytes:
        known = self.quick.node.broker.partitions.of_name(topic)
        return bytes(known.id) if known is not None else b"\x01" * 16

    def produce_kind(self) -> Draw:
        """Requests that differ only in their records; every other one of a kind that fast paths are for."""
        rng = self.rng
        version = rng.choice((7, 8, 9, 11, 12, 13))
        acks = rng.choice((1, -1))
        topic = rng.choice(TOPICS)
        index = rng.choice((0, 1))
        owner = rng.choice((None, None, "idempotent"))
        count = 1
        if rng.random() < 0.5:
            version = rng.choice((3, 7, 9, 12, 13))
            acks = rng.choice((1, 1, -1, 0, 7, -2))
            topic = rng.choice((*TOPICS, *INTERNAL, "unknown"))
            index = rng.choice((0, 0, 1, 9, -1))
            owner = rng.choice((None, "idempotent", "t1"))
            count = rng.choice((1, 1, 2))

        def draw() -> tuple[Any, int]:
            named = {"topic_id": self.topic_id(topic)} if version >= 13 else {"name": topic}
            data = [
                PartitionProduceData(
                    index=(index + n) % 2 if n else index, records=self._batch(topic, index, owner)
                )
                for n in range(count)
            ]
            transactional_id = owner if owner == "t1" and rng.random() < 0.9 else None
            topics = [TopicProduceData(partition_data=data, **named)]
            return ProduceRequest(
                acks=acks, timeout_ms=1_000, topic_data=topics, transactional_id=transactional_id
            ), version

        return draw

    def _batch(self, topic: str, index: int, owner: str | None) -> bytes:
        rng = self.rng
        rows = [
            (
                self.quick.clock.now().wall_ms - rng.choice((0, 0, 0, 5_000, 10**9)),
                rng.choice((None, b"k")),
                b"v" * rng.choice((1, 10, 80)),
                (),
            )
            for _ in range(rng.randint(1, 3))
        ]
        more: dict[str, Any] = {"codec": rng.choice((Codec.NONE,) * 6 + (Codec.GZIP, Codec.ZSTD))}
        if owner is not None and owner in self.producers:
            producer_id, epoch = self.producers[owner]
            key = producer_id, epoch, topic, index
            sequence = self.sequences[key]
            if rng.random() < 0.85:
                self.sequences[key] += len(rows)
            more |= {
                "producer_id": producer_id,
                "producer_epoch": epoch - (rng.random() < 0.1),
                "base_sequence": max(0, sequence - (rng.random() < 0.1)),
                "transactional": owner == "t1",
            }
        batch = bytearray(build_batch(rows, **more))
        spoil = rng.random()
        if spoil < 0.05:
            batch[-1] ^= 1
        elif spoil < 0.08:
            del batch[-1]
        elif spoil < 0.1:
            batch[16] = 1
        elif spoil < 0.12:
            batch += bytes(batch)
        elif spoil < 0.13:
            batch.clear()
        return bytes(batch)

    def commit_kind(self) -> Draw:
        rng = self.rng
        version = rng.choice((2, 5, 6, 7, 8, 9, 9, 10))
        group = rng.choice(("g", "h"))
        topic = rng.choice((*TOPICS, *TOPICS, "unknown", "__consumer_offsets"))
        partition = rng.choice((0, 0, 1, 9))
        metadata = rng.choice((None, "", "m", "m", "x" * 5_000))
        is_member = rng.random() < 0.5

        def draw() -> tuple[Any, int]:
            member, generation = self.members.get(group, ("", -1)) if is_member else ("", -1)
            if rng.random() < 0.1:
                generation += 1
            committed = OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=rng.choice((0, 1, 2, 10**9, -1)),
                committed_leader_epoch=rng.choice((-1, 0, 3)) if version >= 6 else -1,
                committed_metadata=metadata,
            )
            named = OffsetCommitRequestTopic(
                name=topic,
                topic_id=self.topic_id(topic) if version >= 10 else bytes(16),
                partitions=[committed],
            )
            return OffsetCommitRequest(
                group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=[named]
            ), version

        return draw

    # --- what ends a fast path ----------------------------------------------------------------------------

    def interfere(self) -> None:
        self.rng.choice(
            (
                self.change_config,
                self.change_config,
                self.delete_topic,
                self.make_topics,
                self.make_producer,
                self.add_to_transaction,
                self.commit_in_transaction,
                self.end_transaction,
                self.join,
                self.leave,
                self.fetch,
                self.forbid,
                self.fill_disk,
                self.fill,
                lambda: self.advance(self.rng.choice((0.01, 0.5, 3.0))),
            )
        )()

    def change_config(self) -> None:
        name, value = self.rng.choice(CHANGES)
        config = AlterableConfig(
            name=name, value=value, config_operation=self.rng.choice((SET, DELETE, DELETE))
        )
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self.rng.choice(TOPICS), configs=[config]
        )
        self.tell(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def make_topics(self) -> None:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS]
        self.tell(CreateTopicsRequest(topics=topics, timeout_ms=1_000), 5)

    def delete_topic(self) -> None:
        if self.rng.random() < 0.3:
            self.tell(DeleteTopicsRequest(topic_names=[self.rng.choice(TOPICS)], timeout_ms=1_000), 5)
            if self.rng.random() < 0.7:
                self.make_topics()

    def make_producer(self) -> None:
        owner = self.rng.choice((None, "t1"))
        answer = self.tell(InitProducerIdRequest(transactional_id=owner, transaction_timeout_ms=5_000), 4)
        if answer is not None and answer.error_code == 0:
            self.producers[owner or "idempotent"] = answer.producer_id, answer.producer_epoch

    def _owner(self) -> tuple[int, int]:
        return self.producers.get("t1", (7, 0))

    def add_to_transaction(self) -> None:
        producer_id, epoch = self._owner()
        topics = [AddPartitionsToTxnTopic(name=name, partitions=[0, 1]) for name in TOPICS]
        self.tell(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t1",
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            ),
            3,
        )

    def commit_in_transaction(self) -> None:
        producer_id, epoch = self._owner()
        whose: dict[str, Any] = {
            "transactional_id": "t1",
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "group_id": "g",
        }
        self.tell(AddOffsetsToTxnRequest(**whose), 3)
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        topic = TxnOffsetCommitRequestTopic(name="a", partitions=[partition])
        self.tell(TxnOffsetCommitRequest(topics=[topic], **whose), 2)

    def end_transaction(self) -> None:
        producer_id, epoch = self._owner()
        committed = self.rng.random() < 0.5
        self.tell(
            EndTxnRequest(
                transactional_id="t1", producer_id=producer_id, producer_epoch=epoch, committed=committed
            ),
            3,
        )

    def join(self) -> None:
        group = self.rng.choice(("g", "h"))
        member, generation = self.members.get(group, ("", -1))
        if self.rng.random() < 0.4:
            member = ""
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=2_000,
            rebalance_timeout_ms=2_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer = self.tell(request, 9, at=0)
        if answer is None:
            return
        if answer.error_code == 0:
            generation = answer.generation_id
            sync = SyncGroupRequest(group_id=group, generation_id=generation, member_id=answer.member_id)
            self.tell(sync, 3, at=0)
        if answer.member_id:
            self.members[group] = answer.member_id, generation

    def leave(self) -> None:
        group = self.rng.choice(("g", "h"))
        member = MemberIdentity(member_id=self.members.get(group, ("nobody", 0))[0])
        self.tell(LeaveGroupRequest(group_id=group, members=[member]), 5)

    def fetch(self) -> None:
        """A long poll: fast paths must not answer before it does."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = FetchTopic(topic="a", partitions=[partition])
        self.tell(FetchRequest(max_wait_ms=300, min_bytes=100_000, topics=[topic]), 11)

    def forbid(self) -> None:
        """For the next few requests nobody may do anything."""
        self.forbidden_for = 5
        for host in (self.quick, self.plain):
            host.node.access.authorizer = Nobody()

    def fill_disk(self) -> None:
        """For the next few requests there is little room on the disk, or none."""
        self.full_for = 5
        space = self.rng.choice((0, 0, 50, 300))
        for host in (self.quick, self.plain):
            _data(host).space_bytes = space

    def time_passes(self) -> None:
        """What was to last for a few requests ends."""
        self.forbidden_for -= self.forbidden_for > 0
        self.full_for -= self.full_for > 0
        for host in (self.quick, self.plain):
            if not self.forbidden_for:
                host.node.access.authorizer = None
            if not self.full_for:
                _data(host).space_bytes = None

    def fill(self) -> None:
        """Coordinators come into being."""
        for kind, key in ((0, "g"), (0, "h"), (1, "t1")):
            self.tell(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)


def _host(seed: int) -> ManualHost:
    disks: dict[str, Disk] = {"data": FaultyDisk(MemoryDisk(), keeps_calls=False), "meta": MemoryDisk()}
    return ManualHost(SETTINGS | {"metadata.log.dir": "meta", "log.dirs": "data"}, disks=disks, seed=seed)


def _data(host: ManualHost) -> FaultyDisk:
    disk = host.disks["data"]
    assert isinstance(disk, FaultyDisk)
    return disk


def _memory(host: ManualHost) -> list[MemoryDisk]:
    disks = [_data(host).disk, host.disks["meta"]]
    return [disk for disk in disks if isinstance(disk, MemoryDisk)]


def play(seed: int) -> NodePair:
    pair = NodePair(seed)
    pair.make_topics()
    pair.fill()
    pair.make_producer()
    stock = [(pair.produce_kind(), pair.rng.choice((0, 1))) for _ in range(7)]
    stock += [(pair.commit_kind(), pair.rng.choice((1, 2))) for _ in range(6)]
    for _ in range(STEPS):
        pair.time_passes()
        drawn = pair.rng.random()
        if drawn < 0.2:
            pair.interfere()
        elif drawn < 0.25:  # word for word, by any connection
            pair.say(pair.rng.randrange(3), pair.rng.choice(pair.said))
        else:
            draw, at = pair.rng.choice(stock)
            at = at if pair.rng.random() < 0.9 else pair.rng.randrange(3)
            for _ in range(pair.rng.choice((1, 1, 2, 4))):
                pair.tell(*draw(), at)
    for _ in range(6):
        pair.time_passes()
    pair.advance(30)
    pair.compare_all()
    return pair


@pytest.mark.parametrize("block", range(BLOCKS))
def test_fast_paths_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    served: Counter[type] = Counter()

    def counted(kind: type) -> None:
        serve = kind.serve  # type: ignore[attr-defined]

        def counting(self: Any, *given: Any) -> Any:
            parts = serve(self, *given)
            served[kind] += parts is not None
            return parts

        monkeypatch.setattr(kind, "serve", counting)

    counted(ProduceFastPath)
    counted(CommitFastPath)
    count = HISTORIES // BLOCKS
    for seed in range(block * count, (block + 1) * count):
        try:
            play(seed)
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
    assert served[ProduceFastPath] > count
    assert served[CommitFastPath] > count
