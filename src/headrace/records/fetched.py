"""Fetched records of one partition, given out once and in order, as messages or as columns.

Headers are walked when the bytes arrive, batches are checked and opened when their records are wanted, one
at a time. Control batches are skipped, and so are the batches of aborted transactions if a list of those is
given: a broker sends them also to clients that read only what is committed, with a list of producer ids and
first offsets. Each transaction ends at its ABORT marker (KIP-98).
"""

from collections import deque
from collections.abc import Iterable

from headrace.records._columns import Columns
from headrace.records._messages import Message, Unread
from headrace.records.batch import RECORD_BYTES_MIN, BatchHeader, Bytes, crc_of
from headrace.records.builder import ABORT, control_kind
from headrace.records.errors import BadRecords, CorruptBatch
from headrace.records.reader import append_time, batches, open_records, read_keys


class Fetched:
    """Whole batches, of which the first may begin before `start_offset`.

    Invariant: start_offset ≤ next_offset ≤ end_offset; nothing below next_offset is handed out any more.
    """

    __slots__ = (
        "_aborted",
        "_broken",
        "_check_crcs",
        "_unread",
        "_view",
        "_waiting",
        "end_epoch",
        "end_offset",
        "next_epoch",
        "next_offset",
        "partition",
        "size",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        view: Bytes,
        start_offset: int,
        *,
        check_crcs: bool = True,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> None:
        """`aborted` are first offset and producer id of each; BadRecords if the first batch is none."""
        self.topic = topic
        self.partition = partition
        self.next_offset = start_offset  # the consumer's position
        self.next_epoch = -1  # the leader's when the record before it was written, if that came from here
        self.end_offset = start_offset  # where the next fetch goes on
        self.end_epoch = -1
        self.size = len(view)
        self._view = view
        self._check_crcs = check_crcs
        self._waiting: deque[tuple[int, BatchHeader]] = deque()
        self._aborted = _Aborted(aborted)
        self._unread: Unread | None = None  # of the first one that waits, if it was opened
        self._broken: BadRecords | None = None  # what the next call has to raise
        try:
            for position, header in batches(view, check=False):
                self._waiting.append((position, header))
                self.end_offset = max(self.end_offset, header.next_offset)
                self.end_epoch = header.leader_epoch
        except BadRecords:
            if not self._waiting:
                raise
            # those before it are good; the next fetch from there raises the error

    @property
    def is_spent(self) -> bool:
        """Whether all was handed out."""
        return not self._waiting and self._broken is None

    @property
    def record_count(self) -> int:
        """How many records are left at most."""
        return sum(header.record_count for _, header in self._waiting)

    def detach(self) -> None:
        """Keeps a copy of its own bytes: the whole answer that they came in need not stay for them."""
        if not isinstance(self._view, bytes):
            self._view = bytes(self._view)

    def take_messages(self, count_max: int) -> list[Message]:
        """The next messages; fewer than asked for only at the end, or before damaged bytes.

        What precedes the damage is handed out first, and the next call raises what is wrong, with the
        position at the first record that cannot be had.
        """
        self._raise_what_is_broken()
        messages: list[Message] = []
        try:
            while len(messages) < count_max and (unread := self._opened()) is not None:
                self._hand_out(unread, messages, count_max)
        except BadRecords as error:
            self._broken = error
            if not messages:
                raise
        return messages

    def take_columns(self, columns: Columns) -> bool:
        """Adds all that is left; False when the columns are full before that, and others have to go on.

        Damage is reported as by `take_messages`, but a batch is added whole or not at all.
        """
        self._raise_what_is_broken()
        row_count = columns.row_count
        if columns.has_room(self.size):
            # once for all, as far as these bytes can hold what their headers say; compressed ones become more
            columns.reserve(row_count + min(self.record_count, self.size // RECORD_BYTES_MIN), self.size)
        try:
            while (unread := self._opened()) is not None:
                if not columns.has_room(len(unread.records)):
                    return False
                header = self._waiting[0][1]
                columns.add(
                    unread.records,
                    header.record_count,
                    header.base_offset,
                    header.base_timestamp,
                    append_time(header),
                    self.topic,
                    self.partition,
                    self.next_offset,
                )
                self._step_over(header)
        except BadRecords as error:
            self._broken = error
            if columns.row_count == row_count:
                raise
        return True

    def _raise_what_is_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _opened(self) -> Unread | None:
        """The next batch with records to hand out; None when there is no more."""
        while self._unread is None and self._waiting:
            position, header = self._waiting[0]
            if self._check_crcs and crc_of(self._view, position, header.size) != header.crc:
                raise CorruptBatch(f"checksum of the batch at offset {header.base_offset} is wrong")
            if header.is_control:
                self._aborted.ended(header, read_keys(self._view, position, header))
                self._step_over(header)
            elif header.next_offset <= self.next_offset or self._aborted.holds(header):
                self._step_over(header)
            else:
                self._unread = Unread(
                    open_records(self._view, position, header),
                    header.record_count,
                    header.base_offset,
                    header.base_timestamp,
                    append_time(header),
                    self.topic,
                    self.partition,
                    header.leader_epoch,
                    self.next_offset,
                )
        return self._unread

    def _hand_out(self, unread: Unread, messages: list[Message], count_max: int) -> None:
        before = len(messages)
        try:
            unread.take(messages, count_max - before)
        finally:  # also before a damaged record
            if len(messages) > before:
                self.next_offset = max(self.next_offset, messages[-1].offset + 1)
                self.next_epoch = messages[-1].leader_epoch
        if not unread.left:
            self._step_over(self._waiting[0][1])

    def _step_over(self, header: BatchHeader) -> None:
        self._waiting.popleft()
        self._unread = None
        self.next_offset = max(self.next_offset, header.next_offset)
        self.next_epoch = header.leader_epoch


class _Aborted:
    """Which producers are inside an aborted transaction while we walk through the batches."""

    __slots__ = ("_ahead", "_inside")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._ahead = deque(sorted(aborted))  # first offset, producer id
        self._inside: set[int] = set()

    def holds(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to one."""
        while self._ahead and self._ahead[0][0] <= header.last_offset:
            self._inside.add(self._ahead.popleft()[1])
        return header.is_transactional and header.producer_id in self._inside

    def ended(self, header: BatchHeader, keys: list[tuple[int, bytes | None, bool]]) -> None:
        """A control batch; one whose record was compacted away ends nothing any more."""
        if any(control_kind(key) == ABORT for _, key, _ in keys):
            self.holds(header)  # a transaction whose batches were all compacted away may begin right here
            self._inside.discard(header.producer_id)
