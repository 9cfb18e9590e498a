"""The border cases of encoding and decoding, on messages made up for them and on the hot ones."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace.base.limits import ELEMENTS_PER_REQUEST_MAX
from headrace.protocol.compiler import Codec, codec
from headrace.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.notation import (
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Data,
    Request,
    Struct,
    array,
    field,
)
from headrace.protocol.versioned import decode_versioned, encode_versioned
from headrace.simulator.frames import joined


class Part(Struct):
    number: int = field(INT16)


class Example(Data, versions="0-3", flexible="2+"):
    name: str = field(STRING)
    note: str | None = field(STRING, "1+", nullable="2+", ignorable=True)
    port: int = field(UINT16, "1+")
    parts: list[Part] = field(array(Part))
    ids: list[bytes] = field(array(UUID), "3+", ignorable=True)
    blob: bytes | None = field(BYTES, nullable="0+", default=None)
    level: int = field(INT8, "2+", default=-1, tag=3)
    names: list[str] = field(array(STRING), "2+", tag=1)


class Ask(Request, key=9999, versions="0-1", flexible="1+"):
    number: int = field(INT32)


def produce(records: object) -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=records)  # type: ignore[arg-type]
    topic = TopicProduceData(name="orders", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


def test_bytes_below_flexible() -> None:
    message = Example(name="ab", port=65535, parts=[Part(number=-2)])
    assert codec(Example, 1).encode(message) == bytes.fromhex(
        "0002 6162  0000  ffff  00000001 fffe  ffffffff".replace(" ", "")
    )


def test_bytes_from_flexible_on() -> None:
    message = Example(name="ab", note=None, parts=[Part(number=1)], blob=b"x", level=7, names=["n"])
    assert codec(Example, 2).encode(message) == bytes.fromhex(
        # tags in ascending order: 1 with one compact string, then 3
        "03 6162  00  0000  02 0001 00  02 78  02 01 03 02 026e 03 01 07".replace(" ", "")
    )


def test_default_tagged_fields_do_not_travel() -> None:
    assert codec(Example, 2).encode(Example(level=-1, names=[]))[-1:] == b"\0"


def test_length_of_128_takes_two_bytes() -> None:
    encoded = codec(Example, 2).encode(Example(name="x" * 127))
    assert encoded[:3] == b"\x80\x01x"
    assert codec(Example, 2).decode(encoded).name == "x" * 127


@pytest.mark.parametrize("version", [0, 1])
def test_field_that_the_version_lacks_is_refused(version: int) -> None:
    with pytest.raises(UnencodableMessage, match="level cannot be sent in version"):
        codec(Example, version).encode(Example(level=1))


def test_ignorable_field_that_the_version_lacks_is_dropped() -> None:
    encoded = codec(Example, 0).encode(Example(note="lost", ids=[bytes(16)]))
    assert codec(Example, 0).decode(encoded) == Example()


def test_null_needs_a_version_that_allows_it() -> None:
    with pytest.raises(UnencodableMessage):
        codec(Example, 1).encode(Example(note=None))
    assert codec(Example, 2).decode(codec(Example, 2).encode(Example(note=None))).note is None


@pytest.mark.parametrize(
    "message",
    [
        Example(port=65536),
        Example(port=-1),
        Example(name="x" * 32768),
        Example(name=None),  # type: ignore[arg-type]
        Example(name="\ud800"),
        Example(parts=[Part(number=40000)]),
        Example(parts=None),  # type: ignore[arg-type]
    ],
    ids=["port-high", "port-low", "long-name", "null-name", "surrogate", "int16", "null-array"],
)
def test_value_that_does_not_fit_is_our_fault(message: Example) -> None:
    with pytest.raises(UnencodableMessage):
        codec(Example, 1).encode(message)


def test_uuid_of_another_length_is_not_padded() -> None:
    with pytest.raises(UnencodableMessage, match="16 bytes"):
        codec(Example, 3).encode(Example(ids=[b"short"]))


def test_unknown_tags_are_skipped() -> None:
    body = codec(Example, 2).encode(Example(level=5))
    assert body.endswith(b"\x01\x03\x01\x05")
    extended = body[:-4] + b"\x03\x03\x01\x05\x09\x02zz\xff\x01\x00"
    assert codec(Example, 2).decode(extended) == Example(level=5)


@pytest.mark.parametrize(
    "tags",
    ["01 03 02 05", "01 03 01", "02 03 01 05 03 01 06", "02 03 01 05 01 01 01", "ffffffff0f", "01 09 7f 00"],
    ids=["size-too-large", "cut", "twice", "descending", "count", "beyond-the-end"],
)
def test_broken_tag_buffer_is_malformed(tags: str) -> None:
    body = codec(Example, 2).encode(Example())[:-1] + bytes.fromhex(tags.replace(" ", ""))
    with pytest.raises(MalformedMessage):
        codec(Example, 2).decode(body)


@pytest.mark.parametrize("length", ["7fff", "ffff", "0003"])
def test_string_longer_than_the_message_is_malformed(length: str) -> None:
    with pytest.raises(MalformedMessage):
        codec(Example, 0).decode(bytes.fromhex(length) + b"ab")


def test_bad_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        codec(Example, 0).decode(b"\x00\x02\xff\xfe" + bytes(8))


def test_a_request_has_so_many_elements_and_no_more() -> None:
    """All arrays together: each element costs time in which nobody else is served."""
    half = ELEMENTS_PER_REQUEST_MAX // 2
    topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0)] * half)]
    codec_of = codec(ProduceRequest, 3)
    assert codec_of.decode(codec_of.encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics)))
    with pytest.raises(MalformedMessage, match="too many"):
        codec_of.decode(codec_of.encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics * 2)))


def test_bytes_left_over_are_ignored_behind_a_request_only() -> None:
    """Kafka 4.3.1 answers a Metadata request with four more bytes behind it as if they were not there."""
    assert codec(Ask, 0).decode(b"\0\0\0\5more").number == 5
    with pytest.raises(MalformedMessage, match="left over"):
        codec(Example, 0).decode(codec(Example, 0).encode(Example()) + b"more")
    assert codec(Example, 0).decode(codec(Example, 0).encode(Example()) + b"more", 0, True) == Example()


@pytest.mark.parametrize("version", [7, 9, 13])
def test_records_are_a_view_of_the_frame(version: int) -> None:
    compiled = codec(ProduceRequest, version)
    frame = bytearray(compiled.encode(produce(b"batch")))
    records = compiled.decode(memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(records) == b"Batch"


@dataclass
class Span:
    size: int


@pytest.mark.parametrize("version", [7, 9])
def test_opaque_records_become_parts_of_their_own(version: int) -> None:
    compiled = codec(ProduceRequest, version)
    span = Span(5)
    whole = compiled.encode(produce(b"batch"))
    before, part, *after = compiled.encode_parts(produce(span))
    assert part is span
    assert joined([before, b"batch", *after]) == whole
    first, second = Span(2), Span(3)
    assert compiled.encode_parts(produce([first, second]))[1:3] == [first, second]
    assert compiled.encode(produce([b"ba", b"tch"])) == whole


@pytest.mark.parametrize("version", [7, 9])
def test_empty_and_null_records_make_no_part(version: int) -> None:
    compiled = codec(ProduceRequest, version)
    for records in (b"", None):
        (only,) = compiled.encode_parts(produce(records))
        assert only == compiled.encode(produce(records))
        assert compiled.decode(only).topic_data[0].partition_data[0].records == records


def test_opaque_records_need_parts() -> None:
    with pytest.raises(UnencodableMessage):
        codec(ProduceRequest, 9).encode(produce(Span(5)))


def test_tagged_struct_is_none_unless_it_says_something() -> None:
    """KIP-951: the hint travels only with the error it explains."""
    partition = PartitionData(partition_index=1, diverging_epoch=EpochEndOffset())
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[partition])])
    back = codec(FetchResponse, 16).decode(codec(FetchResponse, 16).encode(response))
    assert back.responses[0].partitions[0].diverging_epoch is None
    partition.diverging_epoch = EpochEndOffset(epoch=3, end_offset=8)
    response.node_endpoints = [NodeEndpoint(node_id=2, host="b", port=9092)]
    assert codec(FetchResponse, 16).decode(codec(FetchResponse, 16).encode(response)) == response


def test_functions_are_compiled_when_first_used() -> None:
    fresh = Codec(Example, 2)
    with pytest.raises(AttributeError):
        object.__getattribute__(fresh, "decode")
    assert fresh.decode is fresh.decode


def test_unknown_version_has_no_codec() -> None:
    with pytest.raises(UnsupportedVersion):
        codec(Example, 4)


def test_newer_consumer_protocol_is_read_as_the_newest_known() -> None:
    known = ConsumerProtocolSubscription(topics=["t"], rack_id="r")
    newer = b"\0\7" + encode_versioned(known, 3)[2:] + b"appended"
    assert decode_versioned(ConsumerProtocolSubscription, newer, newer=True) == known
    with pytest.raises(UnsupportedVersion):
        decode_versioned(ConsumerProtocolSubscription, newer)
    with pytest.raises(MalformedMessage):
        decode_versioned(ConsumerProtocolSubscription, b"\0")
