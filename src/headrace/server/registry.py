"""The built-in schema registry: what its machine decides is written to `_schemas`, and read back from there.

The log is the registry. Before anything is answered, what the log has and the machine has not seen yet is
replayed: so a registry of Confluent's may write to the same topic, and a restart is nothing special.

Requests that bring a schema, or want one in another form, are decided in a child process (schema_worker.py),
one after the other; all others are answered meanwhile. What the child decides counts only if the log still
ends where it did: otherwise the child decides again.
"""

import asyncio
from typing import TYPE_CHECKING

from headrace.machines.schemas.errors import RegistryError
from headrace.machines.schemas.records import Record
from headrace.machines.schemas.registry import Registry
from headrace.machines.schemas.rest import Answer, answer, failure
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.server.http import HttpRequest
from headrace.server.insider import Insider
from headrace.server.schema_worker import SchemaWorker, Superseded, learn

if TYPE_CHECKING:
    from headrace.server.driver import Driver

TOPIC = "_schemas"
CONFIGS = {
    "cleanup.policy": "compact",
    "flush.messages": "1",  # schemas are few, and data that nobody can read any more is worth an fsync each
}

# What is replayed in one go, while everybody else waits: a few hundred schemas at most.
FETCH_BYTES = 64 * 1024
# How often a topic may turn out to be another one while it is read.
RESTARTS_MAX = 3
# How often others may write between a decision and its records.
DECISIONS_MAX = 10
WRITE_TIMEOUT_MS = 4_000
ALL_REPLICAS = -1
EARLIEST = -2
METADATA_VERSION, CREATE_VERSION, FETCH_VERSION, PRODUCE_VERSION = 12, 7, 13, 13
LIST_OFFSETS_VERSION = 7

_GONE = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


def _named(code: int) -> str:
    return next((known.name for known in ErrorCode if known == code), str(code))


def _is_about_schemas(request: HttpRequest) -> bool:
    """Whether texts of schemas have to be read for it."""
    if request.path.startswith(("/config", "/mode")):
        return False
    return bool(request.body) or "format=" in request.target


class StoreFailed(Exception):
    """The topic could not be read or written."""


