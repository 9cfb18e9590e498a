"""Wrong input against a real broker: each case is answered with a typed error or a closed connection.

While it runs, a well-behaved client in a process of its own must go on without an error; afterwards the
broker lives, reports no mistake of its own, and has given the memory back. Nothing here measures time: the
bystander's patience is far beyond anything that works.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from chaos.asking import (
    PLAIN,
    ask_without_reading,
    fetch,
    fill,
    log_end,
    of_plain,
    produce,
    produce_request,
)
from chaos.bombs import BOMBS, MEGABYTE
from chaos.bystander import TOPIC as BYSTANDERS_TOPIC
from chaos.bystander import Bystander
from chaos.hostile_batches import (
    REFUSED,
    REFUSED_WHEN_OPENED,
    ZSTD,
    Batch,
    good,
    many_headers,
    record,
)
from chaos.hostile_frames import CLOSES, FRAME_BYTES_MAX
from chaos.peer import Peer, encoded, frame, header
from harness.headrace import Headrace
from harness.wait import eventually
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
OPENED, RECODED, WIDE = "opened", "recoded", "wide"
TOPICS: dict[str, dict[str, str]] = {
    BYSTANDERS_TOPIC: {},
    PLAIN: {},
    OPENED: {"headrace.validate.records": "true"},
    RECODED: {"compression.type": "gzip"},
    WIDE: {"max.message.bytes": str(8 * MEGABYTE)},
}

# What may stay in the broker's memory after everything below: half a million partitions that fetch sessions
# remember are 150 MB, the rest is what malloc keeps for the next time.
GROWTH_BYTES_MAX = 250 * MEGABYTE
# What it may use at the worst moment: the same, and a batch that is opened as far as is allowed, twice.
PEAK_BYTES_MAX = 700 * MEGABYTE
# What one reader that does not read can make us hold: the limit for unsent answers, and two pieces of a file.
READER_BYTES_MAX = 8 * MEGABYTE

IDLE_MS = 1_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    # records of 1970 stay where they are
    with Headrace(tmp_path_factory.mktemp("hostile"), {"log.retention.ms": "-1"}) as broker:
        with Peer(broker.port) as peer:
            wanted = [
                CreatableTopic(
                    name=name,
                    num_partitions=1,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
                for name, configs in TOPICS.items()
            ]
            created = peer.ask(CreateTopicsRequest(topics=wanted, timeout_ms=30_000), 7)
            assert [topic.error_code for topic in created.topics] == [0] * len(TOPICS)
        yield broker


@pytest.fixture(scope="module")
def bystander(broker: Headrace) -> Iterator[Bystander]:
    bystander = Bystander(broker.port)
    yield bystander
    bystander.stop()


@pytest.fixture(scope="module")
def settled_bytes(broker: Headrace, bystander: Bystander) -> int:
    """What a broker takes that has served a while."""
    bystander.rounds(50)
    return resident_bytes(broker)


@pytest.fixture(autouse=True)
def unharmed(
    broker: Headrace,
    bystander: Bystander,
    settled_bytes: int,
) -> Iterator[None]:
    """What holds during and after every case."""
    bystander.rounds(0)
    yield
    bystander.rounds(3)
    assert broker.is_running
    faults = [
        line for line in broker.output().splitlines() if "internal_error" in line or "loop_error" in line
    ]
    assert not faults
    assert resident_bytes(broker) - settled_bytes < GROWTH_BYTES_MAX
    assert peak_bytes(broker) < PEAK_BYTES_MAX


def resident_bytes(broker: Headrace) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def peak_bytes(broker: Headrace) -> int:
    """The most it ever took; where the system does not tell, what it takes now."""
    status = Path(f"/proc/{broker.pid}/status")
    if not status.exists():
        return resident_bytes(broker)
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


# --- frames and headers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLOSES)
def test_closes_the_connection(broker: Headrace, name: str) -> None:
    with Peer(broker.port) as peer:
        peer.send(CLOSES[name])
        assert peer.answer() is None


def test_frame_that_never_ends_goes_with_its_sender(broker: Headrace) -> None:
    """A length beyond the body waits for the rest; a peer that hangs up gets nothing, and nothing is kept."""
    with Peer(broker.port) as peer:
        peer.send(struct.pack(">i", 1000) + header(METADATA, 1) + struct.pack(">i", 0))
        peer.shut_down()
        assert peer.answer() is None


def test_announced_frames_cost_little_before_they_arrive(broker: Headrace) -> None:
    """A hundred peers announce 100 MB each: 10 GB by their own account, 2 MB each by ours."""
    before = resident_bytes(broker)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(broker.port)) for _ in range(100)]
        for peer in peers:
            peer.send(struct.pack(">i", FRAME_BYTES_MAX) + header(PRODUCE, 3) + bytes(1000))
        assert peers_are_served(broker)
        assert resident_bytes(broker) - before < 100 * 2.5 * MEGABYTE


def peers_are_served(broker: Headrace) -> bool:
    with Peer(broker.port) as peer:
        return bool(peer.ask(MetadataRequest(topics=[]), 4).brokers)


def test_later_api_versions_are_answered_in_version_0(broker: Headrace) -> None:
    """KIP-511: a client from the future learns our range and asks again, on the same connection."""
    for version in (5, 99, 32_767):
        with Peer(broker.port) as peer:
            peer.send(frame(header(API_VERSIONS, version, tags=b"\0") + bytes(20)))
            answer = peer.decoded(API_VERSIONS, 0)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [(key.api_key, key.max_version) for key in answer.api_keys] == [(API_VERSIONS, 4)]
            again = ApiVersionsRequest(client_software_name="future", client_software_version="9")
            assert peer.ask(again, 4).error_code == ErrorCode.NONE


def test_strange_software_names_are_refused(broker: Headrace) -> None:
    with Peer(broker.port) as peer:
        for name in ("", "a b", "x\n2026 error internal_error", "-", "ü"):
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
            assert peer.ask(request, 4).error_code == ErrorCode.INVALID_REQUEST


def test_bytes_behind_a_request_are_ignored(broker: Headrace) -> None:
    with Peer(broker.port) as peer:
        peer.send(frame(header(METADATA, 4) + struct.pack(">ib", 0, 0) + b"and more" * 100))
        assert peer.decoded(METADATA, 4).brokers


# --- names and counts -------------------------------------------------------------------------------------

BAD_NAMES = [
    "",
    ".",
    "..",
    "a/b",
    "../../etc",
    "/etc",
    "a\\b",
    "a\0b",
    "x" * 250,
    "x" * 32_767,
    "ü",
    "a b",
    "\n",
]


@pytest.mark.parametrize("version", [4, 7])
def test_topic_names_that_are_no_file_names(broker: Headrace, version: int) -> None:
    with Peer(broker.port) as peer:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in BAD_NAMES]
        created = peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), version).topics
        assert {topic.name for topic in created} == set(BAD_NAMES)
        assert {topic.error_code for topic in created} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
        asked = [MetadataRequestTopic(name=name) for name in BAD_NAMES]
        told = peer.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 4).topics
        assert {topic.error_code for topic in told} == {ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_hundred_thousand_topics_in_one_request(broker: Headrace) -> None:
    """A large question is answered; one that would hold up everybody costs its sender the connection."""
    asked = [MetadataRequestTopic(name=f"t{number}") for number in range(10**5)]
    with Peer(broker.port) as peer:
        large = MetadataRequest(topics=asked[: 2 * 10**4], allow_auto_topic_creation=False)
        told = peer.ask(large, 4).topics
        assert len(told) == 2 * 10**4
        assert {topic.error_code for topic in told} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        peer.send(encoded(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 4))
        assert peer.answer() is None


def test_a_million_partitions_are_not_created(broker: Headrace) -> None:
    with Peer(broker.port) as peer:
        topic = CreatableTopic(name="million", num_partitions=10**6, replication_factor=1)
        (created,) = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics
        assert created.error_code == ErrorCode.POLICY_VIOLATION
        grown = CreatePartitionsTopic(name=PLAIN, count=10**6, assignments=None)
        (result,) = peer.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 3).results
        assert result.error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("count", [0, -2, -(2**31)])
def test_impossible_partition_counts(broker: Headrace, count: int) -> None:
    with Peer(broker.port) as peer:
        topic = CreatableTopic(name="impossible", num_partitions=count, replication_factor=1)
        (created,) = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics
        assert created.error_code == ErrorCode.INVALID_PARTITIONS


def test_one_partition_named_many_thousand_times(broker: Headrace) -> None:
    """Answered once by Fetch, refused by ListOffsets: the cost is not the client's to multiply."""
    with Peer(broker.port) as peer:
        assert produce(peer, PLAIN, good()) == ErrorCode.NONE
        many = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)] * (3 * 10**4)
        answer = fetch(peer, FetchTopic(topic=PLAIN, partitions=many))
        assert [len(topic.partitions) for topic in answer.responses] == [1]
        asked = ListOffsetsTopic(
            name=PLAIN, partitions=[ListOffsetsPartition(partition_index=0, timestamp=0)] * 10**4
        )
        listed = peer.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 1)
        codes = [partition.error_code for topic in listed.topics for partition in topic.partitions]
        assert codes == [ErrorCode.INVALID_REQUEST]


