"""Offsets in the user's own database: what was done with a message and how far was read, in one transaction.

    offsets = StoredOffsets(connection, group="billing")
    offsets.create_table()
    consumer.subscribe(["orders"], listener=offsets)
    while True:
        messages = consumer.poll(1.0)
        with connection:  # commits, or rolls back
            for message in messages:
                connection.execute("INSERT INTO bills …")
            offsets.save(messages)

A crash leaves both or neither in the database, and whoever takes a partition over goes on from there: every
message counts exactly once. The group still shares the partitions; its own commits are not needed, so
enable.auto.commit can be false. Works with any DB-API 2.0 connection that is not in autocommit mode; after a
transaction that failed, `rewind` takes the consumer back to what the database has.
"""

import re
import sys
from collections.abc import Iterable
from typing import Any, Protocol

from headrace.client.cluster import TopicPartition
from headrace.client.consumer.rebalance_callbacks import RebalanceListener
from headrace.client.errors import ClientError, InvalidInput
from headrace.records._messages import Message

TABLE = "headrace_offsets"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
# Where the values go, by DB-API's paramstyle; those that want names get a mapping.
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{number}", "named": ":v{number}"}


class OffsetsMovedOn(ClientError):
    """Somebody else has stored offsets for the partition that lie behind these messages: they were done by
    another member. Nothing was changed; the transaction has to be rolled back.
    """

    advice = "Roll back and call rewind(consumer, messages): it goes on from what is in the database."


class _Seeking(Protocol):
    """What is needed of a consumer, whichever shell it has."""

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...

    def seek(self, at: TopicPartition, offset: int) -> None: ...


class StoredOffsets(RebalanceListener):
    """Seeks to what the database has when partitions are assigned, and saves in the caller's transaction.

    `connection` is any DB-API 2.0 connection; its module's paramstyle is found by itself, or given.

    >>> import sqlite3
    >>> from headrace import Consumer, StoredOffsets
    >>> database = sqlite3.connect(":memory:")
    >>> done = database.execute("CREATE TABLE bills (customer TEXT, what TEXT)")
    >>> offsets = StoredOffsets(database, group="billing")
    >>> offsets.create_table()
    >>> with Consumer(servers, group_id="billing", auto_offset_reset="earliest") as consumer:
    ...     consumer.subscribe(["orders"], listener=offsets)
    ...     messages = consumer.poll(10)
    ...     with database:
    ...         for message in messages:
    ...             done = database.execute("INSERT INTO bills VALUES (?, ?)", (message.key, message.value))
    ...         offsets.save(messages)
    >>> offsets.load([("orders", 0)])
    {TopicPartition(topic='orders', partition=0): 2}
    """

    def __init__(
        self, connection: Any, *, group: str, table: str = TABLE, paramstyle: str | None = None
    ) -> None:
        if not _NAME.fullmatch(table):
            raise InvalidInput(f"table={table!r}: must be a table name, such as offsets or schema.offsets")
        style = paramstyle or _paramstyle(connection)
        if style not in _MARKS:
            raise InvalidInput(f"paramstyle={style!r}: must be one of {', '.join(_MARKS)} (DB-API 2.0)")
        self.group = group
        self._connection = connection
        self._table = table
        self._style = style

    def create_table(self) -> None:
        """If it is not there; the caller commits, where the database wants that."""
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} (group_id VARCHAR(255) NOT NULL,"
            " topic VARCHAR(249) NOT NULL, partition_number INTEGER NOT NULL, next_offset BIGINT NOT NULL,"
            " PRIMARY KEY (group_id, topic, partition_number))"
        )

    def load(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Where to go on, for those partitions of which something was saved."""
        found: dict[TopicPartition, int] = {}
        for topic, partition in partitions:
            cursor = self._execute(
                f"SELECT next_offset FROM {self._table}"
                " WHERE group_id = {} AND topic = {} AND partition_number = {}",
                self.group,
                topic,
                partition,
            )
            row = cursor.fetchone()
            if row is not None:
                found[TopicPartition(topic, partition)] = int(row[0])
        return found

    def save(self, messages: Iterable[Message]) -> None:
        """In the transaction that is open: these messages are done.

        OffsetsMovedOn if another member has done them already; that protects from a member that was taken
        for dead and comes back.
        """
        spans: dict[TopicPartition, tuple[int, int]] = {}
        for message in messages:
            at = TopicPartition(message.topic, message.partition)
            first, _ = spans.get(at, (message.offset, 0))
            spans[at] = (first, message.offset + 1)
        for at, (first, after) in sorted(spans.items()):  # in one order, so that nobody deadlocks
            self._save(at, first, after)

    def _save(self, at: TopicPartition, first: int, after: int) -> None:
        where = " WHERE group_id = {} AND topic = {} AND partition_number = {}"
        updated = self._execute(
            f"UPDATE {self._table} SET next_offset = {{}}{where} AND next_offset <= {{}}",
            after,
            self.group,
            at.topic,
            at.partition,
            first,
        )
        if updated.rowcount > 0:
            return
        stored = self.load([at]).get(at)
        if stored is not None:
            raise OffsetsMovedOn(
                f"the database has done partition {at} up to offset {stored}, and these begin at {first}"
            )
        # two members that do this at once: the primary key lets one of them through
        self._execute(
            f"INSERT INTO {self._table} (group_id, topic, partition_number, next_offset)"
            " VALUES ({}, {}, {}, {})",
            self.group,
            at.topic,
            at.partition,
            after,
        )

    def rewind(self, consumer: _Seeking, messages: Iterable[Message]) -> None:
        """After a transaction with these messages was rolled back: takes the consumer to what the database
        has, or, where it has nothing, back to the first of them.
        """
        firsts: dict[TopicPartition, int] = {}
        for message in messages:
            firsts.setdefault(TopicPartition(message.topic, message.partition), message.offset)
        for at, offset in (firsts | self.load(firsts)).items():
            if at in consumer.assignment:
                consumer.seek(at, offset)

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        for at, offset in self.load(partitions).items():
            consumer.seek(at, offset)

    def _execute(self, template: str, *values: object) -> Any:
        mark = _MARKS[self._style]
        statement = template.format(*(mark.format(number=number) for number in range(1, len(values) + 1)))
        cursor = self._connection.cursor()
        if self._style == "named":
            cursor.execute(statement, {f"v{number}": value for number, value in enumerate(values, 1)})
        else:
            cursor.execute(statement, values)
        return cursor


def _paramstyle(connection: Any) -> str:
    package = type(connection).__module__.partition(".")[0]
    style = getattr(sys.modules.get(package), "paramstyle", None)
    if not isinstance(style, str):
        raise InvalidInput(f"the module {package!r} has no paramstyle; pass the argument paramstyle")
    return style
