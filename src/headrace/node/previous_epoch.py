"""The epoch of a broker's last registration, which it tells at the next one only if it still has all that it
had then (KIP-966): otherwise it counts as one that may have lost acknowledged records.

A start that finds something lost writes that epoch down before anything else, because it may end before the
controller has heard of it. The start after that would find directories that look as after a mere kill.
"""

from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.errors import is_transient

LOST_EPOCH = ".headrace_lost_epoch"
NO_EPOCH = -1


def previous_epoch(disk: Disk, known: int, *, is_lost: bool) -> int:
    """What the broker may tell. `known` is its last epoch in the metadata log, which is on `disk`. `is_lost`:
    a log directory is new, or its host has stopped without a clean stop of the broker.
    """
    if known == NO_EPOCH:
        return NO_EPOCH
    if is_lost:
        try:
            write_atomically(disk, LOST_EPOCH, b"%d\n" % known)
        except OSError as error:
            if not is_transient(error):
                raise
        return NO_EPOCH
    return known if known > _lost_epoch(disk) else NO_EPOCH


def _lost_epoch(disk: Disk) -> int:
    """The newest of which something was lost."""
    try:
        return int(read_whole(disk, LOST_EPOCH))
    except FileNotFoundError:
        return NO_EPOCH
    except ValueError:  # it is damaged: nobody knows what it said
        return 2**63 - 1
