"""A commit is refused if it was sent after its partition had been assigned to another member.

Members commit only partitions that they believe to own. A partition is assigned to another member only when
its owner has given it up or was removed from the group. So a member that still commits it is a zombie.
"""

from headrace.simulator.history import Assigned, CommitAccepted, CommitAsked, Event, PartitionKey, Violation


class FencedMembersCannotCommit:
    name = "fenced_members_cannot_commit"

    def __init__(self) -> None:
        self._owners: dict[tuple[str, PartitionKey], str] = {}
        self._fenced: dict[int, str] = {}  # by number of the commit: why

    def see(self, event: Event, /) -> None:
        match event:
            case Assigned(group=group, member=member, partitions=partitions):
                self._owners.update({(group, partition): member for partition in partitions})
            case CommitAsked(number, group, member, partitions):
                for partition in partitions:
                    owner = self._owners.get((group, partition), member)
                    if owner != member:
                        self._fenced[number] = f"{partition} of {group} for {member}, it was {owner}'s"
            case CommitAccepted(number) if number in self._fenced:
                raise Violation(f"a commit was accepted: {self._fenced[number]}")
            case _:
                pass