def test_fetch_sessions_of_partitions_that_do_not_exist(broker: Headrace) -> None:
    """Each session may remember what it likes, all of them together only so much."""
    unknown = [FetchPartition(partition=number, fetch_offset=0) for number in range(3 * 10**4)]
    topic = FetchTopic(topic="nowhere", partitions=unknown)
    request = encoded(FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[topic]), 7)
    sessions = []
    with Peer(broker.port) as peer:
        for _ in range(20):
            peer.send(request)
            answer = peer.answer()
            assert answer is not None
            _, _, error, session = struct.unpack_from(">iihi", answer)
            assert error == ErrorCode.NONE
            sessions.append(session)
    assert sessions[0] != 0
    assert sessions[-1] == 0


# --- record batches ---------------------------------------------------------------------------------------


def is_as_before(peer: Peer, topic: str, end: int) -> bool:
    """Nothing was appended, and the partition takes the next good batch."""
    return log_end(peer, topic) == end and produce(peer, topic, good()) == ErrorCode.NONE


@pytest.mark.parametrize("name", REFUSED)
def test_batches_refused_by_every_topic(broker: Headrace, name: str) -> None:
    records, code = REFUSED[name]
    with Peer(broker.port) as peer:
        assert produce(peer, PLAIN, good()) == ErrorCode.NONE  # the connection may have learned a short cut
        end = log_end(peer, PLAIN)
        assert produce(peer, PLAIN, records) == code
        assert is_as_before(peer, PLAIN, end)


