"""Interface of a group of either protocol, for commits, expiry and the admin APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from headrace.protocol.coordinator_records import Record
from headrace.protocol.errors import ErrorCode

# May this offset be committed? Asked per partition (topic, topic id, partition): a member may still own one
# partition from an earlier epoch while it has lost another.
PartitionCheck = Callable[[str, bytes, int], ErrorCode]


class Committer(NamedTuple):
    """Who commits offsets of a group."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    epoch: int = -1  # the generation of a classic member; below 0: not as a member
    knows_epochs: bool = True  # its client knows the epochs of the consumer protocol, and its errors


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    kind: str


class Group(Protocol):
    group_id: str

    @property
    def is_empty(self) -> bool:
        """Whether it has no members: then it may be deleted, or replaced by a group of another protocol."""
        ...

    def check_commit(self, committer: Committer, *, is_transactional: bool) -> ErrorCode | PartitionCheck: ...

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """May this member ask for offsets?"""
        ...

    def check_offset_delete(self) -> ErrorCode: ...

    def check_delete(self) -> ErrorCode: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def expires_offsets(self) -> bool:
        """Whether offsets of topics without subscribers expire."""
        ...

    def empty_since_ms(self) -> int | None:
        """From when on the offsets of a group without members grow old; None: from each one's own commit."""
        ...

    def tombstones(self) -> list[Record]:
        """The records that delete the group itself, without its offsets."""
        ...

    def listed(self) -> ListedGroup: ...

    def members_bytes(self) -> int:
        """Memory that its members take, about."""
        ...

    def saved(self) -> Callable[[], Group]:
        """What is only in memory, as it is now. The function returns the group with that memory, whatever
        was changed meanwhile: the same object or another.
        """
        ...

    def state(self) -> Any:
        """A comparable value of all that was replayed; None if there is nothing."""
        ...
