"""The `range` assignor: each topic is divided into contiguous ranges, one for each subscriber.

Subscribers are in a fixed order, static members first by their instance ids, so that topics of the same size
with the same subscribers are divided in the same way: partition 3 of both goes to the same member, as joins
of topics need it.
"""

from collections.abc import Mapping

from headrace.machines.groups.assignors.model import Subscriber, Target, subscribers_by_topic


def assign_ranges(
    subscribers: Mapping[str, Subscriber], partitions: Mapping[bytes, int]
) -> dict[str, Target]:
    def place(member_id: str) -> tuple[bool, str]:
        instance_id = subscribers[member_id].instance_id
        return (False, instance_id) if instance_id is not None else (True, member_id)

    targets: dict[str, dict[bytes, tuple[int, ...]]] = {member_id: {} for member_id in subscribers}
    for topic, members in subscribers_by_topic(subscribers).items():
        share, larger_shares = divmod(partitions[topic], len(members))
        start = 0
        for number, member_id in enumerate(sorted(members, key=place)):
            end = start + share + (number < larger_shares)
            if end > start:
                targets[member_id][topic] = tuple(range(start, end))
            start = end
    return dict(targets)