@pytest.mark.parametrize("topic", [OPENED, RECODED])
def test_batches_refused_when_opened(broker: Headrace, topic: str) -> None:
    with Peer(broker.port) as peer:
        for name, records in REFUSED_WHEN_OPENED.items():
            if topic == RECODED and "as gzip" in name:
                continue  # it has the topic's codec already and is stored as it came
            end = log_end(peer, topic)
            assert produce(peer, topic, records) == ErrorCode.INVALID_RECORD, name
            assert is_as_before(peer, topic, end), name


def test_sequences_and_epochs_out_of_order(broker: Headrace) -> None:
    with Peer(broker.port) as peer:
        for epoch, sequence, code in (
            (3, 0, ErrorCode.NONE),
            (3, 7, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            (3, 2**31 - 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            (4, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            (2, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
            (3, 1, ErrorCode.NONE),
        ):
            batch = Batch(record(), producer_id=77, producer_epoch=epoch, base_sequence=sequence)
            assert produce(peer, PLAIN, batch.encoded()) == code


def test_a_bad_batch_closes_a_connection_that_awaits_no_answer(broker: Headrace) -> None:
    with Peer(broker.port) as peer:
        peer.send(encoded(produce_request(PLAIN, REFUSED["bad checksum"][0], acks=0), 9))
        assert peer.answer() is None


def test_zstd_before_version_7(broker: Headrace) -> None:
    batch = Batch(BOMBS["zstd"][1](1), attributes=ZSTD).encoded()
    with Peer(broker.port) as peer:
        assert produce(peer, PLAIN, batch, version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert produce(peer, PLAIN, batch, version=7) == ErrorCode.NONE


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_acks_that_mean_nothing(broker: Headrace, acks: int) -> None:
    with Peer(broker.port) as peer:
        assert produce(peer, PLAIN, good(), acks=acks) == ErrorCode.INVALID_REQUIRED_ACKS


def test_null_records(broker: Headrace) -> None:
    with Peer(broker.port) as peer:
        assert produce(peer, PLAIN, None) == ErrorCode.INVALID_RECORD


def test_a_million_headers_are_just_bytes(broker: Headrace) -> None:
    """They are the client's to send: taken as they are, and nothing is made of them on their way."""
    batch = Batch(record(headers=many_headers(10**6))).encoded()
    with Peer(broker.port) as peer:
        assert produce(peer, WIDE, batch) == ErrorCode.NONE
        assert produce(peer, PLAIN, batch) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("name", BOMBS)
def test_compression_bombs(broker: Headrace, name: str) -> None:
    """Stored where nobody opens them; where batches are opened, refused before they fill the memory."""
    codec, make, megabytes = BOMBS[name]
    batch = Batch(make(megabytes), attributes=codec).encoded()
    with Peer(broker.port) as peer:
        assert produce(peer, OPENED, batch) == ErrorCode.INVALID_RECORD
        assert produce(peer, OPENED, good()) == ErrorCode.NONE


def test_a_bomb_that_would_be_recoded(broker: Headrace) -> None:
    codec, make, megabytes = BOMBS["zstd"]
    with Peer(broker.port) as peer:
        bomb = Batch(make(megabytes), attributes=codec).encoded()
        assert produce(peer, RECODED, bomb) == ErrorCode.INVALID_RECORD


def test_a_stored_bomb_and_a_question_about_its_time(broker: Headrace) -> None:
    """The broker opens a stored batch only to find a record by its timestamp."""
    codec, make, megabytes = BOMBS["zstd"]
    topic = "bombed"
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=5)])
    with Peer(broker.port) as peer:
        told = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 4)
        assert told.topics[0].error_code == ErrorCode.NONE
        bomb = Batch(make(megabytes), attributes=codec, timestamp=10).encoded()
        assert produce(peer, topic, bomb) == ErrorCode.NONE
        answer = peer.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 1)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_RECORD


