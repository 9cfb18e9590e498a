"""Partitioners: the strategies by which a record gets its partition, and the sticky partitioner.

The same key must go to the same partition whichever client wrote it, so the hash is Kafka's murmur2, bit for
bit. `_accumulator.py` chooses the partition of each record; this module has the names of the strategies, and
the choice of the next sticky partition, which is made once per batch.
"""

from bisect import bisect_right
from enum import IntEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from headrace.base.randomness import Randomness

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
    """The next partition for records without a key: a random one, less often one with a long queue (KIP-794).

    The more batches wait for a partition, the lower its probability; with equal queues all are equally
    likely.
    """

    def __init__(self, rng: Randomness, *, is_adaptive: bool = True) -> None:
        self._rng = rng
        self._is_adaptive = is_adaptive

    def __call__(self, topic_queues: "TopicQueues") -> "PartitionQueue":
        queues: list[PartitionQueue] = topic_queues.candidates
        if len(queues) == 1:
            return queues[0]
        if not self._is_adaptive:
            return queues[self._rng.randrange(len(queues))]
        queued = [len(queue.waiting) for queue in queues]
        longest = max(queued)
        shares = list(accumulate(longest + 1 - length for length in queued))
        return queues[bisect_right(shares, self._rng.randrange(shares[-1]))]
