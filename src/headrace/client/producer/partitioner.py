"""Which partition a record goes to: by its key, as Java's producer does, or by the sticky partitioner.

The same key must land in the same partition whichever client wrote it, so the hash is Kafka's murmur2, bit
for bit. The choice for each record is made in `_accumulator.py`; here are the names of the strategies, and
the part that runs once per batch: which partition is sticky next.
"""

from bisect import bisect_right
from enum import IntEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from headrace.base.dice import Dice

if TYPE_CHECKING:  # they import this file
    from headrace.client.producer._accumulator import TopicQueues
    from headrace.client.producer._batch import PartitionQueue


class Strategy(IntEnum):
    """How a producer finds a partition for a record that names none."""

    BY_KEY = 0  # murmur2 of the key, as Java does; sticky without one
    STICKY = 1  # keys are ignored
    ROUND_ROBIN = 2
    CUSTOM = 3  # a function of the user's


# The values of the setting `partitioner`: Java's, librdkafka's and ours.
STRATEGIES: Final = {
    "default": Strategy.BY_KEY,
    "murmur2": Strategy.BY_KEY,
    "murmur2_random": Strategy.BY_KEY,
    "sticky": Strategy.STICKY,
    "round_robin": Strategy.ROUND_ROBIN,
}


class StickyPartitioner:
    """The next partition for records without a key: any, but one with a long queue less often (KIP-794).

    The more batches wait for a partition, the less it gets; while all queues are equal, all are alike.
    """

    def __init__(self, dice: Dice, *, is_adaptive: bool = True) -> None:
        self._dice = dice
        self._is_adaptive = is_adaptive

    def __call__(self, topic_queues: "TopicQueues") -> "PartitionQueue":
        queues: list[PartitionQueue] = topic_queues.candidates
        if not self._is_adaptive or len(queues) < 2:
            return queues[self._dice.randrange(len(queues))]
        queued = [len(queue.waiting) for queue in queues]
        longest = max(queued)
        shares = list(accumulate(longest + 1 - length for length in queued))
        return queues[bisect_right(shares, self._dice.randrange(shares[-1]))]
