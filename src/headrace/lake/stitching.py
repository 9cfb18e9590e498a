"""Reads a lake table and the topic behind it as one: the table up to its ledger, the topic from there.

The seam is an exact offset of each partition, taken from one version of the table, so no record is missing
and none is there twice, whatever is copied meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa

from headrace.lake.copying import lost_text
from headrace.lake.errors import BadRecord, RecordsLost, TopicTruncated, WrongTable
from headrace.lake.reading import read_rows
from headrace.lake.rows import fitted
from headrace.lake.table import Snapshot
from headrace.lake.topic import LakeTopic
from headrace.lake.values import ValueDecoder
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.plan import plan_append


def read_stitched(
    directory: Path,
    snapshot: Snapshot,
    topic: LakeTopic,
    *,
    partitions: Collection[int] = (),
    start: int = 0,
    end: int | None = None,
    decoder: ValueDecoder | None = None,
) -> Iterator[pa.Table]:
    """Yield rows by partition and then by offset, up to the end that the topic has now.

    A table with typed columns needs its decoder. Records that cannot be rows are left out if the table has a
    place for dead letters, where they will be.
    """
    if snapshot.is_upsert:
        raise WrongTable(
            f"table {directory} has the newest record of each key, which the topic's records do not "
            "continue: read one of the two"
        )
    assert (decoder is None) == (snapshot.values is None), "a table with typed columns has a decoder"
    logs = topic.logs(snapshot.topic_id)
    ends = {partition: log.end for partition, log in logs.items()}
    rest = plan_append(snapshot.ledger, logs, ends, offsets_max=1 << 62, from_end=False)
    if rest.lost:
        raise RecordsLost(lost_text(topic.name, rest.lost))
    if rest.truncated:
        which = "; ".join(map(str, rest.truncated))
        raise TopicTruncated(f"table {directory} has {which}, but topic {topic.name!r} ends before them")
    live = {span.partition: span for span in rest.spans}
    for partition in sorted({*snapshot.ledger, *live}):
        if partitions and partition not in partitions:
            continue
        yield from read_rows(directory, snapshot, partitions=[partition], start=start, end=end)
        if partition in live:
            _, first, last = live[partition]
            last = last if end is None else min(last, end)
            for table in topic.read(snapshot.topic_id, Span(partition, max(first, start), last)):
                yield fitted(table, snapshot.schema) if decoder is None else _typed(table, decoder, snapshot)


def _typed(raw: pa.Table, decoder: ValueDecoder, snapshot: Snapshot) -> pa.Table:
    found = decoder.decode(raw, snapshot.schema)
    if found.reasons and snapshot.dead_letters is None:
        offset, reason = min(found.reasons.items())
        raise BadRecord(f"the record at offset {offset} of topic {snapshot.topic!r}: {reason}")
    return found.rows
