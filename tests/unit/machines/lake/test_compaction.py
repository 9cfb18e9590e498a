"""Which small files are joined, and which files on disk are removed."""

from __future__ import annotations

from headrace.machines.lake.compaction import StoredFile, plan_compaction, unneeded
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.proof import FileProof, Proof


def file(name: str, size: int, *spans: Span) -> StoredFile:
    return StoredFile(name, size, FileProof("id", tuple(Proof(span, span.size, 1) for span in spans)))


def names(files: list[StoredFile], target: int = 100) -> list[list[str]]:
    return [[each.name for each in group] for group in plan_compaction(files, target_bytes=target)]


def test_neighbours_of_a_partition_are_joined_up_to_the_size() -> None:
    files = [file(str(at), 30, Span(0, at, at + 1)) for at in range(7)]
    assert names(files[::-1]) == [["0", "1", "2"], ["3", "4", "5"]]


def test_partitions_gaps_and_large_files_end_a_group() -> None:
    files = [
        file("a", 10, Span(0, 0, 2)),
        file("b", 10, Span(0, 2, 4)),
        file("c", 51, Span(0, 4, 6)),
        file("d", 10, Span(0, 6, 8)),
        file("e", 10, Span(0, 9, 10)),
        file("f", 10, Span(1, 0, 5)),
        file("g", 10, Span(1, 5, 9), Span(1, 9, 12)),
    ]
    assert names(files) == [["a", "b"], ["f", "g"]]


def test_a_single_file_and_one_of_two_partitions_stay() -> None:
    assert names([file("a", 10, Span(0, 0, 2))]) == []
    assert names([file("a", 10, Span(0, 0, 2), Span(1, 0, 2)), file("b", 10, Span(1, 2, 4))]) == []


def test_only_old_files_that_nobody_names_are_removed() -> None:
    on_disk = {"named": 0, "old": 100, "young": 901, "edge": 900}
    assert unneeded(on_disk, ["named"], now_ms=1000, keep_ms=100) == ["old"]
