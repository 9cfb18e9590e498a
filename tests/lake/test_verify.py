"""Every planted fault is found, by its name: in the files, in the log, in the ledger, beside the topic."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.outsider import outsider
from headrace.lake.files import read_proof
from headrace.lake.row_hash import added_up, row_hashes
from headrace.machines.lake.ledger import next_key
from headrace.machines.lake.proof import FOOTER_KEY, FileProof
from lake.tables import Fill, Lake


@pytest.fixture
def whole(lake: Lake, topic: str, fill: Fill) -> Lake:
    """A table of two commits, with four files."""
    fill(topic, 8)
    lake.copy(offsets_per_commit=4)
    assert lake.faults(full=True) == set()
    return lake


def first_file(lake: Lake) -> Path:
    """That of the first offsets of partition 0."""
    return next(
        lake.path / name
        for name in lake.load().files
        if read_proof(lake.path / name).proofs[0].span[:2] == (0, 0)
    )


def rewrite(path: Path, rows: pa.Table, proof: FileProof) -> None:
    with pq.ParquetWriter(path, rows.schema, compression="zstd") as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({FOOTER_KEY: proof.to_json()})


def add_to_log(lake: Lake, name: str | None, **marks: int) -> None:
    outsider(lake.path).commit(name, marks)


def test_a_removed_file(whole: Lake) -> None:
    first_file(whole).unlink()
    assert whole.faults() == {"file_missing", "gap"}


def test_a_file_that_was_removed_from_the_log(whole: Lake) -> None:
    outsider(whole.path).delete("_partition = 0 AND _offset < 4")
    assert whole.faults() == {"gap"}


def test_rows_that_were_deleted_by_another_program(whole: Lake) -> None:
    """It writes the rest of the rows to a new file, which has no proof."""
    outsider(whole.path).delete("_partition = 0 AND _offset = 2")
    assert whole.faults() == {"no_proof", "gap"}


def test_a_doubled_commit(whole: Lake) -> None:
    shutil.copy(first_file(whole), whole.path / "again.parquet")
    add_to_log(whole, "again.parquet")
    assert whole.faults() == {"twice"}


def test_a_changed_record(whole: Lake) -> None:
    path = first_file(whole)
    rows, proof = pq.read_table(path), read_proof(path)
    index = rows.column_names.index("_value")
    values = rows["_value"].to_pylist()
    values[1] = b"value-X"
    rewrite(path, rows.set_column(index, rows.schema.field(index), pa.array(values, pa.binary())), proof)
    assert "rows_changed" in whole.faults()


def test_a_changed_record_whose_proof_was_changed_too(whole: Lake) -> None:
    """The file agrees with itself: only the topic knows better."""
    path = first_file(whole)
    rows, proof = pq.read_table(path), read_proof(path)
    index = rows.column_names.index("_key")
    rows = rows.set_column(
        index, rows.schema.field(index), pa.array([b"forged"] * rows.num_rows, pa.binary())
    )
    one = proof.proofs[0]._replace(hash=added_up(row_hashes(rows)))
    rewrite(path, rows, proof._replace(proofs=(one,)))
    assert whole.faults() <= {"file_damaged"}  # its size may differ from the log's
    assert "record_differs" in whole.faults(full=True)


def test_a_damaged_byte(whole: Lake) -> None:
    path = first_file(whole)
    data = bytearray(path.read_bytes())
    data[len(data) // 8] ^= 1
    path.write_bytes(data)
    assert whole.faults() & {"file_damaged", "rows_changed"}


def test_a_skipped_range(whole: Lake, topic: str, fill: Fill) -> None:
    """The ledger moves, and no file has the range."""
    fill(topic, 5, first=8)
    add_to_log(whole, None, **{next_key(whole.load().topic_id, 0): 11})
    whole.copy()
    report = whole.verify(full=False)
    assert [(str(found.fault), found.span) for found in report.findings] == [("gap", (0, 8, 11))]


def test_a_row_that_is_missing_or_doubled_in_a_file(whole: Lake) -> None:
    path = first_file(whole)
    rows, proof = pq.read_table(path), read_proof(path)
    rewrite(path, rows.slice(1), proof)
    assert "rows_missing" in whole.faults()
    assert "lost_record" in whole.faults(full=True)
    rewrite(path, pa.concat_tables([rows, rows.slice(0, 1)]), proof)
    assert {"rows_added", "twice"} <= whole.faults()


def test_a_record_that_was_lost_with_a_proof_that_knows_nothing_of_it(whole: Lake) -> None:
    path = first_file(whole)
    rows, proof = pq.read_table(path).slice(1), read_proof(path)
    one = proof.proofs[0]._replace(hash=added_up(row_hashes(rows)), row_count=rows.num_rows)
    rewrite(path, rows, proof._replace(proofs=(one,)))
    assert whole.faults() <= {"file_damaged"}
    assert "lost_record" in whole.faults(full=True)


def test_a_row_that_the_topic_does_not_have(whole: Lake) -> None:
    path = first_file(whole)
    rows, proof = pq.read_table(path), read_proof(path)
    index = rows.column_names.index("_partition")
    other = rows.set_column(index, rows.schema.field(index), pa.array([9] * rows.num_rows, pa.int32()))
    rewrite(path, pa.concat_tables([rows, other]), proof)
    assert "rows_added" in whole.faults()


def test_a_file_of_another_topic(whole: Lake) -> None:
    path = first_file(whole)
    rewrite(path, pq.read_table(path), read_proof(path)._replace(topic_id="another"))
    assert "other_topic" in whole.faults()


def test_a_file_that_another_program_added(whole: Lake) -> None:
    rows = pq.read_table(first_file(whole)).replace_schema_metadata(None)
    pq.write_table(rows, whole.path / "foreign.parquet")
    add_to_log(whole, "foreign.parquet")
    assert whole.faults() == {"no_proof"}
