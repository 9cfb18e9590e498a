"""Bytes that Kafka 4.3.1 and its Java clients sent: decoded, and encoded again to the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.protocol import coordinator_records, framing
from headrace.protocol.api import APIS, ApiKey, request_codec, response_codec
from headrace.protocol.compiler import codec
from headrace.protocol.coordinator_records import GROUP_RECORDS, TRANSACTION_RECORDS
from headrace.protocol.coordinator_records.groups import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from headrace.protocol.messages.control_records import (
    ControlRecordKey,
    ControlRecordType,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from headrace.protocol.metadata_records import decode_record, encode_record
from headrace.protocol.versioned import decode_versioned, encode_versioned
from headrace.simulator.frames import joined

GOLDEN = Path(__file__).parents[1] / "golden"


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]


FRAMES = [
    (ApiKey[path.stem.upper()], int(version), bytes.fromhex(data))
    for path in sorted((GOLDEN / "frames").glob("*.txt"))
    for version, kind, data in lines(path)
    if kind == "request"
]
ANSWERS = [
    (ApiKey[path.stem.upper()], int(version), bytes.fromhex(data))
    for path in sorted((GOLDEN / "frames").glob("*.txt"))
    for version, kind, data in lines(path)
    if kind == "response"
]


@pytest.mark.parametrize(("key", "version", "frame"), FRAMES, ids=lambda value: str(value)[:20])
def test_request_keeps_its_bytes(key: ApiKey, version: int, frame: bytes) -> None:
    api_key, api_version, correlation_id, client_id, body = framing.decode_request_header(memoryview(frame))
    assert (api_key, api_version) == (key, version)
    compiled = request_codec(key, version)
    parts = compiled.encode_parts(compiled.decode(memoryview(frame), body))
    again = joined(framing.request_frame(key, version, correlation_id, client_id, parts))
    assert again == len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize(("key", "version", "frame"), ANSWERS, ids=lambda value: str(value)[:20])
def test_response_keeps_its_bytes(key: ApiKey, version: int, frame: bytes) -> None:
    compiled = response_codec(key, version)
    correlation_id, body = framing.decode_response_header(memoryview(frame), compiled.header_version)
    parts = compiled.encode_parts(compiled.decode(memoryview(frame), body))
    again = joined(framing.response_frame(correlation_id, compiled.header_version, parts))
    assert again == len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_means_what_was_sent(version: int) -> None:
    """Equal bytes could still sit in swapped fields: an exchange with known values, in every version."""
    rows = [bytes.fromhex(row[2]) for row in lines(GOLDEN / "frames/produce.txt") if row[0] == str(version)]
    position = framing.decode_request_header(rows[0])[4]
    asked = request_codec(ApiKey.PRODUCE, version).decode(rows[0], position)
    assert (asked.transactional_id, asked.acks, asked.timeout_ms) == (None, -1, 5000)
    partition = asked.topic_data[0].partition_data[0]
    assert partition.index == 0
    assert f"value {version}".encode() in bytes(partition.records)
    compiled = response_codec(ApiKey.PRODUCE, version)
    told = compiled.decode(rows[1], 4 + compiled.header_version).responses[0].partition_responses[0]
    assert (told.index, told.error_code, told.base_offset, told.log_append_time_ms) == (0, 0, version - 3, -1)
    assert told.log_start_offset == (0 if version >= 5 else -1)


def test_api_versions_agree_with_our_table() -> None:
    version, _, data = next(row for row in lines(GOLDEN / "frames/api_versions.txt") if row[1] == "response")
    told = response_codec(ApiKey.API_VERSIONS, int(version)).decode(bytes.fromhex(data), 4)
    served = {entry.api_key: (entry.min_version, entry.max_version) for entry in told.api_keys}
    assert served.pop(ApiKey.PRODUCE) == (0, APIS[ApiKey.PRODUCE].last)
    ours = {key: (api.first, api.last) for key, api in APIS.items()}
    assert {key: span for key, span in served.items() if key in ours} == {
        key: ours[key] for key in served if key in ours
    }
    assert len(served.keys() & ours.keys()) > 50


@pytest.mark.parametrize("row", lines(GOLDEN / "metadata_records.txt"), ids=lambda row: f"{row[0]}-{row[1]}")
def test_metadata_record_keeps_its_bytes(row: list[str]) -> None:
    name, version, data = row
    message = decode_record(memoryview(bytes.fromhex(data)))
    assert type(message).__name__ == name
    assert encode_record(message, int(version)) == bytes.fromhex(data)


def test_control_records_keep_their_bytes() -> None:
    values = {
        ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
        ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
        ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    }
    seen = set()
    for key, value in lines(GOLDEN / "control_records.txt"):
        decoded = decode_versioned(ControlRecordKey, bytes.fromhex(key))
        assert encode_versioned(decoded, 0) == bytes.fromhex(key)
        kind = ControlRecordType(decoded.type)
        compiled: Any = codec(values[kind], 0)
        assert compiled.encode(compiled.decode(bytes.fromhex(value))) == bytes.fromhex(value)
        seen.add(kind)
    assert seen == values.keys()


def coordinator_rows() -> list[tuple[coordinator_records.Kinds, bytes, bytes | None]]:
    kinds = {"group": GROUP_RECORDS, "transaction": TRANSACTION_RECORDS}
    return [
        (kinds[coordinator], bytes.fromhex(key), None if value == "-" else bytes.fromhex(value))
        for coordinator, key, value in lines(GOLDEN / "coordinator_records.txt")
    ]


def test_coordinators_records_keep_their_bytes() -> None:
    """In the versions that Kafka writes, every kind that it still writes."""
    seen = set()
    for kinds, key, value in coordinator_rows():
        record = coordinator_records.decode(kinds, key, value)
        assert record is not None
        assert coordinator_records.encode(record) == (key, value), record
        if value is not None:
            seen.add(type(record.key).__name__)
    retired = {"LegacyOffsetCommitKey", "ConsumerGroupPartitionMetadataKey"}
    every = {key.__name__ for kinds in (GROUP_RECORDS, TRANSACTION_RECORDS) for key, _ in kinds.values()}
    assert seen == every - retired


def test_a_member_of_the_new_protocol_is_no_classic_one() -> None:
    """Null is written: to Kafka, a member record without the field would be a classic member's."""
    told = {
        record.value.client_id: record.value.classic_member_metadata
        for kinds, key, value in coordinator_rows()
        if (record := coordinator_records.decode(kinds, key, value)) is not None
        and isinstance(record.value, ConsumerGroupMemberMetadataValue)
        and record.value.subscribed_topic_regex
    }
    assert told == {"golden": None}
    blank = ConsumerGroupMemberMetadataValue(classic_member_metadata=ClassicMemberMetadata())
    compiled = codec(ConsumerGroupMemberMetadataValue, 0)
    assert compiled.encode(blank).endswith(b"\0"), "no tagged field"
    assert compiled.encode(ConsumerGroupMemberMetadataValue()).endswith(b"\1\0\1\0"), "one: tag, size, null"
