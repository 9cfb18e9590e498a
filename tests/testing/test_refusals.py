"""An answer with an error in it, for whatever was asked: every API in every version has one."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.routes import SERVED
from headrace.protocol.api import APIS, request_codec, response_codec
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.notation import Array, Field, Request, Struct
from headrace.testing.refusals import refusal

CODE = 42
METADATA = 3  # answered with the truth, but for the topics

VERSIONS = [
    (api_key, version)
    for api_key in SERVED
    for version in range(APIS[api_key].first, APIS[api_key].last + 1)
    if api_key != METADATA
]


def filled(kind: type[Struct], version: int) -> Any:
    """A message that asks about one of everything."""
    values = {
        field.name: value
        for field in kind.__fields__
        if version in field.versions and (value := filling(field, version)) is not None
    }
    return kind(**values)


def filling(field: Field, version: int) -> Any:
    if isinstance(field.kind, Array):
        element = field.kind.element
        is_struct = isinstance(element, type)
        return [filled(element, version) if is_struct else element.default]  # type: ignore[union-attr,arg-type]
    return None


def codes(message: Any) -> list[int]:
    """Every error code in an answer."""
    found = []
    for field in type(message).__fields__:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.append(value)
        elif isinstance(value, Struct):
            found += codes(value)
        elif isinstance(value, list):
            found += [code for one in value if isinstance(one, Struct) for code in codes(one)]
    return found


@pytest.mark.parametrize("is_filled", [True, False])
@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_every_api_can_be_refused(api_key: int, version: int, is_filled: bool) -> None:
    asked, answers = request_codec(api_key, version), response_codec(api_key, version)
    request = filled(asked.message, version) if is_filled else asked.message()
    answer = refusal(answers.message, version, request, CODE)
    if answer is None:
        assert not is_filled, "whoever asks about something can be told that it failed"
        return
    told = answers.decode(answers.encode(answer))
    assert CODE in codes(told)
    assert set(codes(told)) <= {CODE, 0}


def refused(request: Request, version: int) -> Any:
    return refusal(response_codec(request.KEY, version).message, version, request, CODE)


def test_produce_is_refused_partition_by_partition() -> None:
    topic = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=n) for n in (2, 5)])
    (told,) = refused(ProduceRequest(topic_data=[topic]), 9).responses
    assert told.name == "orders"
    assert [(one.index, one.error_code) for one in told.partition_responses] == [(2, CODE), (5, CODE)]


def test_produce_by_topic_id_is_refused_by_topic_id() -> None:
    topic = TopicProduceData(topic_id=b"0123456789abcdef", partition_data=[PartitionProduceData(index=0)])
    (told,) = refused(ProduceRequest(topic_data=[topic]), 13).responses
    assert told.topic_id == b"0123456789abcdef"


def test_fetch_is_refused_partition_by_partition_and_as_a_whole_when_it_names_none() -> None:
    named = refused(
        FetchRequest(topics=[FetchTopic(topic="a", partitions=[FetchPartition(partition=3)])]), 12
    )
    (told,) = named.responses
    (partition,) = told.partitions
    assert (told.topic, partition.partition_index, partition.error_code) == ("a", 3, CODE)
    assert named.error_code == 0
    assert refused(FetchRequest(), 12).error_code == CODE


def test_requests_with_plain_lists_are_mirrored() -> None:
    (told,) = refused(FindCoordinatorRequest(coordinator_keys=["readers"]), 4).coordinators
    assert (told.key, told.error_code) == ("readers", CODE)
    topic = AddPartitionsToTxnTopic(name="orders", partitions=[4])
    request = AddPartitionsToTxnRequest(v3_and_below_topics=[topic])
    (told,) = refused(request, 3).results_by_topic_v3_and_below
    (partition,) = told.results_by_partition
    assert (told.name, partition.partition_index) == ("orders", 4)
    assert partition.partition_error_code == CODE


def test_one_error_for_the_whole_request() -> None:
    assert refused(HeartbeatRequest(group_id="readers"), 4).error_code == CODE
    assert refused(FindCoordinatorRequest(key="readers"), 3).error_code == CODE


def test_names_are_told_back() -> None:
    (created,) = refused(CreateTopicsRequest(topics=[CreatableTopic(name="orders")]), 7).topics
    assert (created.name, created.error_code) == ("orders", CODE)
    (group,) = refused(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="readers")]), 8).groups
    assert (group.group_id, group.error_code) == ("readers", CODE)
    asked = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=1)])
    (listed,) = refused(ListOffsetsRequest(topics=[asked]), 7).topics
    assert (listed.name, listed.partitions[0].partition_index) == ("orders", 1)
