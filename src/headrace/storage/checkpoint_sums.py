"""Checksums of a directory's checkpoints: Kafka's text formats have none, and a digit that changed on disk
would move where a log starts or ends.

    7a3c90f1 recovery-point-offset-checkpoint
    0b1de2c4 recovery-point-offset-checkpoint
    93f0aa17 meta.properties
    c4d1e6b2

The file is written before checkpoints are replaced, with the sums of their old and of their new contents, and
after checkpoints that are new: whatever a crash leaves, an intact checkpoint has one of them, or there is no
sum of it yet. The last line is the sum of all lines before it. For meta.properties the sum covers the values,
not the comments. Without the file, as in a directory that Kafka wrote, nothing is compared. Kafka does not
update the file: `are_replaced` tells its checkpoints from damaged ones.
"""

from collections.abc import Mapping

from headrace.records.checksum import crc32c
from headrace.storage import checkpoints
from headrace.storage.disk import Disk, read_whole, write_atomically

SUMS = ".headrace_checkpoint_sums"
# Kafka writes the broker's epoch in the place of -1.
CLEAN_MARKER_CONTENT = b'{"version":0,"brokerEpoch":-1}'

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


def are_replaced(sums: Sums, contents: Mapping[str, bytes], marker: bytes | None) -> bool:
    """Whether another program, such as Kafka, has written the checkpoints since the sums were.

    The marker of a clean stop is not ours then. After a kill there is no marker, but Kafka replaces several
    checkpoints, and each of them can be read; damage hits one.
    """
    if not sums:
        return False
    if marker is not None and marker != CLEAN_MARKER_CONTENT:
        return True
    others = 0
    for name in _OFFSETS:
        if name in contents and name in sums and sum_of(name, contents[name]) not in sums[name]:
            try:
                checkpoints.parse_offsets(contents[name])
            except checkpoints.MalformedCheckpoint:
                return False
            others += 1
    return others > 1


def write_checkpoints(disk: Disk, files: Mapping[str, bytes]) -> None:
    """Write checkpoints, each whole or not at all: new ones before the file with their sums, others after."""
    names = disk.list("")
    is_new = SUMS not in names
    try:
        known = {} if is_new else read_sums(disk) or {}
    except DamagedSums:
        known = {}
    lines = []
    for name in (*_OFFSETS, checkpoints.META_PROPERTIES):
        sums = _sums_on_disk(disk, name, known.get(name)) if name in names else set()
        is_new = is_new and not sums
        if name in files:
            sums.add(sum_of(name, files[name]))
        lines += [f"{number:08x} {name}" for number in sorted(sums)]
    body = "\n".join(lines)
    text = f"{body}\n{crc32c(body.encode()):08x}\n"
    # in a new directory there is nothing that a missing sum, or a sum without its file, could be wrong about
    for name in sorted(files.keys() - set(names)):  # a sum without its file tells that the file was lost
        write_atomically(disk, name, files[name])
    write_atomically(disk, SUMS, text.encode(), sync_name=not is_new)
    for name, data in files.items():
        if name in names:
            write_atomically(disk, name, data)


def _sums_on_disk(disk: Disk, name: str, known: set[int] | None) -> set[int]:
    """The sum of the file as it is. A file that is damaged keeps the sums it should have: the sum of damaged
    bytes would make them look intact.
    """
    try:
        found = sum_of(name, read_whole(disk, name))
    except FileNotFoundError:
        return set()  # it is about to be made, or this kind is not used
    return {found} if known is None or found in known else set(known)
