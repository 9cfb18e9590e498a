"""What lake tables rely on in pyiceberg; if a new version differs, it shows here first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

Load = Callable[[], Table]
ROWS = pa.table({"x": [1]})
ONCE = {"commit.retry.num-retries": "0"}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Load]]:
    """Makes a table with these properties; what it returns loads the newest version."""
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("lake")

    def create(**properties: str) -> Load:
        catalog.create_table("lake.table", ROWS.schema, properties=properties)
        return lambda: catalog.load_table("lake.table")

    yield create
    catalog.close()


def append(table: Table, ledger: int) -> None:
    """Rows and the ledger in one transaction."""
    with table.transaction() as transaction:
        transaction.set_properties({"ledger": str(ledger)})
        transaction.append(ROWS)


def state(table: Table) -> tuple[int, str | None]:
    return table.scan().to_arrow().num_rows, table.properties.get("ledger")


def files(table: Table) -> list[DataFile]:
    return [task.file for task in table.scan().plan_files()]


def test_an_append_that_met_another_one_is_repeated_and_doubles_the_rows(make: Callable[..., Load]) -> None:
    """Both owners have compared the ledger, which stood at 0. So the repetition must be off."""
    load = make(**{"commit.retry.min-wait-ms": "1"})
    one, other = load(), load()
    append(one, 1)
    append(other, 1)
    assert state(load()) == (2, "1")


def test_without_repetitions_the_second_append_is_refused_with_its_properties(
    make: Callable[..., Load],
) -> None:
    load = make(**ONCE)
    append(load(), 1)
    one, other = load(), load()
    append(one, 2)
    with pytest.raises(CommitFailedException):
        append(other, 3)
    assert state(load()) == (2, "2")


def test_properties_alone_are_not_compared_but_an_append_of_nothing_is(make: Callable[..., Load]) -> None:
    """So a commit that only moves the ledger is an append without files."""
    load = make(**ONCE)
    one, other = load(), load()
    for number, table in enumerate((one, other)):
        with table.transaction() as transaction:
            transaction.set_properties({"ledger": str(number)})
    assert state(load()) == (0, "1")

    def move(table: Table, ledger: int) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"ledger": str(ledger)})
            with transaction.update_snapshot().fast_append():
                pass

    one, other = load(), load()
    move(one, 5)
    with pytest.raises(CommitFailedException):
        move(other, 6)
    assert state(load()) == (0, "5")


def test_a_table_object_moves_on_with_its_own_commit(make: Callable[..., Load]) -> None:
    """So what was compared with a version has to be committed through an object of that version."""
    load = make(**ONCE)
    table = load()
    append(table, 1)
    append(table, 1)
    assert state(load()) == (2, "1")


def test_an_overwrite_of_files_is_a_compaction(make: Callable[..., Load]) -> None:
    load = make(**ONCE)
    for number in range(3):
        append(load(), number)
    table = load()
    old, (kept, *joined) = load(), files(table)
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
        for file in joined:
            overwrite.delete_data_file(file)
        overwrite.append_data_file(_copy(joined[0]))
    assert {file.file_path for file in files(load())} == {kept.file_path, _copy(joined[0]).file_path}
    assert state(load())[1] == "2"
    with pytest.raises(CommitFailedException):
        remove(old, joined[0])
    with pytest.raises(ValidationException, match="Missing required files"):
        remove(load(), joined[0])


def remove(table: Table, file: DataFile) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(file)


def _copy(file: DataFile) -> DataFile:
    """The same rows in another place."""
    again = Path(file.file_path.removeprefix("file://")).with_name("joined.parquet")
    again.write_bytes(Path(file.file_path.removeprefix("file://")).read_bytes())
    return DataFile.from_args(
        content=file.content,
        file_path=f"file://{again}",
        file_format=file.file_format,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        spec_id=file.spec_id,
    )
