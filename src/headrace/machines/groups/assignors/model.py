"""Input and output of the assignors."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

# Partitions by topic id, each tuple in ascending order; a topic without partitions is not listed. A value:
# never changed once made.
Target = Mapping[bytes, tuple[int, ...]]


class Subscriber(NamedTuple):
    """One member of the group."""

    topics: frozenset[bytes]  # ids of the existing topics that it subscribed to
    current: Target  # what the last assignment gave it
    instance_id: str | None = None


# (subscribers by member id, in a fixed order; partition counts by topic id) -> targets by member id
Assignor = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Target]]


def subscribers_by_topic(subscribers: Mapping[str, Subscriber]) -> dict[bytes, list[str]]:
    """Who wants each topic, topics in ascending order of their ids."""
    wanted: dict[bytes, list[str]] = {}
    for member_id, subscriber in subscribers.items():
        for topic in subscriber.topics:
            wanted.setdefault(topic, []).append(member_id)
    return dict(sorted(wanted.items()))