class RegistryService:
    def __init__(self, driver: "Driver", listener: str) -> None:
        self._driver = driver
        self._insider = Insider(driver, listener=listener, name="schema-registry")
        self._lock = asyncio.Lock()  # of the log, and of what is known of it
        self._judging = asyncio.Lock()
        self._worker = SchemaWorker()
        self._begin(None)

    def _begin(self, topic_id: bytes | None) -> None:
        """From the first record of that topic."""
        self._registry = Registry()
        self._worker.forget()
        self._topic_id = topic_id
        self._offset = 0

    async def answer(self, request: HttpRequest) -> Answer:
        try:
            if _is_about_schemas(request):
                async with self._judging:
                    return await self._answer_in_child(request)
            async with self._lock:
                await self._catch_up()
                decided = answer(self._registry, request.method, request.target, request.body)
                await self._keep(decided)
                return decided
        except RegistryError as error:
            return failure(error)
        except (StoreFailed, ConnectionError) as error:
            return failure(RegistryError(50001, f"Error in the backend data store: {error}"))
        except Exception as error:  # a bug of ours: this request fails alone, and the log says where
            self._driver.failed(f"registry {request.method} {request.path}", error)
            return failure(RegistryError(500, "Internal Server Error"))

    async def _answer_in_child(self, request: HttpRequest) -> Answer:
        for _ in range(DECISIONS_MAX):
            async with self._lock:
                await self._catch_up()
                known = (self._topic_id, self._offset)
                job = self._worker.prepare(self._registry, request)
            try:
                decided = await self._worker.answer(job)
            except Superseded:
                continue
            if not decided.records:
                return decided
            async with self._lock:
                await self._catch_up()
                if (self._topic_id, self._offset) == known:
                    await self._keep(decided)
                    return decided
        raise StoreFailed(f"others wrote to {TOPIC} each time before the decision could be kept")

    async def _keep(self, decided: Answer) -> None:
        if decided.records:
            await self._append(decided.records)
            await self._catch_up()

    # --- the topic -------------------------------------------------------------------------------------

    async def _look_up(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        reply = await self._insider.ask(request, METADATA_VERSION, MetadataResponse)
        topic = reply.topics[0]
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            # it is there and not to be had: this does not mean that the registry is empty
            raise StoreFailed(f"{TOPIC} cannot be found: {_named(topic.error_code)}")
        topic_id = topic.topic_id if topic.error_code == ErrorCode.NONE else None
        if topic_id != self._topic_id:
            self._begin(topic_id)

    async def _create(self) -> None:
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=WRITE_TIMEOUT_MS)
        reply = await self._insider.ask(request, CREATE_VERSION, CreateTopicsResponse)
        created = reply.topics[0]
        if created.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise StoreFailed(f"{TOPIC} cannot be created: {created.error_message}")
        await self._look_up()

    async def _catch_up(self) -> None:
        """Replay what was appended since the last time, by whomever."""
        restarts = 0
        await self._look_up()
        while self._topic_id is not None:
            fetched = await self._fetched(self._topic_id)
            if fetched.error_code in _GONE:
                restarts += 1
                if restarts > RESTARTS_MAX:
                    raise StoreFailed(f"{TOPIC} cannot be read: {_named(fetched.error_code)}")
                await self._start_over()
                continue
            if fetched.error_code != ErrorCode.NONE:
                raise StoreFailed(f"{TOPIC} cannot be read: {_named(fetched.error_code)}")
            before = self._offset
            if fetched.records:
                self._replay(bytes(fetched.records))  # type: ignore[arg-type]
            if self._offset == before:
                return
            await asyncio.sleep(0)  # an answer from inside comes at once: others would never have a turn

    async def _fetched(self, topic_id: bytes) -> PartitionData:
        partition = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=FETCH_BYTES)
        topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, topics=topics)
        reply = await self._insider.ask(request, FETCH_VERSION, FetchResponse)
        if reply.error_code != ErrorCode.NONE:
            raise StoreFailed(f"{TOPIC} cannot be read: {_named(reply.error_code)}")
        return reply.responses[0].partitions[0]

    async def _start_over(self) -> None:
        """The topic was deleted, or its first records were: what is left of it is what there is."""
        self._begin(None)
        await self._look_up()
        if self._topic_id is not None:
            partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
            topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
            request = ListOffsetsRequest(replica_id=-1, topics=[topic])
            reply = await self._insider.ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
            self._offset = max(0, reply.topics[0].partitions[0].offset)

    def _replay(self, view: bytes) -> None:
        for position, header in batches(view):
            if not header.is_control:
                for offset, _, key, value, _ in read_rows(view, position, header):
                    if offset >= self._offset and key is not None:
                        self._replay_record(offset, Record(key, value))
            self._offset = max(self._offset, header.last_offset + 1)

    def _replay_record(self, offset: int, record: Record) -> None:
        self._worker.heard(record)
        error = learn(self._registry, record)
        if error is not None:
            self._driver.gate.log.error("registry_record_unreadable", offset=offset, error=str(error))

    async def _append(self, records: tuple[Record, ...]) -> None:
        if self._topic_id is None:
            await self._create()
        if self._topic_id is None:
            raise StoreFailed(f"{TOPIC} was created and is not there")
        wall_ms = self._driver.gate.clock.now().wall_ms
        batch = build_batch([(wall_ms, record.key, record.value, ()) for record in records])
        data = TopicProduceData(
            topic_id=self._topic_id, partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        request = ProduceRequest(acks=ALL_REPLICAS, timeout_ms=WRITE_TIMEOUT_MS, topic_data=[data])
        reply = await self._insider.ask(request, PRODUCE_VERSION, ProduceResponse)
        written = reply.responses[0].partition_responses[0]
        if written.error_code != ErrorCode.NONE:
            raise StoreFailed(f"{TOPIC} cannot be written: {_named(written.error_code)}")

    def stop(self) -> None:
        self._worker.stop()
        self._insider.leave()
