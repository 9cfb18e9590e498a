"""Authorization has one place where it is asked; for quotas see test_quotas.py."""

from harness.authorizers import Nobody
from headrace.node.authorization import Operation, Resource
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])


def host_with_topic() -> ManualHost:
    host = ManualHost()
    host.create_topic("t")
    return host


def fetch() -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])])


def test_without_the_right_nothing_is_written_or_read_also_by_the_fast_path() -> None:
    host = host_with_topic()
    connection = host.connect()
    for _ in range(2):
        host.ask(host.produce_request("t", BATCH, acks=1), 9, connection)
    assert connection.fast_path is not None
    nobody = host.node.access.authorizer = Nobody()
    refused = host.ask(host.produce_request("t", BATCH, acks=1), 9, connection)
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    read = host.ask(fetch(), 11).responses[0].partitions[0]
    assert (read.error_code, bytes(read.records)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    listed = host.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5).topics[0].partitions[0]
    assert (listed.error_code, listed.offset) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    assert nobody.asked == [
        (Operation.WRITE, Resource.TOPIC, "t"),
        (Operation.READ, Resource.TOPIC, "t"),
        (Operation.DESCRIBE, Resource.TOPIC, "t"),
    ]
    assert host.partitions("t")[0].high_watermark == 2
