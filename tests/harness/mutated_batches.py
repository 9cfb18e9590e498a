"""Random record batches: mutated from a seed, and the check that both forms of the codec agree about them."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

from harness.interpreted import interpreted
from headrace.records import _codec, _columns, reader
from headrace.records.batch import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    COUNT_AT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    PRODUCER_ID_AT,
    BatchHeader,
    check_batches,
    check_replicated,
    renew_crc,
)
from headrace.records.builder import build_batch
from headrace.records.compression import Codec, compress
from headrace.records.errors import BadRecords

AS_BUILT = SimpleNamespace(codec=_codec, columns=_columns)
INTERPRETED = interpreted("_codec", "_columns")
BYTES_MAX = 1 << 20
# what varints and big-endian integers like to be when somebody lies
LIES = (
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\x80" * 10,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x01",
    b"\x03",
    b"\x00",
)
FIELDS = (LENGTH_AT, LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT, PRODUCER_ID_AT, COUNT_AT)


def outcome(work: Callable[[], object]) -> object:
    """What comes of it: a result, or the words of the refusal. Anything else than BadRecords is our fault."""
    try:
        return work()
    except BadRecords as refusal:
        return type(refusal), str(refusal)


def columns(form: SimpleNamespace, records: bytes, header: BatchHeader) -> object:
    made = form.columns.Columns()
    made.add(records, header.record_count, header.base_offset, header.base_timestamp, -1, "t", 0, 0)
    rows = made.row_count
    keys, values = made.keys, made.values
    return (
        [list(column)[:rows] for column in (made.offsets, made.timestamps)],
        [list(column)[: rows + 1] for column in (keys.places, values.places, made.header_places)],
        [
            bytes(column.data[: column.used])
            for column in (keys, values, made.header_keys, made.header_values)
        ],
        (keys.null_count, values.null_count, made.header_count, made.header_values.null_count),
    )


def looks(form: SimpleNamespace, records: bytes, header: BatchHeader) -> list[object]:
    """All that the codec can say about the records."""
    codec = form.codec
    count, offset, timestamp = header.record_count, header.base_offset, header.base_timestamp
    return [
        outcome(lambda: codec.decode_rows(records, count, offset, timestamp, -1)),
        outcome(lambda: codec.decode_keys(records, count, offset)),
        outcome(lambda: codec.first_from(records, count, offset, timestamp, timestamp)),
        outcome(lambda: codec.latest(records, count, offset, timestamp)),
        outcome(lambda: codec.validate(records, count, timestamp, True)),
        outcome(lambda: columns(form, records, header)),
    ]


def one(data: bytes) -> None:
    """Takes the bytes the way of a produce request, the way of a follower, and the way of a consumer."""
    outcome(lambda: check_batches(memoryview(data), BYTES_MAX))
    outcome(lambda: check_replicated(memoryview(data)))
    walked = outcome(lambda: list(reader.batches(data)))
    if not isinstance(walked, list):
        return
    for position, header in walked:
        opened = outcome(partial(reader.open_records, data, position, header, bytes_max=BYTES_MAX))
        if isinstance(opened, bytes):
            built, interpreted = looks(AS_BUILT, opened, header), looks(INTERPRETED, opened, header)
            assert built == interpreted, f"{built} as built, {interpreted} interpreted"


def batch_of(rng: random.Random) -> bytes:
    """A valid batch of a few records, not compressed."""
    timestamp = rng.choice((0, 1_700_000_000_000, (1 << 62)))

    def some(length: int) -> bytes | None:
        return None if rng.randrange(4) == 0 else rng.randbytes(rng.randrange(length))

    records = [
        (
            timestamp + rng.randrange(10_000),
            some(20),
            some(200),
            tuple((f"h{index}", some(9)) for index in range(rng.choice((0, 0, 0, 1, 3)))),
        )
        for _ in range(rng.randint(1, 6))
    ]
    return build_batch(records, base_offset=rng.choice((0, 1 << 40)))


def wounded(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    position = rng.randrange(len(out) + 1)
    match rng.randrange(4):
        case 0:
            out[position : position + 1] = rng.randbytes(1)
        case 1:
            lie = rng.choice(LIES)
            out[position : position + len(lie)] = lie
        case 2:
            out[position:position] = rng.randbytes(rng.randint(1, 4))
        case 3:
            del out[position : position + rng.randint(1, 4)]
    return bytes(out)


def mutated(batch: bytes, rng: random.Random) -> bytes:
    """The batch with wounds in its records, rarely in what they are wrapped in, then closed up again."""
    header, records = bytearray(batch[:HEADER_BYTES]), batch[HEADER_BYTES:]
    for _ in range(rng.choice((0, 1, 1, 2))):
        records = wounded(records, rng)
    codec = rng.choice((0, 0, *Codec))
    header[ATTRIBUTES_AT + 1] = codec
    records = compress(codec, records)
    if not rng.randrange(8):
        records = wounded(records, rng)
    if not rng.randrange(8):
        header[ATTRIBUTES_AT + 1] = rng.randrange(128)
    if not rng.randrange(4):
        field = rng.choice(FIELDS)
        header[field : field + 4] = rng.choice((rng.randbytes(4), *(lie for lie in LIES if len(lie) == 4)))
    out = header + records
    if rng.randrange(20):
        out[LENGTH_AT : LENGTH_AT + 4] = (len(out) - LENGTH_OVERHEAD).to_bytes(4, "big")
        renew_crc(out, 0)
    return bytes(out)


def drawn(rng: random.Random) -> bytes:
    return b"".join(mutated(batch_of(rng), rng) for _ in range(rng.choice((1, 1, 1, 2))))
