"""Verify names each planted fault: in the files, in the log, in the ledger, beside the topic."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.lake_topic import TableOfTopic, TopicInMemory, rows
from harness.outsider import outsider
from headrace.lake.files import read_proof
from headrace.lake.report import FINDINGS_PER_RANGE_MAX
from headrace.lake.row_hash import added_up, row_hashes
from headrace.lake.verifying import verify
from headrace.machines.lake.ledger import Span, next_key
from headrace.machines.lake.proof import FOOTER_KEY, FileProof


@pytest.fixture
def topic() -> TopicInMemory:
    return TopicInMemory()


@pytest.fixture
def table(tmp_path: Path, topic: TopicInMemory, format: str) -> TableOfTopic:
    """A table of two commits, with four files."""
    topic.fill(8)
    table = TableOfTopic(tmp_path / "table", topic, format)
    table.copy(offsets_per_commit=4)
    return table


def first_file(table: TableOfTopic) -> Path:
    """That of the first offsets of partition 0."""
    found = (table.path / name for name in table.load().files)
    return next(path for path in found if read_proof(path).proofs[0].span[:2] == (0, 0))


def change(
    table: TableOfTopic,
    work: Callable[[pa.Table], pa.Table],
    *,
    proves: bool = False,
    topic_id: str = "id-of-clicks",
) -> None:
    """Write the first file again with other rows; with `proves` also with their proof."""
    path = first_file(table)
    new, said = work(pq.read_table(path)), read_proof(path)._replace(topic_id=topic_id)
    if proves:
        one = said.proofs[0]._replace(hash=added_up(row_hashes(new)), row_count=new.num_rows)
        said = said._replace(proofs=(one,))
    write(path, new, said)


def write(path: Path, table: pa.Table, proof: FileProof | None) -> None:
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        if proof is not None:
            writer.add_key_value_metadata({FOOTER_KEY: proof.to_json()})


def add_to_log(table: TableOfTopic, name: str | None, **marks: int) -> None:
    outsider(table.path).commit(name, marks)


def with_values(table: pa.Table, *values: bytes) -> pa.Table:
    index = table.column_names.index("_value")
    return table.set_column(index, table.schema.field(index), pa.array(values, pa.binary()))


def test_a_whole_table(table: TableOfTopic, topic: TopicInMemory) -> None:
    files: list[None] = []
    report = verify(table.path, table.load(), topic.as_topic(), lambda: files.append(None))
    assert report.is_clean
    assert (report.files, report.rows, report.compared, report.missing_offsets) == (4, 16, 16, 0)
    assert len(files) == 4


def test_a_removed_file(table: TableOfTopic) -> None:
    first_file(table).unlink()
    found = table.verify(full=False).findings
    assert [(str(each.fault), each.span) for each in found] == [
        ("file_missing", None),
        ("gap", Span(0, 0, 4)),
    ]


def test_a_doubled_commit(table: TableOfTopic) -> None:
    shutil.copy(first_file(table), table.path / "again.parquet")
    add_to_log(table, "again.parquet")
    assert table.faults() == {"twice"}


def test_a_changed_record(table: TableOfTopic) -> None:
    change(table, lambda old: with_values(old, b"value-0", b"forged", b"value-2", b"value-3"))
    assert "rows_changed" in table.faults()


def test_a_changed_record_whose_proof_was_changed_too(table: TableOfTopic) -> None:
    """The file agrees with itself: only the topic knows better."""
    change(table, lambda old: with_values(old, b"value-0", b"forged", b"value-2", b"value-3"), proves=True)
    assert table.faults() <= {"file_damaged"}  # its size may differ from the log's
    report = table.verify()
    assert [each.span for each in report.findings if each.fault == "record_differs"] == [Span(0, 1, 2)]
    assert report.compared == 15


def test_a_missing_row(table: TableOfTopic) -> None:
    change(table, lambda old: old.slice(1))
    assert "rows_missing" in table.faults()
    change(table, lambda old: old, proves=True)
    assert table.faults() <= {"file_damaged"}
    assert "lost_record" in table.faults(full=True)


def test_a_doubled_row(table: TableOfTopic) -> None:
    change(table, lambda old: pa.concat_tables([old, old.slice(0, 1)]))
    assert {"rows_added", "twice"} <= table.faults()


def test_a_row_outside_the_range_of_its_file(table: TableOfTopic) -> None:
    change(table, lambda old: pa.concat_tables([old, rows(9, {1: b"x"})]))
    assert "rows_added" in table.faults()


def test_a_row_that_the_topic_does_not_have(table: TableOfTopic, topic: TopicInMemory) -> None:
    del topic.partitions[1].records[2]
    assert table.faults(full=True) == {"extra_row"}
    topic.cleanup_policy = "compact,delete"
    report = table.verify()
    assert (report.findings, report.compacted, report.compared) == ([], 1, 15)


def test_findings_of_a_range_are_counted_and_not_all_listed(tmp_path: Path) -> None:
    topic = TopicInMemory(1)
    topic.fill(FINDINGS_PER_RANGE_MAX + 5)
    table = TableOfTopic(tmp_path / "table", topic)
    table.copy()
    topic.partitions[0].records.clear()
    found = table.verify().findings
    assert len(found) == FINDINGS_PER_RANGE_MAX + 1
    assert found[-1].text == "5 more of offsets 0 to 14 of partition 0: is in the table, but not in the topic"


def test_aborted_and_control_records_are_told_apart(table: TableOfTopic, topic: TopicInMemory) -> None:
    topic.abort(0, b"a", b"b")
    topic.fill(1)
    table.copy()
    report = table.verify()
    assert report.findings == []
    assert (report.aborted, report.control, report.missing_offsets, report.compared) == (2, 1, 3, 18)


def test_what_the_topic_has_deleted_is_not_compared(table: TableOfTopic, topic: TopicInMemory) -> None:
    """Retention is quicker than the comparison of the first file: it is compared with what is left."""
    topic.trim(1, 6)

    def trim(span: Span) -> None:
        topic.trim(0, 3)

    topic.on_read = trim
    report = table.verify()
    assert (report.findings, report.compared) == ([], 5 + 2)
    topic.on_read = lambda _: topic.trim(0, 8)
    topic.trim(1, 8)
    assert table.verify().compared == 0


def test_a_damaged_file(table: TableOfTopic) -> None:
    path = first_file(table)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    found = {str(each.fault): each.text for each in table.verify(full=False).findings}
    assert found.keys() == {"file_damaged", "gap"}
    path.write_bytes(data + b"x")
    texts = [each.text for each in table.verify(full=False).findings]
    assert any(text.endswith(f"the table's log says {len(data)}") for text in texts)


def test_a_skipped_range(table: TableOfTopic, topic: TopicInMemory) -> None:
    """The ledger moves, and no file has the range."""
    topic.fill(5)
    add_to_log(table, None, **{next_key(topic.identity, 0): 11})
    table.copy()
    assert [(str(each.fault), each.span) for each in table.verify(full=False).findings] == [
        ("gap", Span(0, 8, 11))
    ]


def test_a_file_of_another_topic(table: TableOfTopic) -> None:
    change(table, lambda old: old, topic_id="another")
    assert "other_topic" in table.faults()


def test_a_file_that_another_program_added(table: TableOfTopic) -> None:
    old = pq.read_table(first_file(table)).replace_schema_metadata(None)
    write(table.path / "foreign.parquet", old, None)
    add_to_log(table, "foreign.parquet")
    assert table.faults() == {"no_proof"}
