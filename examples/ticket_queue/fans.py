"""Fans who want tickets: a seeded generator of requests, and who must get which seat.

    python examples/ticket_queue/fans.py --fans 50000

Each fan asks for one of three shows. Some click twice or more often. A request is a record of the topic
`requests`; a show is a partition, so the offsets of its partition are the queue.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from typing import NamedTuple

from headrace import JSON, Admin, Producer

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
REQUESTS, TICKETS = "requests", "tickets"
SHOWS = {"opening night": 0.5, "matinee": 0.3, "encore": 0.2}  # how popular; a show's place is its partition
START_MS = 1_767_225_600_000  # 2026-01-01, when the sale begins
DOUBLE_CLICKS = 0.2  # of all requests are followed by another one of the same fan


class Request(NamedTuple):
    fan: str
    show: str
    asked_at_ms: int


def seats_of_a_show(fans: int) -> int:
    """As many for each show; the popular one sells out."""
    return fans * 3 // 10


def requests(fans: int, seed: int) -> Iterator[Request]:
    """In the order of the clicks."""
    rng = random.Random(seed)
    impatient: list[Request] = []  # they will click again
    now_ms = START_MS
    for number in range(fans):
        now_ms += rng.choice((0, 0, 1, 2, 5))
        (show,) = rng.choices([*SHOWS], [*SHOWS.values()])
        request = Request(f"fan-{number}", show, now_ms)
        yield request
        if rng.random() < DOUBLE_CLICKS:
            impatient.append(request)
        while impatient and rng.random() < DOUBLE_CLICKS:
            again = impatient.pop(rng.randrange(len(impatient)))
            yield again._replace(asked_at_ms=now_ms)
            if rng.random() < DOUBLE_CLICKS:
                impatient.append(again)


def seating(fans: int, seed: int) -> dict[str, list[str]]:
    """The truth: for each show the fans with a seat, seat 1 first."""
    seats: dict[str, dict[str, None]] = {show: {} for show in SHOWS}
    for request in requests(fans, seed):
        if len(seats[request.show]) < seats_of_a_show(fans):
            seats[request.show].setdefault(request.fan)
    return {show: list(owners) for show, owners in seats.items()}


def create_topics(servers: str) -> None:
    with Admin(servers) as admin:
        there = {topic.name for topic in admin.list_topics()}
        for topic in (REQUESTS, TICKETS):
            if topic not in there:
                admin.create_topic(topic, partitions=len(SHOWS))


def main() -> None:
    parser = argparse.ArgumentParser(description="Publishes the requests of many fans.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--fans", type=int, default=50_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other fans")
    chosen = parser.parse_args()

    create_topics(chosen.servers)
    partitions = {show: partition for partition, show in enumerate(SHOWS)}
    published = list(requests(chosen.fans, chosen.seed))
    with Producer(chosen.servers, value_serializer=JSON) as producer:
        for request in published:
            producer.send(REQUESTS, request._asdict(), request.show, partition=partitions[request.show])
    print(f"{len(published)} requests of {chosen.fans} fans", flush=True)


if __name__ == "__main__":
    main()
