"""The dead letters of a table while the table is checked: rows + dead letters = records.

The footers of the table's files say how many records of each range are dead letters, with the sum of their
hashes. So a dead letter that is missing, changed, or a row as well, is found without the topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.lake.report import Report
from headrace.lake.row_hash import added_up, row_hashes
from headrace.lake.rows import OFFSET, PARTITION, RAW_SCHEMA
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.proof import HASH_MASK, Fault, FileProof, Finding


class DeadLetters:
    def __init__(self, tables: Iterable[pa.Table] = ()) -> None:
        """`tables` are in the order of partitions and offsets."""
        empty: Any = np.zeros(0, np.int64)
        none: Any = np.zeros(0, np.uint64)
        partitions, offsets, hashes, records = [empty], [empty], [none], [none]
        for table in tables:  # of which only numbers are kept
            partitions.append(table[PARTITION].to_numpy())
            offsets.append(table[OFFSET].to_numpy())
            hashes.append(row_hashes(table))
            records.append(row_hashes(table.select(RAW_SCHEMA.names)))
        self._partitions = np.concatenate(partitions)
        self._offsets = np.concatenate(offsets)
        self._hashes = np.concatenate(hashes)
        self._record_hashes = np.concatenate(records)

    def _inside(self, span: Span) -> Any:
        is_inside = (self._offsets >= span.start) & (self._offsets < span.end)
        return is_inside & (self._partitions == span.partition)

    def inside(self, span: Span) -> tuple[Any, Any]:
        """Return the offsets in a range, and the hashes of their records without the reasons."""
        inside = self._inside(span)
        return self._offsets[inside], self._record_hashes[inside]

    def compare(self, proof: FileProof, name: str, report: Report) -> None:
        """Compare the dead letters in the ranges of a file with what its footer says about them."""
        for one in proof.proofs:
            hashes = self._hashes[self._inside(one.span)]
            report.dead_letters += len(hashes)
            if (len(hashes), added_up(hashes) & HASH_MASK) != (one.dead_count, one.dead_hash):
                text = (
                    f"says that {one.dead_count} records of {one.span} are dead letters; their table has "
                    f"{len(hashes)} rows for it" + (", and others" if len(hashes) == one.dead_count else "")
                )
                report.findings.append(Finding(Fault.DEAD_LETTERS_DIFFER, text, name, one.span))
