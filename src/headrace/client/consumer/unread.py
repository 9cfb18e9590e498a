"""What iteration took with a poll and has not handed out yet."""

from collections import deque
from collections.abc import Callable, Iterable

from headrace.client.cluster import TopicPartition
from headrace.records._messages import Message


def place_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic, message.partition)


def first_offsets(messages: Iterable[Message]) -> dict[TopicPartition, int]:
    """Where each partition has to be read again to get these."""
    offsets: dict[TopicPartition, int] = {}
    for message in messages:
        offsets.setdefault(place_of(message), message.offset)
    return offsets


class Unread(deque[Message]):
    """In the order of handing out; of each partition, in the order of offsets."""

    def drop(self, is_gone: Callable[[TopicPartition], bool]) -> None:
        kept = [message for message in self if not is_gone(place_of(message))]
        self.clear()
        self.extend(kept)
