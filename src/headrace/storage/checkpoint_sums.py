"""Checksums of a directory's checkpoints: Kafka's text formats have none, and a digit that changed on disk
would move where a log starts or ends.

    7a3c90f1 recovery-point-offset-checkpoint
    0b1de2c4 recovery-point-offset-checkpoint
    93f0aa17 meta.properties
    c4d1e6b2

The file is written before the checkpoints, with the sums of their old and of their new contents: whatever a
crash leaves, an intact checkpoint has one of them. The last line is the sum of all lines before it. For
meta.properties the sum covers the values, not the comments. Without the file, as in a directory that Kafka
wrote, nothing is compared.
"""

from collections.abc import Mapping

from headrace.records.checksum import crc32c
from headrace.storage import checkpoints
from headrace.storage.disk import Disk, read_whole, write_atomically

SUMS = ".headrace_checkpoint_sums"

_OFFSETS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_STARTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)
_IDENTITY = ("cluster.id", "node.id", "directory.id")

Sums = dict[str, set[int]]  # by file name


class DamagedSums(ValueError):
    """The file's own checksum is wrong."""


def sum_of(name: str, data: bytes) -> int:
    if name == checkpoints.META_PROPERTIES:
        properties = checkpoints.parse_properties(data)
        data = "\n".join(f"{key}={properties.get(key)}" for key in _IDENTITY).encode()
    return crc32c(data)


def read_sums(disk: Disk) -> Sums | None:
    """None without the file."""
    try:
        data = read_whole(disk, SUMS)
    except FileNotFoundError:
        return None
    try:
        body, _, own = data.decode("ascii").rstrip("\n").rpartition("\n")
        if int(own, 16) != crc32c(body.encode()):
            raise DamagedSums(f"{SUMS} is damaged")
        sums: Sums = {}
        for line in body.splitlines():
            text, _, name = line.partition(" ")
            sums.setdefault(name, set()).add(int(text, 16))
        return sums
    except ValueError as error:
        raise DamagedSums(f"{SUMS} is damaged") from error


def write_checkpoints(disk: Disk, files: Mapping[str, bytes]) -> None:
    """Replace checkpoints, each whole or not at all, after the file with their sums."""
    lines = []
    for name in (*_OFFSETS, checkpoints.META_PROPERTIES):
        sums = set()
        try:
            sums.add(sum_of(name, read_whole(disk, name)))
        except FileNotFoundError:
            pass  # it is about to be made, or this kind is not used
        if name in files:
            sums.add(sum_of(name, files[name]))
        lines += [f"{number:08x} {name}" for number in sorted(sums)]
    body = "\n".join(lines)
    write_atomically(disk, SUMS, f"{body}\n{crc32c(body.encode()):08x}\n".encode())
    for name, data in files.items():
        write_atomically(disk, name, data)
