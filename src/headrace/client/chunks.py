"""From the bytes of a fetch to records: control batches and aborted transactions are left out.

A fetch that reads only what is committed still brings the batches of aborted transactions, with a list of
who began one and where; the transaction ends at its ABORT marker (KIP-98).
"""

from collections.abc import Iterator
from itertools import takewhile

from headrace.client.errors import BadResponse
from headrace.client.fetcher import READ_COMMITTED, Chunk
from headrace.client.record import Record
from headrace.records.batch import BatchHeader
from headrace.records.builder import ABORT, control_kind
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, read_rows


def records_of(chunk: Chunk, isolation: int) -> Iterator[list[Record]]:
    """The records of each batch, in order, from the offset on that was asked for; batches without any are
    left out.
    """
    topic, partition = chunk.at
    start = chunk.start
    aborting = _Aborting(chunk) if isolation == READ_COMMITTED and chunk.aborted else None
    try:
        for position, header in batches(chunk.records):
            if header.is_control:
                if aborting is not None:
                    aborting.ended(header, read_rows(chunk.records, position, header)[0][2])
                continue
            if header.next_offset <= start or (aborting is not None and aborting.holds(header)):
                continue
            rows = read_rows(chunk.records, position, header)
            found = [Record(topic, partition, *row) for row in rows if row[0] >= start]
            if found:
                yield found
    except BadRecords as error:
        raise BadResponse(f"the broker sent broken records for partition {chunk.at}: {error}") from error


class _Aborting:
    """Which producers are inside an aborted transaction while we walk through a chunk."""

    def __init__(self, chunk: Chunk) -> None:
        self._ahead = sorted(chunk.aborted, key=lambda aborted: aborted.first_offset)
        self._inside: set[int] = set()

    def holds(self, header: BatchHeader) -> bool:
        begun = list(takewhile(lambda aborted: aborted.first_offset <= header.last_offset, self._ahead))
        del self._ahead[: len(begun)]
        self._inside |= {aborted.producer_id for aborted in begun}
        return header.is_transactional and header.producer_id in self._inside

    def ended(self, header: BatchHeader, key: bytes | None) -> None:
        if control_kind(key) == ABORT:
            self.holds(header)  # a transaction whose batches were all compacted away may begin right here
            self._inside.discard(header.producer_id)
