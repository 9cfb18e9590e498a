"""The ticket queue: no seat twice, the order kept, while workers and the broker are killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from harness.example_programs import SETTINGS, Example, Workers
from harness.group_offsets import GroupOffsets
from harness.headrace import Headrace
from headrace import JSON, Producer

FANS, SEATS = 1_500, 450


@pytest.fixture(scope="module")
def sold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """All tickets are sold; both workers and the broker were killed meanwhile."""
    with Headrace(tmp_path_factory.mktemp("tickets"), SETTINGS) as broker:
        example = Example("ticket_queue", broker.bootstrap)
        published = int(example.run("fans.py", "--fans", FANS).split()[0])
        office = [
            example.command("box_office.py", "--worker", n, "--seats", SEATS, "--batch", 20) for n in (1, 2)
        ]
        with (
            Workers(*office) as workers,
            closing(GroupOffsets(broker.bootstrap, "box-office", "requests", 3)) as done,
        ):
            workers.until(done.total, published // 5)
            workers.kill(0)
            workers.until(done.total, published // 5 * 2)
            broker.kill()
            broker.start()
            workers.until(done.total, published // 5 * 3)
            workers.kill(1)
            workers.until(done.total, published)
        yield example


def test_no_seat_is_sold_twice_and_nobody_is_overtaken(sold: Example) -> None:
    assert "× sold out" in sold.run("check.py", "--fans", FANS)


def test_the_check_notices_a_ticket_too_many(sold: Example) -> None:
    ticket = {"fan": "fan-0", "show": "encore", "asked_at_ms": 0, "answer": "seat", "seat": 1}
    with Producer(sold.servers, value_serializer=JSON) as producer:
        producer.send("tickets", ticket, "encore", partition=2)
    printed = sold.fails("check.py", "--fans", FANS)
    assert "1 answers too many" in printed
    assert "encore: seat 1 was sold as number" in printed
