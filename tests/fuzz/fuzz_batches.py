"""Batches full of rubbish: whatever a producer or a disk hands over is read, or refused as BadRecords.

`one` takes the bytes of a produce request's records field. The checksum is made right again before, or no
rubbish would get past it. Both forms of the codec look at the records and have to agree, word by word.
`make test` runs a bounded number; for longer:

    python tests/fuzz/fuzz_batches.py --seconds 60 --seed 7
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from types import SimpleNamespace

from harness.fuzz_cases import main, run_cases
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

CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "5000"))
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
    """All that the codec can tell of the records."""
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
        opened = outcome(
            lambda at=position, of=header: reader.open_records(data, at, of, bytes_max=BYTES_MAX)
        )
        if isinstance(opened, bytes):
            built, interpreted = looks(AS_BUILT, opened, header), looks(INTERPRETED, opened, header)
            assert built == interpreted, f"{built} as built, {interpreted} interpreted"


def batch_of(dice: random.Random) -> bytes:
    """A valid batch of a few records, not compressed."""
    timestamp = dice.choice((0, 1_700_000_000_000, (1 << 62)))

    def some(length: int) -> bytes | None:
        return None if dice.randrange(4) == 0 else dice.randbytes(dice.randrange(length))

    records = [
        (
            timestamp + dice.randrange(10_000),
            some(20),
            some(200),
            tuple((f"h{index}", some(9)) for index in range(dice.choice((0, 0, 0, 1, 3)))),
        )
        for _ in range(dice.randint(1, 6))
    ]
    return build_batch(records, base_offset=dice.choice((0, 1 << 40)))


def wounded(data: bytes, dice: random.Random) -> bytes:
    out = bytearray(data)
    position = dice.randrange(len(out) + 1)
    match dice.randrange(4):
        case 0:
            out[position : position + 1] = dice.randbytes(1)
        case 1:
            lie = dice.choice(LIES)
            out[position : position + len(lie)] = lie
        case 2:
            out[position:position] = dice.randbytes(dice.randint(1, 4))
        case 3:
            del out[position : position + dice.randint(1, 4)]
    return bytes(out)


def mutated(batch: bytes, dice: random.Random) -> bytes:
    """The batch with wounds in its records, rarely in what they are wrapped in, then closed up again."""
    header, records = bytearray(batch[:HEADER_BYTES]), batch[HEADER_BYTES:]
    for _ in range(dice.choice((0, 1, 1, 2))):
        records = wounded(records, dice)
    codec = dice.choice((0, 0, *Codec))
    header[ATTRIBUTES_AT + 1] = codec
    records = compress(codec, records)
    if not dice.randrange(8):
        records = wounded(records, dice)
    if not dice.randrange(8):
        header[ATTRIBUTES_AT + 1] = dice.randrange(128)
    if not dice.randrange(4):
        field = dice.choice(FIELDS)
        header[field : field + 4] = dice.choice((dice.randbytes(4), *(lie for lie in LIES if len(lie) == 4)))
    out = header + records
    if dice.randrange(20):
        out[LENGTH_AT : LENGTH_AT + 4] = (len(out) - LENGTH_OVERHEAD).to_bytes(4, "big")
        renew_crc(out, 0)
    return bytes(out)


def drawn(dice: random.Random) -> bytes:
    return b"".join(mutated(batch_of(dice), dice) for _ in range(dice.choice((1, 1, 1, 2))))


def test_batches_of_rubbish() -> None:
    assert run_cases(drawn, one, seed=1, cases=CASES) == CASES


if __name__ == "__main__":
    main(drawn, one, __doc__)