# --- fetch and sessions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31)])
def test_fetch_limits_that_mean_nothing(broker: Headrace, max_bytes: int) -> None:
    """KIP-74: one batch there always is, and never more than one."""
    with Peer(broker.port) as peer:
        assert produce(peer, PLAIN, good()) == ErrorCode.NONE
        for fields in ({"max_bytes": max_bytes}, {}):
            topic = of_plain(partition_max_bytes=max_bytes)
            data = fetch(peer, topic, **fields).responses[0].partitions[0]
            assert data.error_code == ErrorCode.NONE
            assert len(data.records) == len(good())


@pytest.mark.parametrize("offset", [-1, -2, -(2**63), 2**63 - 1])
def test_fetch_offsets_out_of_range(broker: Headrace, offset: int) -> None:
    with Peer(broker.port) as peer:
        data = fetch(peer, of_plain(fetch_offset=offset)).responses[0].partitions[0]
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("partition", [-1, 1, 2**31 - 1])
def test_fetch_of_partitions_that_are_not_there(broker: Headrace, partition: int) -> None:
    with Peer(broker.port) as peer:
        data = fetch(peer, of_plain(partition=partition)).responses[0].partitions[0]
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("replica", [1, 2, 2**31 - 1])
def test_forged_replicas(broker: Headrace, replica: int) -> None:
    """CVE-2018-1288: who claims to be a follower is not believed, be it in the name of the broker itself."""
    with Peer(broker.port) as peer:
        old = fetch(peer, of_plain(), replica_id=replica).responses[0].partitions[0]
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        (topic,) = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=PLAIN)]), 12).topics
        asked = FetchTopic(topic_id=topic.topic_id, partitions=of_plain().partitions)
        state = ReplicaState(replica_id=replica, replica_epoch=1)
        new = fetch(peer, asked, version=17, replica_state=state).responses[0].partitions[0]
        assert new.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("session", [1, 12_345, 2**31 - 1, -5])
def test_guessed_sessions(broker: Headrace, session: int) -> None:
    with Peer(broker.port) as peer:
        answer = fetch(peer, of_plain(), version=7, session_id=session, session_epoch=3)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert answer.responses == []


def test_sessions_at_a_wrong_epoch(broker: Headrace) -> None:
    with Peer(broker.port) as peer:
        session = fetch(peer, of_plain(), version=7, session_epoch=0).session_id
        answer = fetch(peer, of_plain(), version=7, session_id=session, session_epoch=9)
        assert answer.error_code in (
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,  # there was no room for one
        )


# --- slow and silent ones ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    """A broker that waits for nobody longer than a second."""
    settings = {"connections.max.idle.ms": str(IDLE_MS), "message.max.bytes": str(8 * MEGABYTE)}
    with Headrace(tmp_path_factory.mktemp("impatient"), settings) as broker:
        yield broker


def open_connections(broker: Headrace) -> int:
    """What the system says the broker holds, be the other side there or not."""
    connections = psutil.Process(broker.pid).net_connections("tcp")
    return sum(
        connection.status != psutil.CONN_LISTEN and connection.laddr.port == broker.port
        for connection in connections
    )


