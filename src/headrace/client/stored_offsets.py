"""Offsets in the user's own database: the result of a message and its offset are in one transaction.

    offsets = StoredOffsets(connection, group="billing")
    offsets.create_table()
    consumer.subscribe(["orders"], listener=offsets)
    while True:
        messages = consumer.poll(1.0)
        with connection:  # commits, or rolls back
            for message in messages:
                connection.execute("INSERT INTO bills …")
            offsets.save(messages)

After a crash the database has both or neither, and the next owner of the partition continues from there:
every message is processed exactly once. The group still divides the partitions; its own commits are not
needed, so enable.auto.commit can be false. It works with any DB-API 2.0 connection that is not in autocommit
mode. After a transaction failed, `rewind` moves the consumer back to the offsets in the database.
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
    """The database has an offset of the partition after these messages: another member has processed them.
    Nothing was changed; roll the transaction back.
    """

    advice = "Roll back and call rewind(consumer, messages), which seeks to the offsets in the database."


class _Seeking(Protocol):
    """What is needed of a consumer, whichever shell it has."""

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...

    def seek(self, at: TopicPartition, offset: int) -> None: ...


class StoredOffsets(RebalanceListener):
    """Seeks to the offsets in the database when partitions are assigned, and saves offsets in the caller's
    transaction.

    `connection` is any DB-API 2.0 connection; the paramstyle is that of its module, or the argument.

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
        """Creates the table if it does not exist; the caller commits, if the database needs that."""
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} (group_id VARCHAR(255) NOT NULL,"
            " topic VARCHAR(249) NOT NULL, partition_number INTEGER NOT NULL, next_offset BIGINT NOT NULL,"
            " PRIMARY KEY (group_id, topic, partition_number))"
        )

    def load(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The saved offsets, for those of the partitions that have one."""
        found: dict[TopicPartition, int] = {}
        for topic, partition in partitions:
            cursor = self._execute(
                f"SELECT next_offset FROM {self._table}"  # nosec B608  # the name is checked
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
        """Saves the offsets after these messages in the open transaction.

        Raises OffsetsMovedOn if another member has already processed them: this member lost its partitions.
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
            f"UPDATE {self._table} SET next_offset = {{}}{where} AND next_offset <= {{}}",  # nosec B608
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
                f"the database already has offset {stored} of partition {at}; the messages begin at {first}"
            )
        # two members that do this at once: the primary key lets one of them through
        self._execute(
            f"INSERT INTO {self._table} (group_id, topic, partition_number, next_offset)"  # nosec B608
            " VALUES ({}, {}, {}, {})",
            self.group,
            at.topic,
            at.partition,
            after,
        )

    def rewind(self, consumer: _Seeking, messages: Iterable[Message]) -> None:
        """After a rollback: moves the consumer back to the offsets in the database, or, where it has none,
        to the first of these messages.
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
        raise InvalidInput(
            f"the module {package!r} has no paramstyle; pass the argument paramstyle to StoredOffsets"
        )
    return style
