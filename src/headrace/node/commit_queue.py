"""Requests that wait until records of one partition are committed, in the order of their offsets.

When the high watermark rises, only the requests that it has passed are woken: a partition may have thousands
of them while its followers fetch. A request waits for records of one leader epoch. When it is woken, it
checks that the partition still has the same `PartitionLeader`: a later leader may have other records at its
offset.
"""

from collections import deque
from typing import TYPE_CHECKING

from headrace.base.time import NEVER, Instant, Now
from headrace.node.ports import Deadlines
from headrace.node.waiting import Parked, Waiting

if TYPE_CHECKING:
    from headrace.node.partition import Partition


class CommitQueue:
    __slots__ = ("_deadlines", "_queue", "_timer_at", "_waiting", "is_done")

    def __init__(self, deadlines: Deadlines, waiting: Waiting) -> None:
        self._deadlines = deadlines
        self._waiting = waiting
        self._queue: deque[tuple[int, Parked, Instant]] = deque()  # offsets rise
        self._timer_at: Instant = NEVER
        self.is_done = False  # as an entry of the deadlines

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, end: int, waiter: Parked, expires_at: Instant = NEVER) -> None:
        """Wake the waiter once everything before `end` is committed. Its `expired` is called at `expires_at`,
        if it has no entry of its own in the heap of deadlines.
        """
        queue = self._queue
        if queue and end < queue[-1][0]:  # a batch that was sent again, and is in the log since
            behind = []
            while queue and end < queue[-1][0]:
                behind.append(queue.pop())
            queue.append((end, waiter, expires_at))
            queue.extend(reversed(behind))
        else:
            queue.append((end, waiter, expires_at))
        if expires_at < self._timer_at:
            # the time of most is up in the order of their arrival, and almost all are answered before
            self._timer_at = expires_at
            self._deadlines.add(expires_at, self)

    def free(self, high_watermark: int) -> None:
        queue = self._queue
        while queue and queue[0][0] <= high_watermark:
            self._waiting.wake_one(queue.popleft()[1])

    def free_all(self) -> None:
        """The partition changed hands, was deleted, or its disk failed: whoever waits will see."""
        while self._queue:
            self._waiting.wake_one(self._queue.popleft()[1])

    def expired(self, now: Now) -> None:
        if now.mono < self._timer_at:
            return  # an earlier one was set since, and has come
        self._timer_at = NEVER
        late = [waiter for _, waiter, at in self._queue if at <= now.mono]
        self._queue = deque(entry for entry in self._queue if entry[2] > now.mono and not entry[1].is_done)
        next_at = min((at for _, _, at in self._queue), default=NEVER)
        if next_at < NEVER:
            self._timer_at = next_at
            self._deadlines.add(next_at, self)
        for waiter in late:
            if not waiter.is_done:
                waiter.expired(now)


def is_led_in(partition: "Partition", epoch: int) -> bool:
    """Whether this broker leads the partition in that leader epoch. An offset that a request waits for stands
    for the same records only in this epoch.
    """
    return partition.is_led_here and partition.leader_epoch == epoch and not partition.is_deleted
