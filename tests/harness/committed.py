"""What a topic holds for readers of committed records, read to its end."""

from __future__ import annotations

import headrace


def committed(servers: str, topic: str) -> list[headrace.Message]:
    """All messages, each partition's in their order."""
    with (
        headrace.Consumer(servers, isolation_level="read_committed") as consumer,
        headrace.Admin(servers) as admin,
    ):
        partitions = admin.describe_topic(topic).all_partitions()
        consumer.assign(dict.fromkeys(partitions, 0))
        ends = consumer.end_offsets(partitions)
        found: list[headrace.Message] = []
        while any(consumer.position(at) < end for at, end in ends.items()):
            found += consumer.poll(timeout=0.2)
    return found


def committed_texts(servers: str, topic: str) -> list[str]:
    """Their values, sorted."""
    return sorted(message.value.decode() for message in committed(servers, topic))
