"""A log whose first segments are gone, though nobody has deleted their records.

Without a look at it such a log seems to be one from which retention has removed segments. Two files tell the
difference. The checkpoint of log starts is written now and then, so it may be older than the last removal.
The leader epochs are cut right after the segments of a removal got other names (`.deleted`), under which they
wait for a while: whoever was killed in between has left files of these names.

After the loss of a host nothing is said: these changes may have reached the disk in another order.
"""

from headrace.base.values import Value
from headrace.storage.disk import Disk
from headrace.storage.leader_epochs import FILE_NAME, LeaderEpochs


class LostBeginning(Value):
    log_start_offset: int  # where the log began
    base_offset: int  # of the first segment that is left


def lost_beginning(disk: Disk, directory: str, checkpointed_start: int) -> LostBeginning | None:
    """None: no segment is missing in front, or nobody can tell."""
    bases: set[int] = set()
    others: set[int] = set()  # segments that are being removed, or replaced by a compacted one
    for name in disk.list(directory):
        stem, _, suffix = name.partition(".")
        if stem.isdigit() and suffix.startswith("log"):
            (bases if suffix == "log" else others).add(int(stem))
    if not bases:
        return None
    base = min(bases)
    if base <= checkpointed_start or any(other < base for other in others):
        return None
    epochs = LeaderEpochs.read(disk, f"{directory}/{FILE_NAME}")
    entries = epochs.entries() if epochs is not None else []
    if not entries or entries[0][1] >= base:
        return None
    return LostBeginning(max(checkpointed_start, entries[0][1]), base)
