"""The contents of log files: one row per batch, index entry, producer or checkpoint line.

Nothing is opened for writing and nothing is repaired: the broker may run or not, and the files may be
Kafka's own. `Damaged` says where a file cannot be read.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any

from headrace.base.ids import id_text
from headrace.protocol.errors import ProtocolError
from headrace.protocol.metadata_records import decode_record
from headrace.records.batch import HEADER_BYTES, LENGTH_OVERHEAD, BatchHeader, check_crc, read_header
from headrace.records.builder import control_kind
from headrace.records.compression import Codec
from headrace.records.errors import BadRecords
from headrace.records.reader import read_rows
from headrace.storage.checkpoints import (
    META_PROPERTIES,
    PARTITION_METADATA,
    MalformedCheckpoint,
    parse_lines,
    parse_partition_metadata,
    parse_properties,
)
from headrace.storage.snapshots import DamagedSnapshot, decode_snapshot

Row = dict[str, Any]

_OFFSET_ENTRY = Struct(">ii")  # relative offset, position
_TIME_ENTRY = Struct(">qi")  # timestamp, relative offset
_ABORT_ENTRY = Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
_CONTROL_NAMES = (
    "abort",
    "commit",
    "leader change",
    "snapshot header",
    "snapshot footer",
    "kraft version",
    "voters",
)
_METADATA_TOPIC = "__cluster_metadata"


class Damaged(Exception):
    """The file is not what its name says; the message tells where."""


def kind_of(path: Path) -> str | None:
    """What a file is, by its name; None for one that is not a log's."""
    name = path.name
    for ending in (".deleted", ".cleaned", ".swap"):
        name = name.removesuffix(ending)
    if name in (PARTITION_METADATA, META_PROPERTIES):
        return "properties"
    stem, _, suffix = name.partition(".")
    if suffix in ("log", "checkpoint") and stem.replace("-", "").isdigit():
        return "segment"  # a metadata snapshot is one too
    if suffix in ("index", "timeindex", "txnindex", "snapshot") and stem.isdigit():
        return suffix
    return "checkpoint" if name.endswith("-checkpoint") else None


def base_offset_of(path: Path) -> int:
    return int(path.name.partition(".")[0].partition("-")[0])


def rows_of(path: Path, *, with_records: bool) -> Iterator[Row]:
    """Everything in the file, in its order."""
    match kind_of(path):
        case "segment":
            yield from _segment_rows(path, with_records=with_records)
        case "index":
            base = base_offset_of(path)
            for relative, position in entries(path, _OFFSET_ENTRY):
                yield {"offset": base + relative, "position": position}
        case "timeindex":
            base = base_offset_of(path)
            for timestamp, relative in entries(path, _TIME_ENTRY):
                yield {"timestamp": timestamp, "offset": base + relative}
        case "txnindex":
            for _, producer_id, first, last, stable in entries(path, _ABORT_ENTRY):
                yield {
                    "producer_id": producer_id,
                    "first_offset": first,
                    "last_offset": last,
                    "last_stable_offset": stable,
                }
        case "snapshot":
            yield from _snapshot_rows(path)
        case "properties":
            yield from _property_rows(path)
        case _:
            yield from _checkpoint_rows(path)


def entries(path: Path, layout: Struct) -> Iterator[tuple[int, ...]]:
    """The entries of an index. Zeros at the end are ignored: Kafka preallocates its active indexes."""
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    count = -(-used // layout.size)  # the last entry may itself end in zeros
    if count * layout.size > len(data):
        raise Damaged(f"the size of {len(data)} bytes is not a multiple of an entry's {layout.size} bytes")
    yield from layout.iter_unpack(data[: count * layout.size])


def batches_of(path: Path) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and the segment's bytes for each whole batch; Damaged at the first that is not
    sound.
    """
    size = path.stat().st_size
    if size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield from _batches(view)
        finally:
            view.release()


def _batches(view: memoryview) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    position = 0
    while position < len(view):
        left = len(view) - position
        if not any(view[position : position + HEADER_BYTES]):
            return  # preallocated space
        if left < HEADER_BYTES:
            raise Damaged(f"{left} bytes after the last whole batch, at position {position}")
        header = read_header(view, position)
        size = header.length + LENGTH_OVERHEAD
        if not HEADER_BYTES <= size <= left:
            raise Damaged(
                f"the batch at position {position} has {size} bytes, and the file has only {left} left"
            )
        yield position, header, view
        position += size


def _segment_rows(path: Path, *, with_records: bool) -> Iterator[Row]:
    is_metadata = path.parent.name.startswith(_METADATA_TOPIC) or path.suffix == ".checkpoint"
    for position, header, view in batches_of(path):
        row = _batch_row(position, header)
        try:
            check_crc(view, position)
            row["valid"] = True
            if with_records:
                row["records"] = [
                    _record_row(header, record, is_metadata=is_metadata)
                    for record in read_rows(view, position, header)
                ]
        except BadRecords as error:
            row["valid"] = False
            row["fault"] = str(error)
        yield row


def _batch_row(position: int, header: BatchHeader) -> Row:
    codec = Codec(header.codec).name.lower() if header.codec in set(Codec) else f"codec {header.codec}"
    row: Row = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "position": position,
        "size": header.size,
        "leader_epoch": header.leader_epoch,
        "codec": codec,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "crc": header.crc,
    }
    if header.has_producer:
        row["producer_id"] = header.producer_id
        row["producer_epoch"] = header.producer_epoch
        row["base_sequence"] = header.base_sequence
        row["last_sequence"] = header.last_sequence
    if header.is_transactional:
        row["transactional"] = True
    if header.is_control:
        row["control"] = True
    return row


def _record_row(header: BatchHeader, record: tuple[Any, ...], *, is_metadata: bool) -> Row:
    offset, timestamp, key, value, headers = record
    row: Row = {"offset": offset, "timestamp": timestamp}
    if header.is_control:
        kind = control_kind(key)
        row["control"] = _CONTROL_NAMES[kind] if 0 <= kind < len(_CONTROL_NAMES) else f"type {kind}"
        return row
    if is_metadata and value is not None:
        try:
            row["metadata"] = repr(decode_record(value))
            return row
        except ProtocolError as error:
            row["fault"] = str(error)
    row["key"], row["value"] = key, value
    if headers:
        row["headers"] = [list(header) for header in headers]
    return row


def _snapshot_rows(path: Path) -> Iterator[Row]:
    try:
        state = decode_snapshot(path.read_bytes(), 0)
    except DamagedSnapshot as error:
        raise Damaged(str(error)) from error
    for producer in state:
        yield {
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "timestamp": producer.timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_start": producer.transaction_start,
        }


def _property_rows(path: Path) -> Iterator[Row]:
    data = path.read_bytes()
    if path.name == META_PROPERTIES:
        yield dict(parse_properties(data))
        return
    try:
        yield {"topic_id": id_text(parse_partition_metadata(data))}
    except MalformedCheckpoint as error:
        raise Damaged(str(error)) from error


def _checkpoint_rows(path: Path) -> Iterator[Row]:
    try:
        lines = parse_lines(path.read_bytes())
    except MalformedCheckpoint as error:
        raise Damaged(str(error)) from error
    names = (
        ("epoch", "start_offset")
        if path.name.startswith("leader-epoch")
        else ("topic", "partition", "offset")
    )
    for line in lines:
        if len(line) != len(names):
            raise Damaged(f"a line has {len(line)} words instead of {len(names)}")
        yield {name: int(word) if name != "topic" else word for name, word in zip(names, line, strict=True)}
