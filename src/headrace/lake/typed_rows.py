"""Records of a range as rows with typed columns, and as dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.dead_letters import DeadLetterTable, dead_rows
from headrace.lake.errors import BadRecord
from headrace.lake.files import Piece
from headrace.lake.rows import DEAD_SCHEMA, OFFSET
from headrace.lake.table import LakeTable, Snapshot
from headrace.lake.values import REGISTRY, ValueDecoder
from headrace.machines.lake.ledger import Span


class TypedRows:
    """Decodes what a copier reads. The table gets new columns before a file with them is written."""

    def __init__(self, lake: LakeTable, decoder: ValueDecoder, dead: DeadLetterTable | None) -> None:
        self._lake = lake
        self._decoder = decoder
        self.dead = dead

    def pieces(self, snapshot: Snapshot, span: Span, tables: Iterable[pa.Table]) -> Iterator[Piece]:
        """Yield the rows of a range; its dead letters are written when all are read."""
        schema = snapshot.schema
        if self.dead is None:
            decided, known = Span(span.partition, span.start, span.start), DEAD_SCHEMA.empty_table()
        else:
            decided, known = self.dead.held(span)
        new: list[pa.Table] = []
        for raw in tables:
            if not raw.num_rows:
                continue
            found = self._decoder.decode(raw, schema)
            if found.rows.schema != schema:
                schema = self._lake.add_columns(found.rows.schema)
                found = self._decoder.decode(raw, schema)  # another owner may have added columns too
            first, last = raw[OFFSET][0].as_py(), raw[OFFSET][-1].as_py()
            held = _inside(known, Span(span.partition, first, last + 1))
            reasons = self._new_reasons(snapshot, found.reasons, decided, held)
            rows = found.rows
            if held.num_rows:
                rows = rows.filter(pc.invert(pc.is_in(rows[OFFSET], held[OFFSET].combine_chunks())))
            dead = held
            if reasons:
                new.append(dead_rows(raw, reasons))
                dead = pa.concat_tables([held, new[-1]])
            yield Piece(first, rows, dead if dead.num_rows else None)
        if self.dead is not None:
            for part in (
                Span(span.partition, span.start, decided.start),
                Span(span.partition, decided.end, span.end),
            ):
                self.dead.write(part, [_inside(table, part) for table in new])

    def _new_reasons(
        self, snapshot: Snapshot, reasons: dict[int, str], decided: Span, held: pa.Table
    ) -> dict[int, str]:
        """Return the reasons of records that are not decided yet."""
        known = set(held[OFFSET].to_pylist())
        new = {}
        for offset, reason in reasons.items():
            if offset in known:
                continue
            where = f"offset {offset} of partition {snapshot.topic}-{decided.partition}"
            if decided.start <= offset < decided.end:
                raise BadRecord(
                    f"the record at {where} cannot be decoded, although it could be before: {reason}"
                )
            if self.dead is None:
                raise BadRecord(f"the record at {where} cannot be a row of table {self._lake.path}: {reason}")
            new[offset] = reason
        return new


def _inside(table: pa.Table, span: Span) -> pa.Table:
    offsets = table[OFFSET]
    return table.filter(pc.and_(pc.greater_equal(offsets, span.start), pc.less(offsets, span.end)))


def table_decoder(snapshot: Snapshot, registry_url: str | None) -> ValueDecoder | None:
    """Return the decoder of a table's values; None if the table has their bytes only."""
    values = snapshot.values
    if values is None:
        return None
    if values.format != REGISTRY or registry_url is None:
        return ValueDecoder(values)
    from headrace.schemas import Registry

    return ValueDecoder(values, Registry(registry_url))
