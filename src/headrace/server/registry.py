"""The built-in schema registry: its machine's decisions are written to `_schemas`, and read back from there.

The topic is the only state. Before every answer the registry replays what is new in the log, from whichever
broker leads the topic. So every broker of a cluster has a registry, Confluent's registry may write to the
same topic, and a restart needs no special code. A decision is appended only if the log still ends where the
decision was made (AppendAt); otherwise the decision is made again.

A child process (schema_worker.py) decides requests that contain a schema, or ask for one in another form, one
after the other; all other requests are answered meanwhile.
"""

import asyncio
from random import uniform
from typing import TYPE_CHECKING

from headrace.machines.http.messages import HttpRequest
from headrace.machines.schema_registry import errors
from headrace.machines.schema_registry.errors import RegistryError
from headrace.machines.schema_registry.records import Record
from headrace.machines.schema_registry.registry import Registry
from headrace.node.peers import Peer, Peers
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.append_at import AppendAtRequest, AppendAtResponse
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
from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.server.leader_client import LeaderClient, NoAnswer
from headrace.server.registry_rest import Answer, Sees, answer, failure
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
# What is read here without anybody noticing. Levels and modes have some dozen bytes.
SHORT_BODY_BYTES = 4 * 1024
# How often a topic may turn out to be another one while it is read.
RESTARTS_MAX = 3
# How often others may write between a decision and its records.
DECISIONS_MAX = 30
PAUSE_S_MAX = 0.1  # before the next decision
WRITE_TIMEOUT_MS = 4_000
# How long a topic without a reachable leader is waited for: another broker is elected in a second or two.
LEADER_WAIT_S = 5.0
LEADER_RETRY_S = 0.1
EARLIEST, LATEST = -2, -1
METADATA_VERSION, CREATE_VERSION, FETCH_VERSION, APPEND_VERSION = 12, 7, 13, 0
LIST_OFFSETS_VERSION = 7
NO_LEADER = -1

_GONE = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
# The leader has changed, or is about to be elected.
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)


def _named(code: int) -> str:
    return next((known.name for known in ErrorCode if known == code), str(code))


def _is_about_schemas(request: HttpRequest) -> bool:
    """Whether texts of schemas have to be read for it, or a body that takes long to read."""
    if request.path.startswith(("/config", "/mode")):
        return len(request.body) > SHORT_BODY_BYTES
    return bool(request.body) or "format=" in request.target


BUSY = f"another registry wrote to {TOPIC} at the same time, again and again; try again"

Leadership = tuple[bytes, int, int]  # topic, leader, leader epoch


class StoreFailed(Exception):
    """The topic could not be read or written."""


class LeaderMoved(StoreFailed):
    """The topic has no leader now, or another one than the one that was asked."""


def _check(code: int, what: str) -> None:
    if code in _MOVED:
        raise LeaderMoved(f"{TOPIC} cannot be {what}: {_named(code)}")
    if code != ErrorCode.NONE:
        raise StoreFailed(f"{TOPIC} cannot be {what}: {_named(code)}")


