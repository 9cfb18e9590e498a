"""The `roundrobin` assignor: all partitions of all topics are dealt round, each to the next who wants it.

Equal to Java's and librdkafka's.
"""

from collections.abc import Mapping
from itertools import cycle

from headrace.client.assignors.model import Assignment, GroupMember, seats, sorted_topics
from headrace.client.cluster import TopicPartition


class RoundRobinAssignor:
    name = "roundrobin"

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assignment:
        order = seats(members)
        shares: Assignment = {member_id: [] for member_id in order}
        dealer = cycle(order)
        for topic in sorted_topics(members, partitions):
            for index in range(partitions[topic]):
                taker = next(member_id for member_id in dealer if topic in members[member_id].topics)
                shares[taker].append(TopicPartition(topic, index))
        return shares
