"""Payments: the ledger equals the truth while its workers and the broker are killed; v2, replayed by time,
equals v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from harness.example_programs import SETTINGS, Example, Workers
from harness.group_offsets import GroupOffsets
from harness.headrace import Headrace
from headrace import JSON, Producer

ORDERS = 400  # of about three hours
SINCE = "2026-01-01T01:30"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Headrace]:
    with Headrace(tmp_path / "broker", SETTINGS) as broker:
        yield broker


@contextmanager
def bookkeepers(example: Example, version: str, *more: str) -> Iterator[Workers]:
    """Two of them; each is killed once."""
    commands = [
        example.command("ledger.py", "--worker", n, "--version", version, "--batch", 20, *more)
        for n in (1, 2)
    ]
    with (
        Workers(*commands) as workers,
        closing(GroupOffsets(example.servers, f"ledger-{version}", "orders", 3)) as done,
    ):
        workers.until(done.total, ORDERS // 4)
        workers.kill(0)
        workers.until(done.total, ORDERS // 2)
        workers.kill(1)
        yield workers


def test_each_payment_is_booked_once_and_a_second_version_equals_the_first(
    broker: Headrace, tmp_path: Path
) -> None:
    example = Example("payments", broker.bootstrap)
    example.run("shop.py", "--orders", ORDERS)
    sample = ("--orders", ORDERS)
    with bookkeepers(example, "v1") as workers:
        broker.kill()
        broker.start()
        workers.until_right(example, "check.py", *sample)
    with bookkeepers(example, "v2", "--since", SINCE) as workers:
        printed = workers.until_right(example, "check.py", *sample, "--v2-since", SINCE)
    v1, v2 = (int(line.split()[0]) for line in printed.splitlines())
    assert v1 // 4 < v2 < v1  # it began in the middle

    database = tmp_path / "orders.db"
    example.run("states.py", "--database", database, "--once")
    example.run("check.py", *sample, "--database", database)

    entry = {"payment": "payment-1", "order": "order-1", "account": "cash", "cents": 100, "at_ms": 0}
    with Producer(broker.bootstrap, value_serializer=JSON) as producer:
        producer.send("ledger", entry, "order-1")
    printed = example.fails("check.py", *sample)
    assert "0 entries are missing, 1 are too many" in printed
    assert "payment-1: the entries add up to 100, not 0" in printed
