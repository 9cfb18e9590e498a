"""Names of partition directories: <topic>-<partition>, and <topic>-<partition>.<id>-delete for a log that
waits for its removal.
"""

import re
from collections.abc import Iterable

from headrace.storage.checkpoints import Partition
from headrace.storage.disk import Disk

DOOMED = "-delete"

_NAME_BYTES_MAX = 255
_NUMBER = re.compile("[1-9][0-9]{0,9}")


def partitions_among(names: Iterable[str]) -> set[Partition]:
    """Those that the names in a log directory stand for."""
    found: set[Partition] = set()
    for name in names:
        topic, dash, number = name.rpartition("-")
        if dash and topic and (number == "0" or _NUMBER.fullmatch(number)):
            found.add((topic, int(number)))
    return found


def has_segments(disk: Disk, directory: str) -> bool:
    return any(name.endswith(".log") for name in disk.list(directory))


def doomed_name(directory: str, number: int) -> str:
    """As Kafka names it: a long topic name loses its end, the number keeps it unique."""
    suffix = f".{number:032x}{DOOMED}"
    return directory[: _NAME_BYTES_MAX - len(suffix)] + suffix


def unused_doomed_name(disk: Disk, directory: str, topic_id: bytes) -> str:
    number = int.from_bytes(topic_id, "big")
    while disk.exists(name := doomed_name(directory, number)):
        number = (number + 1) % (1 << 128)
    return name
