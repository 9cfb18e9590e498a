"""CPU time of loading `__transaction_state`, per record: `python -m benchmarks.loading_bench [records]`.

Decoded and replayed as after a start, without disk and pauses. A record per batch, as a coordinator writes
them, or many.
"""

import gc
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

from headrace.machines.transactions.settings import TransactionSettings
from headrace.machines.transactions.state_record import encode
from headrace.machines.transactions.transaction import Transaction, created
from headrace.machines.transactions.transactions import Transactions
from headrace.node.coordinators.loader import Loader
from headrace.protocol.coordinator_records import TRANSACTION_RECORDS
from headrace.records.batch import assign
from headrace.records.builder import build_batch

NOW_MS = 1_790_000_000_000
IDS = 50_000


def opened(number: int) -> Transaction:
    places = frozenset((("orders", number % 12), ("orders", number % 7), ("payments", number % 5)))
    fresh = created(f"service-{number % IDS:08}", number % IDS, NOW_MS, 60_000)
    return fresh.added(NOW_MS, places, 2)


def ended(number: int) -> Transaction:
    """What compaction leaves."""
    return opened(number).prepared(NOW_MS, is_commit=True, transaction_version=2).completed(NOW_MS)


def moving(number: int) -> Transaction:
    """The three records of each transaction, one after the other."""
    state = opened(number // 3)
    if number % 3:
        state = state.prepared(NOW_MS, is_commit=True, transaction_version=2)
    return state.completed(NOW_MS) if number % 3 == 2 else state


LOGS = {"ended": ended, "open, ending, ended": moving, "open": opened}


def log_of(states: list[Transaction], per_batch: int) -> bytes:
    batches = []
    for start in range(0, len(states), per_batch):
        some = states[start : start + per_batch]
        batch = bytearray(build_batch([(NOW_MS, *encode(each), ()) for each in some]))
        assign(batch, 0, start, 0)
        batches.append(batch)
    return b"".join(batches)


def load_seconds(chunk: bytes) -> float:
    """Of the best of some runs."""
    found = []
    for _ in range(5):
        machine = Transactions(TransactionSettings(), 0)
        ports: Any = SimpleNamespace(deadlines=None, jobs=None, reports=None, lifecycle=None)
        shard: Any = SimpleNamespace(kinds=TRANSACTION_RECORDS)
        log: Any = SimpleNamespace(log_start_offset=0)
        loader = Loader(shard, cast(Any, None), log, machine, cast(Any, None), ports, chunk_bytes=0)
        gc.collect()
        began = time.process_time()
        for _ in loader._replayed(chunk):
            pass
        found.append(time.process_time() - began)
        assert machine.state()
    return min(found)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    for name, make in LOGS.items():
        states = [make(number) for number in range(count)]
        for per_batch in (1, 10, 1000):
            seconds = load_seconds(log_of(states, per_batch))
            print(f"{name}, {per_batch} per batch: {seconds / count * 1e6:.2f} µs per record")


if __name__ == "__main__":
    main()