class RegistryService:
    def __init__(self, driver: "Driver", listener: str, peers: Peers | None = None) -> None:
        self._driver = driver
        self._client = LeaderClient(driver, peers, listener=listener, name="schema-registry")
        self._lock = asyncio.Lock()  # of the log, and of what is known of it
        self._judging = asyncio.Lock()
        self._worker = SchemaWorker()
        self._leadership: Leadership | None = None
        self._asked: Leadership | None = None  # whose end was asked for
        self._begin(None)

    def _begin(self, topic_id: bytes | None) -> None:
        """From the first record of that topic."""
        self._registry = Registry()
        self._worker.forget()
        self._topic_id = topic_id
        self._offset = 0

    async def answer(self, request: HttpRequest, sees: Sees | None = None) -> Answer:
        """`sees` says whether the client may know of a subject; None: of all. What else the client may do
        was decided before.
        """
        try:
            return await self._answer_in_time(request, sees)
        except RegistryError as error:
            return failure(error)
        except (StoreFailed, ConnectionError) as error:
            return failure(RegistryError(50001, f"Error in the backend data store: {error}"))
        except Exception as error:  # a bug of ours: this request fails alone, and the log says where
            self._driver.failed(f"registry {request.method} {request.path}", error)
            return failure(RegistryError(500, "Internal Server Error"))

    async def _answer_in_time(self, request: HttpRequest, sees: Sees | None) -> Answer:
        """While the topic has no leader that answers, it is tried again for a while."""
        clock = asyncio.get_running_loop().time
        ends_at = clock() + LEADER_WAIT_S
        while True:
            try:
                if _is_about_schemas(request):
                    async with self._judging:
                        return await self._answer_in_child(request, sees)
                return await self._answer_here(request, sees)
            except (LeaderMoved, NoAnswer):
                is_alone = not self._driver.node.settings.quorum_voters
                if is_alone or clock() > ends_at:
                    raise
            await asyncio.sleep(LEADER_RETRY_S)

    async def _answer_here(self, request: HttpRequest, sees: Sees | None) -> Answer:
        for number in range(DECISIONS_MAX):
            await self._let_others(number)
            async with self._lock:
                await self._catch_up()
                decided = answer(self._registry, request.method, request.target, request.body, sees)
                if await self._keep(decided):
                    return decided
        raise StoreFailed(BUSY)

    @staticmethod
    async def _let_others(number: int) -> None:
        """After a decision that came too late, another registry may have to be faster: a pause of a random
        length, so that not the same one is always too late.
        """
        if number:
            await asyncio.sleep(uniform(0, PAUSE_S_MAX * min(number, 5) / 5))  # nosec B311  # a pause

    async def _answer_in_child(self, request: HttpRequest, sees: Sees | None) -> Answer:
        for number in range(DECISIONS_MAX):
            await self._let_others(number)
            async with self._lock:
                await self._catch_up()
                known = (self._topic_id, self._offset)
                job = self._worker.prepare(self._registry, request, self._hidden(request, sees))
            try:
                decided = await self._worker.answer(job)
            except Superseded:
                continue
            for reference in decided.references:
                if sees is not None and not sees(reference.subject):
                    # as if it was not there
                    raise errors.no_reference(reference.subject, reference.version)
            if not decided.records:
                return decided
            async with self._lock:
                await self._catch_up()
                if (self._topic_id, self._offset) == known and await self._keep(decided):
                    return decided
        raise StoreFailed(BUSY)

    def _hidden(self, request: HttpRequest, sees: Sees | None) -> frozenset[str]:
        """The subjects that the child must leave out. With a body it asks for one subject alone."""
        if sees is None or request.body:
            return frozenset()
        return frozenset(one for one in self._registry.subjects(with_deleted=True) if not sees(one))

    async def _keep(self, decided: Answer) -> bool:
        """False: somebody else has written since, and what was decided may be wrong."""
        if decided.records:
            if not await self._append(decided.records):
                return False
            await self._catch_up()
        return True

    # --- the topic -------------------------------------------------------------------------------------

    async def _look_up(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        reply = await self._client.ask_here(request, METADATA_VERSION, MetadataResponse)
        topic = reply.topics[0]
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            # it is there and not to be had: this does not mean that the registry is empty
            raise StoreFailed(f"{TOPIC} cannot be found: {_named(topic.error_code)}")
        topic_id = topic.topic_id if topic.error_code == ErrorCode.NONE else None
        if topic_id != self._topic_id:
            self._begin(topic_id)
        if topic_id is not None:
            partition = topic.partitions[0]
            self._client.leader = self._leader(partition.leader_id, reply)
            self._leadership = (topic_id, partition.leader_id, partition.leader_epoch)

    def _leader(self, leader_id: int, metadata: MetadataResponse) -> Peer | None:
        """None: this node."""
        if leader_id == self._driver.node.settings.node_id:
            return None
        for broker in metadata.brokers:
            if broker.node_id == leader_id:
                return Peer(leader_id, broker.host, broker.port)
        if leader_id == NO_LEADER:
            raise LeaderMoved(f"{TOPIC} has no leader")
        raise LeaderMoved(f"broker {leader_id} leads {TOPIC}, and its address is not known")

    async def _create(self) -> None:
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=WRITE_TIMEOUT_MS)
        reply = await self._client.ask_here(request, CREATE_VERSION, CreateTopicsResponse)
        created = reply.topics[0]
        if created.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise StoreFailed(f"{TOPIC} cannot be created: {created.error_message}")
        await self._look_up()

    async def _catch_up(self) -> None:
        """Replays what was appended since the last time, by any registry."""
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
            _check(fetched.error_code, "read")
            before = self._offset
            if fetched.records:
                self._replay(bytes(fetched.records))  # type: ignore[arg-type]
            else:
                # the last records before it may have been compacted away
                self._offset = max(self._offset, fetched.high_watermark)
                if await self._is_at_the_end():
                    return
                continue
            if self._offset == before:
                return
            await asyncio.sleep(0)  # an answer from inside comes at once: others would never have a turn

    async def _fetched(self, topic_id: bytes) -> PartitionData:
        partition = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=FETCH_BYTES)
        topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, topics=topics)
        reply = await self._client.ask_leader(request, FETCH_VERSION, FetchResponse)
        _check(reply.error_code, "read")
        return reply.responses[0].partitions[0]

    async def _is_at_the_end(self) -> bool:
        """A new leader does not know at once how much was committed before, and says so when it is asked for
        its end.
        """
        if self._leadership != self._asked:
            if await self._listed(LATEST) > self._offset:
                return False
            self._asked = self._leadership
        return True

    async def _listed(self, timestamp: int) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        reply = await self._client.ask_leader(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        found = reply.topics[0].partitions[0]
        _check(found.error_code, "read")
        return found.offset

    async def _start_over(self) -> None:
        """The topic was deleted, or its first records were: what is left of it is what there is."""
        self._begin(None)
        await self._look_up()
        if self._topic_id is not None:
            self._offset = max(0, await self._listed(EARLIEST))

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
            self._driver.connections.log.error("registry_record_unreadable", offset=offset, error=str(error))

    async def _append(self, records: tuple[Record, ...]) -> bool:
        """False: the log ends elsewhere by now."""
        if self._topic_id is None:
            await self._create()
        if self._topic_id is None:
            raise LeaderMoved(f"{TOPIC} was created, but cannot be found")
        wall_ms = self._driver.connections.clock.now().wall_ms
        request = AppendAtRequest(
            topic_id=self._topic_id,
            partition=0,
            expected_offset=self._offset,
            timeout_ms=WRITE_TIMEOUT_MS,
            records=build_batch([(wall_ms, record.key, record.value, ()) for record in records]),
        )
        reply = await self._client.ask_leader(request, APPEND_VERSION, AppendAtResponse)
        if reply.error_code == ErrorCode.INVALID_UPDATE_VERSION:
            return False
        _check(reply.error_code, "written")
        return True

    def stop(self) -> None:
        self._worker.stop()
        self._client.leave()
