"""A commit that was sent when its partition had been given to another member is not accepted.

Members commit only what they believe to be theirs, and nobody is given a partition before the member that
had it has let go of it or was put out of the group: whoever still commits it is a zombie.
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
