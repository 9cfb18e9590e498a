"""confluent-kafka above its quota: it is told so, slowed down, and loses nothing. Rates are measured by
`make bench ONLY=quotas`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, ThrottleEvent, TopicPartition

from harness.wait import WAIT_S, eventually
from headrace import Admin, QuotaEntity

VALUE = bytes(20_000)


@contextmanager
def limited(bootstrap: str, client_id: str, key: str) -> Iterator[None]:
    """A quota of 1,000 bytes per second: ten seconds of it may be used at once."""
    entity = QuotaEntity(client_id=client_id)
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.alter_quotas({entity: {key: 1000}})
        try:
            yield
        finally:
            admin.alter_quotas({entity: {key: None}})


def test_a_producer_above_its_quota(bootstrap: str, new_topic: Callable[..., str], name: str) -> None:
    topic = new_topic()
    throttled: list[ThrottleEvent] = []
    settings = {"bootstrap.servers": bootstrap, "client.id": name, "log_level": 2}
    sender = Producer(settings | {"throttle_cb": throttled.append})
    with limited(bootstrap, name, "producer_byte_rate"):
        for _ in range(3):
            sender.produce(topic, VALUE)

        def is_throttled() -> bool:
            sender.poll(0.1)
            return any(event.throttle_time > 5 for event in throttled)

        eventually(is_throttled, True)
    assert sender.flush(WAIT_S) == 0


def test_a_consumer_above_its_quota(bootstrap: str, new_topic: Callable[..., str], name: str) -> None:
    topic = new_topic()
    sender = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for _ in range(3):
        sender.produce(topic, VALUE)
    assert sender.flush(WAIT_S) == 0
    throttled: list[ThrottleEvent] = []
    settings = {"bootstrap.servers": bootstrap, "client.id": name, "group.id": name, "log_level": 2}
    reader = Consumer(settings | {"throttle_cb": throttled.append})
    sizes: list[int] = []

    def read(until: Callable[[], bool]) -> bool:
        message = reader.poll(0.1)
        if message is not None:
            assert message.error() is None
            sizes.append(len(message))
        return until()

    with limited(bootstrap, name, "consumer_byte_rate"):
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        eventually(lambda: read(lambda: bool(throttled)), True)
    # Kafka mutes for up to ten seconds, and goes on muting until it has noticed that the quota is gone
    eventually(lambda: read(lambda: len(sizes) == 3), True, WAIT_S)
    assert sizes == [len(VALUE)] * 3
    reader.close()
