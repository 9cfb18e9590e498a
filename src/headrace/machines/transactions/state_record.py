"""The record of a transaction's new state, which is written three times for each transaction.

It is encoded from the state itself, and replayed as the state itself: to build the objects of the general
codec would take longer than the whole decision. A property test compares both.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import cast

from headrace.machines.transactions.transaction import NO_PRODUCER_ID, State, Transaction
from headrace.protocol.coordinator_records.record import CompactRecords, Record
from headrace.protocol.varint import encode_varint
from headrace.records import _codec

_KEY = Struct(">hh").pack  # kind 0, and the length of the id
_HEAD = Struct(">hqhib").pack  # version 1, producer id and epoch, timeout, state
_TIMES = Struct(">qq").pack  # of the last change, and of the start
_ID_TAG = Struct(">BBq").pack  # tag, size, producer id
_VERSION_TAG = Struct(">BBh").pack


class StateRecord(CompactRecords):
    __slots__ = ("_transaction",)

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def encoded(self, timestamp: int) -> bytes:
        return _codec.encode([(timestamp, *encode(self._transaction), ())], timestamp)

    def changes(self) -> tuple[Transaction]:
        return (self._transaction,)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Record]:
        yield self._transaction.record()


def records_of(transaction: Transaction) -> list[Record]:
    """What a decision appends when the transaction has moved to this state."""
    return cast(list[Record], StateRecord(transaction))


def encode(transaction: Transaction) -> tuple[bytes, bytes]:
    """The key and value of the state's record, in version 1."""
    (
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        last_update_ms,
        partitions,
        start_ms,
        previous_producer_id,
        next_producer_id,
        client_version,
    ) = transaction
    name = transactional_id.encode()
    parts = [_HEAD(1, producer_id, producer_epoch, timeout_ms, state)]
    if state is State.EMPTY:
        parts.append(b"\0")  # null
    elif not partitions:
        parts.append(b"\1")
    else:
        topics = transaction.by_topic()
        parts.append(encode_varint(len(topics) + 1))
        for topic, indexes in topics:
            encoded = topic.encode()
            parts += (encode_varint(len(encoded) + 1), encoded, encode_varint(len(indexes) + 1))
            parts += [index.to_bytes(4, "big", signed=True) for index in indexes]
            parts.append(b"\0")
    parts.append(_TIMES(last_update_ms, start_ms))
    tags = []
    if previous_producer_id != NO_PRODUCER_ID:
        tags.append(_ID_TAG(0, 8, previous_producer_id))
    if next_producer_id != NO_PRODUCER_ID:
        tags.append(_ID_TAG(1, 8, next_producer_id))
    if client_version:
        tags.append(_VERSION_TAG(2, 2, client_version))
    parts.append(encode_varint(len(tags)))
    return _KEY(0, len(name)) + name, b"".join(parts + tags)
