"""Which partition a record goes to: by its key as Java's producer does, else in sticky turns.

The same key must land in the same partition whichever client wrote it, so the hash is Kafka's murmur2 to
the bit.
"""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER & _MASK) ^ k
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyTurns:
    """Keyless records stay with one partition until a batch of it is full, then move on (KIP-480).

    Fewer, fuller batches: a record alone in its batch costs the broker as much as a thousand together.
    """

    __slots__ = ("_partition", "_taken", "turn_bytes")

    def __init__(self, turn_bytes: int) -> None:
        self.turn_bytes = turn_bytes
        self._partition = 0
        self._taken = 0

    def partition_for(self, size: int, partitions: int) -> int:
        if self._taken >= self.turn_bytes:
            self._partition += 1
            self._taken = 0
        self._taken += size
        return self._partition % partitions