def test_a_byte_at_a_time_does_not_keep_a_connection(impatient: Headrace) -> None:
    """It is never silent, and its frame never ends; between its bytes others are served."""
    whole = struct.pack(">i", MEGABYTE) + header(PRODUCE, 3) + bytes(MEGABYTE)
    with Peer(impatient.port) as slow:
        slow.socket.setblocking(False)
        for byte in whole:
            try:
                slow.socket.send(bytes((byte,)))
                if slow.socket.recv(1) == b"":
                    break
            except BlockingIOError:
                assert peers_are_served(impatient)
            except (BrokenPipeError, ConnectionResetError):
                break
        else:
            pytest.fail("the whole frame was accepted byte by byte")
    assert peers_are_served(impatient)


def test_silence_is_ended(impatient: Headrace) -> None:
    with Peer(impatient.port) as silent, Peer(impatient.port) as halfway:
        halfway.send(struct.pack(">i", 1000) + header(METADATA, 1))
        assert silent.answer() is None
        assert halfway.answer() is None
    assert peers_are_served(impatient)


def test_who_never_reads_its_answers_is_ended(impatient: Headrace) -> None:
    with Peer(impatient.port) as peer:
        told = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=PLAIN)]), 4)
        assert told.topics[0].error_code == ErrorCode.NONE
        fill(peer, PLAIN, 32 * MEGABYTE)
    with Peer(impatient.port) as reader:
        ask_without_reading(reader, PLAIN, 20)
        eventually(lambda: open_connections(impatient), 0)
    assert peers_are_served(impatient)


def test_readers_that_never_read(broker: Headrace, bystander: Bystander) -> None:
    """Thirty of them ask for 1 GB each: it stays in the file, and the others are served."""
    before = resident_bytes(broker)
    with contextlib.ExitStack() as stack:
        fill(stack.enter_context(Peer(broker.port)), WIDE, 50 * MEGABYTE)
        for _ in range(30):
            ask_without_reading(stack.enter_context(Peer(broker.port)), WIDE, 20)
        bystander.rounds(100)
        assert resident_bytes(broker) - before < 30 * READER_BYTES_MAX


def test_a_thousand_idle_connections(broker: Headrace, bystander: Bystander) -> None:
    before = open_connections(broker)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(Peer(broker.port)) for _ in range(1000)]
        for peer in idle[::2]:
            peer.send(struct.pack(">i", 1000) + header(METADATA, 1))  # half of them in the middle of a frame
        bystander.rounds(100)
        assert peers_are_served(broker)
        assert idle[1].ask(MetadataRequest(topics=[]), 4).brokers
    eventually(lambda: open_connections(broker) <= before, True)


def test_a_thousand_requests_at_once_on_one_connection(broker: Headrace) -> None:
    """More than may be unanswered: the rest waits in the socket, and all are answered in their order."""
    with Peer(broker.port) as peer:
        end = log_end(peer, PLAIN)
        waiting = encoded(
            FetchRequest(max_wait_ms=1, min_bytes=2**31 - 1, topics=[of_plain(fetch_offset=end)]), 4
        )
        peer.send(waiting * 1000)
        for _ in range(1000):
            assert peer.decoded(FETCH, 4).responses[0].partitions[0].error_code == ErrorCode.NONE


def test_long_answers_behind_a_long_poll(broker: Headrace, bystander: Bystander) -> None:
    """Each connection asks 99 times for some ten megabytes: only the first answer is made before the poll's,
    and what waits for its client stays small.
    """
    before = open_connections(broker)
    resources = [DescribeConfigsResource(resource_type=4, resource_name="1") for _ in range(200)]
    settings = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            peer = stack.enter_context(Peer(broker.port))
            waiting = FetchRequest(
                max_wait_ms=2**31 - 1,
                min_bytes=2**31 - 1,
                topics=[of_plain(fetch_offset=log_end(peer, PLAIN))],
            )
            peer.send(encoded(waiting, 4) + encoded(settings, 4) * 99)
        bystander.rounds(50)
    eventually(lambda: open_connections(broker) <= before, True)


def test_long_polls_of_clients_that_have_gone(broker: Headrace, bystander: Bystander) -> None:
    """Each asks for more than may be unanswered, to wait for 24 days, and hangs up. Nobody hears that, since
    it is not read from; it is forgotten all the same, or every append would ask its fetches for ever.
    """
    before = open_connections(broker)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MEGABYTE)
    topic = FetchTopic(topic=BYSTANDERS_TOPIC, partitions=[wanted])
    endless = encoded(FetchRequest(max_wait_ms=2**31 - 1, min_bytes=2**31 - 1, topics=[topic]), 4)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(Peer(broker.port)).send(endless * 150)
        bystander.rounds(20)
    eventually(lambda: open_connections(broker) <= before, True)
