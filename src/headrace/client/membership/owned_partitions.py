"""Partitions that a member owns, and the steps by which it gets and gives them up.

    take: what is new is told at once, unless something has to go first
    revoke --> the application ends its work --> acknowledge: now it is gone, and what is new is told
    lose: gone without asking

Between `revoke` and `acknowledge` partitions are still owned: whoever is to get them has to wait.
"""

from collections.abc import Callable

from headrace.client.membership.events import Assigned, Lost, MembershipEvent, Partitions, Revoked

NONE: Partitions = frozenset()


class OwnedPartitions:
    """Invariants: `revoking` is part of `owned`; `_adding` is set only while something is being revoked."""

    def __init__(self, tell: Callable[[MembershipEvent], None]) -> None:
        self.owned: Partitions = NONE
        self.revoking: Partitions = NONE  # told to the application, not acknowledged
        self._adding: Partitions | None = None  # to be told when it has acknowledged
        self._tell = tell

    def take(self, wanted: Partitions, reason: str) -> Partitions:
        """This and nothing else is to be owned; gives what has to be acknowledged before."""
        gone, new = self.owned - wanted, wanted - self.owned
        if gone:
            self._adding = new
            self.revoke(gone, reason)
        else:
            self._add(new)
        return gone

    def revoke(self, partitions: Partitions, reason: str) -> None:
        fresh = partitions - self.revoking
        if fresh:
            self.revoking |= fresh
            self._tell(Revoked(fresh, reason))

    def revoke_all(self, reason: str) -> None:
        self._adding = None
        self.revoke(self.owned, reason)

    def acknowledge(self, partitions: Partitions) -> None:
        """The application is done with these of what is being revoked."""
        done = partitions & self.revoking
        self.owned -= done
        self.revoking -= done
        if self._adding is not None and not self.revoking:
            adding, self._adding = self._adding, None
            self._add(adding)

    def reconsider(self) -> None:
        """Another share comes: what is new in this one is no longer ours to take."""
        self._adding = None

    def lose(self, reason: str) -> None:
        """All is gone, be it acknowledged or not."""
        lost, self.owned, self.revoking, self._adding = self.owned, NONE, NONE, None
        if lost:
            self._tell(Lost(lost, reason))

    def _add(self, partitions: Partitions) -> None:
        self.owned |= partitions
        self._tell(Assigned(partitions))

    def check(self) -> None:
        assert self.revoking <= self.owned
        assert self._adding is None or self.revoking
