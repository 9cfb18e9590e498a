"""The record of a state is what the general codec writes, and contains the whole state."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.transactions.state_record import StateRecord
from headrace.machines.transactions.transaction import State, Transaction, recorded
from headrace.protocol.coordinator_records import TRANSACTION_RECORDS, changes, decode, encode, encode_batch
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import read_rows

int64 = st.integers(-(2**63), 2**63 - 1)
ids = st.just(-1) | st.integers(0, 2**63 - 1)
names = st.text(max_size=3) | st.just("a long name" * 20)
places = st.frozensets(st.tuples(names, st.integers(-(2**31), 2**31 - 1)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(
    transaction=st.builds(
        Transaction,
        transactional_id=st.text(max_size=20),
        producer_id=ids,
        producer_epoch=st.integers(-1, 2**15 - 1),
        timeout_ms=st.integers(0, 2**31 - 1),
        state=st.sampled_from(State),
        last_update_ms=int64,
        partitions=places | st.frozensets(st.tuples(st.just("t"), st.integers(0, 500)), max_size=300),
        start_ms=int64,
        previous_producer_id=ids,
        next_producer_id=ids,
        client_version=st.sampled_from((0, 2)),
    ),
    wall_ms=st.integers(0, 2**62),
)
def test_the_record_of_a_move(transaction: Transaction, wall_ms: int) -> None:
    if transaction.state is State.EMPTY:
        transaction = transaction._replace(partitions=frozenset())
    records: Any = StateRecord(transaction)
    assert len(records) == 1
    batch = encode_batch(records, wall_ms)
    assert batch == build_batch([(wall_ms, *encode(transaction.record()), ())])
    (row,) = read_rows(batch, 0, read_header(batch))
    record: Any = decode(TRANSACTION_RECORDS, row[2] or b"", row[3])
    assert recorded(record.key.transactional_id, record.value) == transaction
    assert list(changes(records)) == [transaction]
