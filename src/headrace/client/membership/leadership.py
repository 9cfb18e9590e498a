"""The leader's duty: knowing what everybody wants, it shares the partitions out, and minds the topics after.

A topic that appears, grows or goes makes the shares wrong; it is the leader who notices and has the group
rebalance. The others trust it to.
"""

from collections.abc import Sequence

from headrace.client.assignors import Assignor, GroupMember
from headrace.client.assignors.wire import read_subscription, write_assignment
from headrace.client.errors import InvalidInput
from headrace.client.membership.topics import TopicWatch
from headrace.protocol.messages.join_group import JoinGroupResponseMember
from headrace.protocol.messages.sync_group import SyncGroupRequestAssignment


class Leadership:
    def __init__(self, members: Sequence[JoinGroupResponseMember], *, skips_assignment: bool) -> None:
        """Raises ProtocolError when a member's subscription cannot be read."""
        self.members: dict[str, GroupMember] = {
            member.member_id: read_subscription(member.metadata, member.group_instance_id)
            for member in members
        }
        self.topics = frozenset(topic for member in self.members.values() for topic in member.topics)
        # A static leader that came back to a settled group: the broker keeps the shares (KIP-814).
        self._skips_assignment = skips_assignment
        self._shared: dict[str, int] | None = None  # the sizes of the topics that were shared out
        self._looked_at = 0  # the changes that we have seen

    def shares(self, assignor: Assignor, topics: TopicWatch) -> list[SyncGroupRequestAssignment]:
        """Raises InvalidInput when the assignor does."""
        self._shared, self._looked_at = self._sizes(topics), topics.changes
        if self._skips_assignment:
            return []
        try:
            assignment = assignor.assign(self.members, self._shared)
            return [
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=write_assignment(assignment.get(member_id, ()))
                )
                for member_id in self.members
            ]
        except Exception as error:  # the application's own code: it must hear of it, whatever it is
            raise InvalidInput(f"the assignor {assignor.name!r} failed: {error}") from error

    def is_outdated(self, topics: TopicWatch) -> bool:
        """Whether the topics are no longer those that were shared out."""
        if self._shared is None or self._looked_at == topics.changes:
            return False
        if self._shared != self._sizes(topics):
            return True
        self._looked_at = topics.changes
        return False

    def _sizes(self, topics: TopicWatch) -> dict[str, int]:
        return {
            topic: topics.partitions[topic] for topic in sorted(self.topics) if topic in topics.partitions
        }
