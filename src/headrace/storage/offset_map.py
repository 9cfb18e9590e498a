"""Map of keys to the offsets of their newest records, limited in memory.

Keys are kept as they are. Kafka keeps 16 bytes of their MD5 in a table of fixed slots, 24 bytes per key, at
the price that two keys of one hash are taken for one; in Python the object around those bytes costs more than
a usual key, so that a hash would save nothing, and equality needs no argument about probability. What an
entry really costs is charged to the budget. When it is spent, the pass covers the log up to there, and the
next one goes on.
"""

from collections.abc import Iterable

from headrace.storage.config import INT64_MAX

# A bytes object without its bytes (33, rounded up), an int (32), and a dict's slot with its share of the room
# that a dict keeps free (about 85 when it has just grown).
ENTRY_BYTES = 150


class OffsetMap:
    __slots__ = ("_bytes_left", "newest")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_left = bytes_max
        # a record without a key is never the newest of anything
        self.newest: dict[bytes | None, int] = {None: INT64_MAX}

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0

    def add(self, records: Iterable[tuple[int, bytes | None, bool]]) -> None:
        """The records of one batch, whose offsets are larger than all before."""
        newest = self.newest
        for offset, key, _ in records:
            if key is not None:
                if key not in newest:
                    self._bytes_left -= ENTRY_BYTES + len(key)
                newest[key] = offset
