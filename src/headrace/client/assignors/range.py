"""The `range` assignor: each topic is cut into contiguous pieces, one for each subscriber.

Topics of one size with the same subscribers are cut alike, so that partition 3 of both goes to the same
member, as joins need it. Equal to Java's and librdkafka's where members name no racks.
"""

from collections.abc import Mapping

from headrace.client.assignors.model import Assignment, GroupMember, seats, sorted_topics
from headrace.client.cluster import TopicPartition


class RangeAssignor:
    name = "range"

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assignment:
        order = seats(members)
        shares: Assignment = {member_id: [] for member_id in order}
        for topic in sorted_topics(members, partitions):
            subscribers = [member_id for member_id in order if topic in members[member_id].topics]
            share, larger_shares = divmod(partitions[topic], len(subscribers))
            start = 0
            for number, member_id in enumerate(subscribers):
                end = start + share + (number < larger_shares)
                shares[member_id] += [TopicPartition(topic, index) for index in range(start, end)]
                start = end
        return shares
