"""The copier: it brings a topic's records into its lake table, each once, however often it is stopped.

A step plans the next ranges by the table's own ledger, writes them as files, adds the files with one commit
that moves the ledger, and then commits the group, which allows the topic to delete the records. It keeps no
state of its own: whatever a kill leaves undone, the next step plans again, and files that no commit names are
not part of the table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace.client.errors import ClientError
from headrace.client.threads.range_reader import DataLost
from headrace.lake.errors import RecordsLost, TopicTruncated, WrongTable
from headrace.lake.files import Piece, WrittenFile, write_loss, write_span
from headrace.lake.rows import OFFSET, check_columns, fitted
from headrace.lake.table import LakeTable, Snapshot
from headrace.lake.topic import LakeTopic
from headrace.lake.typed_rows import TypedRows
from headrace.lake.upserting import Upserts
from headrace.machines.lake.ledger import Ledger, Span, Verdict
from headrace.machines.lake.plan import Log, Plan, plan_append, plan_backfill

# Of each partition in one commit: some seconds of work, which is what a kill can lose.
OFFSETS_PER_COMMIT = 1_000_000

# How often, and how long each time, a topic is asked again that seems to end before the table.
DOUBTS_MAX = 10
DOUBT_S = 1.0

log = logging.getLogger("headrace.lake")


@dataclass(slots=True)
class Copied:
    """What a run has added to the table."""

    commits: int = 0
    files: int = 0
    rows: int = 0
    dead_letters: int = 0
    file_bytes: int = 0
    lost: list[Span] = field(default_factory=list)


class Copier:
    def __init__(
        self,
        lake: LakeTable,
        topic: LakeTopic,
        *,
        from_end: bool = False,
        allows_loss: bool = False,
        typed: TypedRows | None = None,
        offsets_per_commit: int = OFFSETS_PER_COMMIT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._lake = lake
        self._topic = topic
        self._from_end = from_end
        self._allows_loss = allows_loss
        self._typed = typed  # for a table with columns for the values' fields
        self._upserts = Upserts(lake)  # for a table with the newest record of each key
        self._offsets_max = offsets_per_commit
        self._sleep = sleep
        self._group_offsets: dict[int, int] = {}  # that this copier committed last

    def copy_available(self, on_commit: Callable[[Copied], None] = lambda _: None) -> Copied:
        """Copy up to the ends that the topic has now."""
        logs = self._topic.logs(self._lake.load().topic_id)
        ends = {partition: log.end for partition, log in logs.items()}

        def plan(ledger: Ledger, logs: dict[int, Log]) -> Plan:
            return plan_append(ledger, logs, ends, offsets_max=self._offsets_max, from_end=self._from_end)

        return self._copy(plan, on_commit)

    def follow(self, interval_s: float, on_copied: Callable[[Copied], None]) -> None:
        """Copy what is new every `interval_s`, for ever. A broker that is away is waited for."""
        while True:
            try:
                on_copied(self.copy_available())
            except ClientError as error:
                if not error.is_retriable:
                    raise
                log.warning("copying to %s goes on in %g s: %s", self._lake.path, interval_s, error)
            self._sleep(interval_s)

    def backfill(
        self, down_to: int | None = None, on_commit: Callable[[Copied], None] = lambda _: None
    ) -> Copied:
        """Copy what lies before the table's first offsets, as far as the topic still has it."""
        if self._lake.load().is_upsert:
            raise WrongTable(
                f"table {self._lake.path} has the newest record of each key: older ones could bring back "
                "keys that were deleted. Make a new table instead"
            )

        def plan(ledger: Ledger, logs: dict[int, Log]) -> Plan:
            return plan_backfill(ledger, logs, offsets_max=self._offsets_max, down_to=down_to)

        return self._copy(plan, on_commit)

    def _copy(
        self, plan: Callable[[Ledger, dict[int, Log]], Plan], on_commit: Callable[[Copied], None]
    ) -> Copied:
        copied = Copied()
        snapshot = self._lake.load()
        doubts = 0
        while True:
            logs = self._topic.logs(snapshot.topic_id)
            todo = plan(snapshot.ledger, logs)
            if todo.is_empty:
                break
            if todo.truncated and doubts < DOUBTS_MAX:
                doubts += 1  # a new leader may not know yet how far its followers are
                self._sleep(DOUBT_S)
                snapshot = self._lake.load()
                continue
            if todo.truncated:
                which = "; ".join(map(str, todo.truncated))
                raise TopicTruncated(
                    f"table {self._lake.path} has {which}, but topic {self._topic.name!r} ends before them"
                )
            if todo.lost and not self._allows_loss:
                raise RecordsLost(lost_text(self._topic.name, todo.lost))
            doubts = 0
            try:
                files = self.write(snapshot, todo)
            except DataLost as error:
                log.info("the topic was trimmed meanwhile, so the ranges are planned again: %s", error)
                continue
            verdict, snapshot = self.commit(snapshot, files, todo)
            if verdict is Verdict.FITS:
                copied.commits += 1
                copied.files += len(files)
                copied.rows += (
                    self._upserts.row_count
                    if snapshot.is_upsert
                    else sum(file.proof.row_count for file in files)
                )
                copied.dead_letters += sum(file.proof.dead_count for file in files)
                copied.file_bytes += sum(file.size for file in files)
                copied.lost += todo.lost
            self.commit_group(snapshot)
            on_commit(copied)
        self.commit_group(self._lake.load())  # another owner may be further
        return copied

    # --- the parts of a step, in their order --------------------------------------------------------------

    def write(self, snapshot: Snapshot, todo: Plan) -> list[WrittenFile]:
        """Write the files of all ranges; they are on disk afterwards."""
        check_columns(snapshot.schema, self._lake.path, snapshot.own_schema)
        if self._typed is not None and self._typed.dead is not None:
            self._typed.dead.begin()
        if snapshot.is_upsert:
            for span in todo.lost:
                log.error("%s", lost_text(self._topic.name, [span]))
            pieces = (piece for span in todo.spans for piece in self._pieces(snapshot, span))
            return self._upserts.write(snapshot, (piece.rows for piece in pieces))
        files = [self.write_lost(snapshot, span) for span in todo.lost]
        for span in todo.spans:
            if span.size > 0:
                files += self.write_range(snapshot, span)
        return files

    def write_lost(self, snapshot: Snapshot, span: Span) -> WrittenFile:
        log.error("%s", lost_text(self._topic.name, [span]))
        return write_loss(self._lake.path, snapshot.schema, snapshot.topic_id, span)

    def write_range(self, snapshot: Snapshot, span: Span) -> list[WrittenFile]:
        pieces = self._pieces(snapshot, span)
        return list(write_span(self._lake.path, snapshot.schema, snapshot.topic_id, span, pieces))

    def _pieces(self, snapshot: Snapshot, span: Span) -> Iterator[Piece]:
        tables = self._topic.read(snapshot.topic_id, span)
        if self._typed is not None:
            return self._typed.pieces(snapshot, span, tables)
        return (
            Piece(table[OFFSET][0].as_py(), fitted(table, snapshot.schema))
            for table in tables
            if table.num_rows
        )

    def commit(self, snapshot: Snapshot, files: list[WrittenFile], todo: Plan) -> tuple[Verdict, Snapshot]:
        spans = [*todo.lost, *todo.spans]
        if self._typed is not None:
            if not self.commit_dead_letters(snapshot, spans):
                snapshot = self._lake.load()
                self._lake.remove(files, snapshot)
                return Verdict.STALE, snapshot
            snapshot = self._lake.load()  # it may have got columns
        return self._lake.commit(snapshot, files, spans, self._upserts.replaced)

    def commit_dead_letters(self, snapshot: Snapshot, spans: list[Span]) -> bool:
        """Commit them before the rows, because they decide which records are rows."""
        assert self._typed is not None
        dead = self._typed.dead
        return dead is None or dead.commit(snapshot.ledger, spans)

    def commit_group(self, snapshot: Snapshot) -> None:
        """Commit what the table holds; it is on disk."""
        offsets = {partition: held.next for partition, held in snapshot.ledger.items()}
        if snapshot.group and offsets != self._group_offsets:
            self._topic.commit(snapshot.group, offsets)
            self._group_offsets = offsets


def lost_text(topic: str, lost: list[Span]) -> str:
    which = "; ".join(map(str, lost))
    return f"topic {topic!r} deleted records before they were copied: {which}"
