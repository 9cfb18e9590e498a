"""Fetched records that are not handed out yet: in order within a partition, in turn between partitions.

A partition keeps its turn until what one fetch brought of it is handed out; then the others come first. A
paused one keeps what it has and has no turn; its bytes do not count against the others meanwhile.
"""

from collections import deque
from collections.abc import Callable, Iterable

from headrace.client.cluster import TopicPartition
from headrace.client.consumer.position import Position
from headrace.client.errors import BadResponse, ClientError
from headrace.records._columns import Columns
from headrace.records._messages import Message
from headrace.records.errors import BadRecords
from headrace.records.fetched import Fetched


class FetchBuffer:
    """Invariants: `_turns` has each partition once that has chunks and is neither paused nor leaving; `size`
    counts the bytes of all that are not paused.
    """

    def __init__(self) -> None:
        self.size = 0
        self.touched: set[Position] = set()  # whose offset moved since somebody asked
        self.has_made_room = False  # since somebody asked
        self._turns: deque[Position] = deque()
        self._failed: deque[Position] = deque()  # whose error is next; some may have none any more

    def __bool__(self) -> bool:
        """Whether there is something to take, be it an error."""
        return bool(self._turns) or self.has_error

    # Coming in

    def add(self, position: Position, chunk: Fetched) -> None:
        position.chunks.append(chunk)
        position.size += chunk.size
        if position.is_paused:
            chunk.detach()
        else:
            self.size += chunk.size
            self._line_up(position)

    def fail(self, position: Position, error: ClientError) -> None:
        """Stores an error, which is raised after all records before it were returned."""
        position.error = error
        if not position.chunks:
            self._failed.append(position)

    def _line_up(self, position: Position) -> None:
        if position.chunks and not position.is_in_turn and not position.is_paused and not position.is_leaving:
            position.is_in_turn = True
            self._turns.append(position)

    # Going out

    @property
    def has_error(self) -> bool:
        while self._failed and self._failed[0].error is None:
            self._failed.popleft()
        return bool(self._failed)

    def take_error(self) -> ClientError | None:
        if not self.has_error:
            return None
        error = self._failed[0].error
        for position in self._failed:
            if position.error is error:  # the same trouble of many is told once
                position.error = None
        return error

    def count_records(self) -> int:
        """At most: those of aborted transactions are counted, too."""
        return sum(chunk.record_count for position in self._turns for chunk in position.chunks)

    def take_records(self, count_max: int) -> list[Message]:
        """The next records; those before damaged ones are given first, then the error is raised."""
        messages: list[Message] = []
        turns = self._turns
        while turns and len(messages) < count_max:
            position = turns[0]
            chunk = position.chunks[0]
            try:
                found = chunk.take_messages(count_max - len(messages))
            except BadRecords as error:
                if messages:
                    break  # told by the next call
                self._moved(position, chunk)  # past what is not a record of the application
                raise self._broken(position, error) from error
            if messages:
                messages += found
            else:
                messages = found
            self._moved(position, chunk)
        return messages

    def take_columns(self, columns: Columns) -> bool:
        """Everything that fits; whether that was anything at all."""
        has_moved = False
        while self._turns:
            position = self._turns[0]
            chunk = position.chunks[0]
            try:
                is_whole = chunk.take_columns(columns)
            except BadRecords as error:
                if has_moved:
                    break
                self._moved(position, chunk)
                raise self._broken(position, error) from error
            has_moved = True
            self._moved(position, chunk)
            if not is_whole:
                break
        return has_moved

    def _moved(self, position: Position, chunk: Fetched) -> None:
        position.offset = chunk.next_offset
        position.epoch = max(position.epoch, chunk.next_epoch)
        self.touched.add(position)
        if chunk.is_spent:
            self.has_made_room = True
            position.chunks.popleft()
            position.size -= chunk.size
            self.size -= chunk.size
            self._turns.popleft()
            position.is_in_turn = False
            if position.chunks:
                self._line_up(position)
            else:
                self._drained(position)

    def _drained(self, position: Position) -> None:
        position.is_spoilt = False
        if position.error is not None:
            self._failed.append(position)

    def _broken(self, position: Position, error: BadRecords) -> ClientError:
        """What follows is fetched again: bytes may have been damaged on their way."""
        told = BadResponse(f"the records of partition {position.at} at offset {position.offset}: {error}")
        told.advice = "Seek past them to continue; check the broker's log and its disk."
        self.drop(position)
        position.rewind()
        return told

    # Stopping

    def drop(self, position: Position) -> None:
        """The partition's chunks and its error are of no use any more."""
        if not position.is_paused:
            self.size -= position.size
        self._leave_line(position)
        position.chunks.clear()
        position.size = 0
        position.is_spoilt = False
        position.error = None

    def remove(self, position: Position) -> None:
        """Removes a partition that is no longer read."""
        self.drop(position)
        self.touched.discard(position)
        position.round += 1

    def hold(self, position: Position) -> None:
        """The partition is paused."""
        if not position.is_paused:
            position.is_paused = True
            self.size -= position.size
            self._leave_line(position)
            for chunk in position.chunks:
                chunk.detach()  # the answer that it came in is not to be kept for its sake

    def release(self, position: Position) -> None:
        """The partition goes on."""
        if position.is_paused:
            position.is_paused = False
            self.size += position.size
            self._line_up(position)

    def stop(self, position: Position) -> None:
        """The application is giving the partition up: it gets no more of it."""
        position.is_leaving = True
        self._leave_line(position)

    def _leave_line(self, position: Position) -> None:
        if position.is_in_turn:
            position.is_in_turn = False
            self._turns.remove(position)

    def check(self) -> None:
        assert all(position.is_in_turn and position.chunks for position in self._turns)
        assert not any(position.is_paused or position.is_leaving for position in self._turns)
        assert len(set(self._turns)) == len(self._turns)


def partition_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic, message.partition)


def first_offsets(messages: Iterable[Message]) -> dict[TopicPartition, int]:
    """Where each partition has to be read again to get these."""
    offsets: dict[TopicPartition, int] = {}
    for message in messages:
        offsets.setdefault(partition_of(message), message.offset)
    return offsets


class Unread(deque[Message]):
    """Messages of the last poll that an iteration has not handed out yet.

    In the order of handing out; of each partition, in the order of offsets.
    """

    def drop(self, is_gone: Callable[[TopicPartition], bool]) -> None:
        kept = [message for message in self if not is_gone(partition_of(message))]
        self.clear()
        self.extend(kept)
