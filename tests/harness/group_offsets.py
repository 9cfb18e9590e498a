"""How far a group has come, asked from outside while brokers are being killed."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition


class GroupOffsets:
    """The committed offsets of one topic.

    A consumer that never joins asks for them: confluent-kafka's admin crashes on an answer that contains a
    coordinator still loading.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int = 1) -> None:
        self._places = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def total(self) -> int | None:
        """The sum over the partitions; None while nobody can tell."""
        try:
            places = self._reader.committed(self._places, 2)
        except KafkaException:
            return None
        if any(place.error is not None for place in places):
            return None
        return sum(max(place.offset, 0) for place in places)

    def close(self) -> None:
        self._reader.close()
