"""Batches that Kafka's Java classes and librdkafka wrote (golden/ tells how) open to their records."""

from pathlib import Path

import pytest

from headrace.client.consumer.arrow import table_of
from headrace.records import reader
from headrace.records._columns import Columns
from headrace.records.batch import check_batches, read_header
from headrace.records.compression import CODEC_NAMES, decompress
from headrace.records.fetched import Fetched

GOLDEN = Path(__file__).with_name("golden")
NAMES = sorted(path.stem for path in GOLDEN.glob("*.bin"))
TIMESTAMP = 1_700_000_000_000


def expected(name: str) -> list[tuple[object, ...]]:
    factor = 60 if "large" in name else 1
    base = 0 if name.startswith("librdkafka") else 1234
    return [
        (
            base + i,
            TIMESTAMP + i * i,
            None if i % 3 == 0 else b"key-%d" % i,
            None if i % 5 == 4 else b"value-%d " % i * (i * factor),
            (("größe", b"%d" % i), ("none", None)) if i % 7 == 0 else (),
        )
        for i in range(40)
    ]


def test_all_codecs_of_both_clients_are_there() -> None:
    assert {f"{client}-{codec}" for client in ("java", "librdkafka") for codec in CODEC_NAMES} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_batch_opens_to_its_records(name: str) -> None:
    raw = (GOLDEN / f"{name}.bin").read_bytes()
    (header,) = check_batches(memoryview(raw), 1 << 20)
    assert header.codec == CODEC_NAMES[name.rpartition("-")[2]]
    assert (header.base_timestamp, header.max_timestamp) == (TIMESTAMP, TIMESTAMP + 39 * 39)
    assert reader.read_rows(raw, 0, header) == expected(name)
    assert reader.validate_records(raw, 0, header, keys_required=False) == header.max_timestamp
    columns = Columns()
    assert Fetched("t", 0, raw, 0).take_columns(columns)
    headers = [
        tuple((header["key"], header["value"]) for header in row)
        for row in table_of(columns)["headers"].to_pylist()
    ]
    assert headers == [row[4] for row in expected(name)]


@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_uncompressed_batches_are_rebuilt_byte_for_byte(client: str) -> None:
    from headrace.records.builder import build_batch

    raw = (GOLDEN / f"{client}-none.bin").read_bytes()
    header = read_header(raw)
    rebuilt = build_batch(
        [row[1:] for row in reader.read_rows(raw, 0, header)],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    assert rebuilt == raw


def test_both_framings_of_snappy_are_among_them() -> None:
    java = (GOLDEN / "java-snappy.bin").read_bytes()[61:]
    librdkafka = (GOLDEN / "librdkafka-snappy.bin").read_bytes()[61:]
    assert java.startswith(b"\x82SNAPPY\0")
    assert not librdkafka.startswith(b"\x82SNAPPY\0")
    assert decompress(2, java) == decompress(2, librdkafka)
