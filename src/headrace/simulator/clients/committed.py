"""The records of a fetch that a read_committed consumer returns: no control records, no aborted
transactions.
"""

from typing import Any

from headrace.records.builder import ABORT, control_kind
from headrace.records.reader import batches, read_rows


def committed_rows(data: Any, position: int) -> list[tuple[int, bytes]]:
    """Offset and value of each record from `position` on, as real clients filter them: a transaction's
    records are skipped from the first offset that the answer says is aborted until its ABORT marker.
    """
    aborted = sorted(
        ((one.first_offset, one.producer_id) for one in data.aborted_transactions or ()), reverse=True
    )
    skipping: set[int] = set()
    found: list[tuple[int, bytes]] = []
    for at, header in batches(data.records or b""):
        while aborted and aborted[-1][0] <= header.last_offset:
            skipping.add(aborted.pop()[1])
        rows = read_rows(data.records, at, header)
        if header.is_control:
            if rows and control_kind(rows[0][2]) == ABORT:
                skipping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipping):
            found += [(row[0], row[3] or b"") for row in rows if row[0] >= position]
    return found
