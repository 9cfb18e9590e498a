"""Which partition a record goes to: by its key as Java's producer does, else in sticky turns.

The same key must land in the same partition whichever client wrote it, so the hash is Kafka's murmur2 to
the bit. The choice itself is made where records are taken (`records._accumulator`); here are its names and
the one part that is asked only once per batch: whose turn it is.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import Final

from headrace.base.dice import Dice
from headrace.records._accumulator import Crossing, murmur2
from headrace.records._outgoing import Lane
from headrace.records.strategy import Strategy

__all__ = ["STRATEGIES", "AdaptiveTurns", "murmur2", "partition_for_key"]

# As `partitioner` names them: Java's, librdkafka's and ours.
STRATEGIES: Final = {
    "default": Strategy.BY_KEY,
    "murmur2": Strategy.BY_KEY,
    "murmur2_random": Strategy.BY_KEY,
    "sticky": Strategy.STICKY,
    "round_robin": Strategy.ROUND_ROBIN,
}


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class AdaptiveTurns:
    """The next partition for records without a key: any, but a slow one less often (KIP-794).

    The more batches wait for a partition, the less it gets; while all queues are equal, all are alike.
    """

    def __init__(self, dice: Dice, *, is_adaptive: bool = True) -> None:
        self._dice = dice
        self._is_adaptive = is_adaptive

    def __call__(self, crossing: Crossing) -> Lane:
        lanes: list[Lane] = crossing.candidates
        if not self._is_adaptive or len(lanes) < 2:
            return lanes[self._dice.randrange(len(lanes))]
        queued = [len(lane.waiting) for lane in lanes]
        longest = max(queued)
        shares = list(accumulate(longest + 1 - length for length in queued))
        return lanes[bisect_right(shares, self._dice.randrange(shares[-1]))]
