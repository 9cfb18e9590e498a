"""Which small files of a lake table are joined into large ones, and which files on disk are not needed.

Only neighbours are joined: files of one partition whose ranges follow each other. So a compacted file has few
ranges, and rows in the order of the topic.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.machines.lake.proof import FileProof


class StoredFile(NamedTuple):
    name: str
    size: int  # bytes
    proof: FileProof


def plan_compaction(files: Iterable[StoredFile], *, target_bytes: int) -> list[list[StoredFile]]:
    """Return groups of at least two files, each of about `target_bytes`; large files stay as they are."""
    groups: list[list[StoredFile]] = []
    group: list[StoredFile] = []

    def end_group() -> None:
        nonlocal group
        if len(group) > 1:
            groups.append(group)
        group = []

    for file in sorted(files, key=lambda each: each.proof.proofs):
        follows = bool(group) and _follows(group[-1].proof, file.proof)
        is_full = sum(each.size for each in group) + file.size > target_bytes
        if not follows or is_full:
            end_group()
        if _is_small(file, target_bytes):
            group.append(file)
        else:
            end_group()
    end_group()
    return groups


def _is_small(file: StoredFile, target_bytes: int) -> bool:
    """A file of more than half the size would gain little for its bytes that are written again."""
    one_partition = len({proof.span.partition for proof in file.proof.proofs}) == 1
    return one_partition and file.size <= target_bytes // 2


def _follows(before: FileProof, after: FileProof) -> bool:
    last, first = before.proofs[-1].span, after.proofs[0].span
    return last.partition == first.partition and last.end == first.start


def unneeded(on_disk: Mapping[str, int], named: Iterable[str], *, now_ms: int, keep_ms: int) -> list[str]:
    """Return the files that no commit names any more, or never did, and that are older than `keep_ms`.

    `on_disk` has the time of each file's last change. A young one may be of a copier that is about to commit
    it, or of a query that reads an older version of the table.
    """
    needed = set(named)
    return sorted(
        name for name, changed_ms in on_disk.items() if name not in needed and changed_ms < now_ms - keep_ms
    )


def files_key(topic_id: str) -> str:
    """The application id that every compaction raises, so that of two at once only one is committed."""
    return f"headrace/{topic_id}/files"
