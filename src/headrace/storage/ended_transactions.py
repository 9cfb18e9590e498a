"""Ended transactions during a walk over a log: which data was aborted, and which transactions have data left.

An end marker is needed as long as data of its transaction is in the log; when a whole walk finds none,
the marker may be removed.
"""

from bisect import bisect_right
from collections.abc import Iterable

from headrace.records.batch import BatchHeader
from headrace.storage.transaction_index import AbortedTransaction


class EndedTransactions:
    __slots__ = ("_aborted", "_by_marker", "_with_data")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}  # per producer, in the order of their offsets
        self._by_marker: dict[int, AbortedTransaction] = {}
        for one in aborted:
            self._aborted.setdefault(one.producer_id, []).append(one)
            self._by_marker[one.last_offset] = one
        self._with_data: set[int] = set()  # producers of which data was met since their last marker

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data belongs to a transaction that was aborted."""
        if not header.is_transactional:
            return False
        candidates = self._aborted.get(header.producer_id)
        if candidates is None:
            return False
        at = bisect_right(candidates, header.base_offset, key=lambda one: one.first_offset) - 1
        return at >= 0 and header.base_offset <= candidates[at].last_offset

    def note_data(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._with_data.add(header.producer_id)

    def note_marker(self, header: BatchHeader) -> bool:
        """Whether anything of the transaction that it ends was met on the way here."""
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        return has_data

    def aborted_by(self, header: BatchHeader) -> AbortedTransaction | None:
        """What the transaction index says of this marker."""
        return self._by_marker.get(header.last_offset)
