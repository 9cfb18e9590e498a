"""Files of a lake table: ranges that make up the whole, proofs, statistics, and unfinished files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.lake_topic import FIRST_MS, rows
from headrace.lake import files
from headrace.lake.delta_stats import delta_stats
from headrace.lake.files import Piece, read_proof, write_loss, write_span
from headrace.lake.row_hash import added_up, row_hashes
from headrace.lake.rows import RAW_SCHEMA
from headrace.lake.statistics import Statistics
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.proof import HASH_MASK, Proof, WrongFooter

SPAN = Span(3, 10, 30)


def table(*offsets: int) -> pa.Table:
    return rows(3, {offset: b"value-%d" % offset for offset in offsets})


def piece(*offsets: int) -> Piece:
    return Piece(offsets[0], table(*offsets))


def test_a_file_has_its_rows_and_their_proof(tmp_path: Path) -> None:
    first, second = table(10, 11), table(15)
    pieces = [Piece(10, first), Piece(12, table()), Piece(15, second)]
    (written,) = write_span(tmp_path, RAW_SCHEMA, "id", SPAN, pieces)
    path = tmp_path / written.name
    total = (added_up(row_hashes(first)) + added_up(row_hashes(second))) & HASH_MASK
    assert written.proof.proofs == (Proof(SPAN, 3, total),)
    assert read_proof(path) == written.proof
    assert written.spans == [SPAN]
    assert written.size == path.stat().st_size
    assert pq.read_table(path).equals(pa.concat_tables([first, second]))


def test_the_files_of_a_long_range_touch_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file ends at the first offset of the next one: offsets without rows between them are not lost."""
    monkeypatch.setattr(files, "FILE_BYTES", 1)
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 1)
    pieces = [piece(10, 11), piece(15), piece(20, 21)]
    written = list(write_span(tmp_path, RAW_SCHEMA, "id", SPAN, pieces))
    assert [file.spans for file in written] == [[Span(3, 10, 15)], [Span(3, 15, 20)], [Span(3, 20, 30)]]
    assert [file.proof.row_count for file in written] == [2, 1, 2]
    assert [pq.read_table(tmp_path / file.name)["_offset"].to_pylist() for file in written] == [
        [10, 11],
        [15],
        [20, 21],
    ]


def test_a_range_without_rows_has_a_file_as_well(tmp_path: Path) -> None:
    (written,) = write_span(tmp_path, RAW_SCHEMA, "id", SPAN, [])
    assert written.proof.proofs == (Proof(SPAN, 0, 0),)
    assert written.stats.row_count == 0
    assert pq.read_table(tmp_path / written.name).num_rows == 0


def test_a_file_says_which_records_were_lost(tmp_path: Path) -> None:
    written = write_loss(tmp_path, RAW_SCHEMA, "id", SPAN)
    (proof,) = read_proof(tmp_path / written.name).proofs
    assert (proof.span, proof.row_count, proof.is_lost) == (SPAN, 0, True)


def test_a_read_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Iterator[Piece]:
        yield piece(10)
        raise ConnectionError("away")

    with pytest.raises(ConnectionError):
        list(write_span(tmp_path, RAW_SCHEMA, "id", SPAN, broken()))
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_program_has_no_proof(tmp_path: Path) -> None:
    pq.write_table(table(10), tmp_path / "foreign.parquet")
    with pytest.raises(WrongFooter, match="another program wrote the file"):
        read_proof(tmp_path / "foreign.parquet")


def stats_of(*tables: pa.Table) -> dict[str, dict[str, object]]:
    stats = Statistics()
    for each in tables:
        stats.add(each)
    found: dict[str, dict[str, object]] = json.loads(delta_stats(stats.result()))
    return found


def test_statistics_let_readers_skip_a_file() -> None:
    found = stats_of(table(15, 20), table(11))
    assert found == {
        "numRecords": 3,
        "minValues": {"_partition": 3, "_offset": 11, "_timestamp": "2023-11-14T22:13:20.011Z"},
        "maxValues": {"_partition": 3, "_offset": 20, "_timestamp": "2023-11-14T22:13:20.020Z"},
        "nullCount": {"_partition": 0, "_offset": 0, "_timestamp": 0},
    }
    assert FIRST_MS == 1_700_000_000_000


@pytest.mark.parametrize("micros", [-50_000_000_000_000_000, 1 << 62])
def test_a_moment_that_has_no_text_is_not_in_the_statistics(micros: int) -> None:
    """Years before 1000 and after 9999. A wrong text would make readers skip rows."""
    moments = pa.array([micros, FIRST_MS * 1000], pa.timestamp("us", "UTC"))
    found = stats_of(pa.table({"_timestamp": moments}))
    assert found["minValues"] == found["maxValues"] == {}
    assert found["nullCount"] == {"_timestamp": 0}


def test_columns_of_other_types_have_no_statistics() -> None:
    """A table of results may use our names for columns of its own."""
    found = stats_of(
        pa.table({"_offset": ["a", "b"], "_partition": pa.array([None, 7], pa.int64()), "x": [1, 2]})
    )
    assert found["minValues"] == found["maxValues"] == {"_partition": 7}
    assert found["nullCount"] == {"_partition": 1}
    number = stats_of(pa.table({"_timestamp": [5, 9]}))
    assert (number["minValues"], number["maxValues"]) == ({"_timestamp": 5}, {"_timestamp": 9})
