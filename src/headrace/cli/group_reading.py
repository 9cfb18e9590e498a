"""`headrace consume --group`: reads as a member of a group, commits what was printed, and leaves cleanly.

Records are committed after they were written to stdout: if the command is killed in between, the group reads
them again. Ctrl-C and SIGTERM end the reading between two polls, so that the member commits and then leaves
the group; a second one ends the command at once.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.cli.terminal import say
from headrace.client.cluster import TopicPartition
from headrace.client.errors import PartitionsLost, TimedOut
from headrace.client.threads.consumer import Consumer
from headrace.records._messages import Message

POLL_S = 0.5


class Interruption:
    """Whether Ctrl-C or SIGTERM has arrived."""

    def __init__(self) -> None:
        self.has_come = False

    def _come(self, *_: object) -> None:
        if self.has_come:
            raise KeyboardInterrupt
        self.has_come = True


@contextmanager
def interruptible() -> Iterator[Interruption]:
    interruption = Interruption()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, interruption._come) for number in numbers]
    try:
        yield interruption
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def read_as_member(
    consumer: Consumer,
    group: str,
    topic: str,
    ends: dict[TopicPartition, int] | None,
    render: Callable[[Message], bytes],
    *,
    limit: int | None,
    patience_s: float,
) -> None:
    """Copies from the topic to stdout. With `ends` it stops when this member's partitions are at their ends,
    or when nothing is left for the group; without `ends`, on Ctrl-C.
    """
    out = sys.stdout.buffer
    left = limit
    consumer.subscribe([topic])
    with interruptible() as interruption:
        heard_at = time.monotonic()
        while not interruption.has_come:
            records = consumer.poll(POLL_S, max_records=left)
            if records:
                out.write(b"".join(map(render, records)))
                out.flush()
                _commit(consumer)
                heard_at = time.monotonic()
                if left is not None:
                    left -= len(records)
                    if left == 0:
                        return
            if ends is None:
                continue
            if _is_done(consumer, ends):
                return
            if time.monotonic() >= heard_at + patience_s:
                raise TimedOut(_silence_text(consumer, group, patience_s))
    if ends is not None:
        raise KeyboardInterrupt  # the ends were not reached


def _commit(consumer: Consumer) -> None:
    try:
        consumer.commit()
    except PartitionsLost:
        say(
            "the group assigned partitions to other members before the commit; those will read these records "
            "again",
            err=True,
        )


def _is_done(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    assigned = consumer.assignment
    if assigned:
        positions = consumer.positions()
        return all(at in positions and positions[at].offset >= ends.get(at, 0) for at in assigned)
    if all(end == 0 for end in ends.values()):
        return True
    committed = consumer.committed(ends)
    return all(told is not None and told.offset >= ends[at] for at, told in committed.items())


def _silence_text(consumer: Consumer, group: str, patience_s: float) -> str:
    if consumer.assignment:
        return f"no record arrived for {patience_s:g} s"
    return (
        f"group {group!r} assigned no partitions to this member within {patience_s:g} s; "
        "other members may have all of them"
    )
