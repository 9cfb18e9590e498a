"""What every group has, of whichever protocol: the questions that offsets and the admin APIs ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headrace.protocol.coordinator_records import Record
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_groups import ListedGroup

# May this offset be committed? Asked per partition (topic, topic id, partition): a member may still own one
# partition from an earlier epoch while it has lost another.
PartitionCheck = Callable[[str, bytes, int], ErrorCode]


class Group(Protocol):
    group_id: str

    @property
    def is_empty(self) -> bool:
        """Nobody is in it: it may be deleted, and a group of another protocol may take its place."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int
    ) -> ErrorCode | PartitionCheck:
        """May this member commit offsets? `epoch` is the generation of a classic member."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """May this member ask for offsets?"""
        ...

    def check_offset_delete(self) -> ErrorCode: ...

    def check_delete(self) -> ErrorCode: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def expires_offsets(self) -> bool:
        """Whether offsets of topics that nobody subscribes to grow old at all."""
        ...

    def empty_since_ms(self) -> int | None:
        """From when on the offsets of a group without members grow old; None: from each one's own commit."""
        ...

    def tombstones(self) -> list[Record]:
        """The records that make the group itself, not its offsets, be gone."""
        ...

    def listed(self) -> ListedGroup: ...

    def state(self) -> Any:
        """A comparable value of all that was replayed; None if there is nothing."""
        ...
