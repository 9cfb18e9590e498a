"""What of a coordinator's state depends on records that may not be committed yet.

A question about anything else is answered at once, also while a record of another group waits for replicas
that do not come back.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

# Entries of records that were committed meanwhile are dropped when there are so many, or twice as many as
# were left the last time.
ENTRIES_MIN = 1_000

# What a change that is about to be replayed changes in a machine.
Touched = Callable[[Any, Any], Iterable[Hashable]]


class Uncommitted:
    __slots__ = ("_all_before", "_ends", "_pruned_at", "_touched")

    def __init__(self, touched: Touched | None) -> None:
        """Without `touched` every record concerns everything."""
        self._touched = touched
        self._all_before = 0  # records before this offset may concern anything
        self._ends: dict[Hashable, int] = {}  # behind the last record that concerns a part
        self._pruned_at = ENTRIES_MIN

    def everything(self, end_offset: int) -> None:
        """It is not known what the records before this offset concern."""
        self._all_before = end_offset
        self._ends.clear()

    def note(self, part: Hashable, end_offset: int) -> None:
        self._ends[part] = end_offset

    def written(self, machine: Any, changes: Iterable[Any], end_offset: int, high_watermark: int) -> None:
        """These changes were appended before that offset, and will be replayed."""
        if self._touched is None:
            self.everything(end_offset)
            return
        ends = self._ends
        for change in changes:
            for part in self._touched(machine, change):
                ends[part] = end_offset
        if len(ends) >= self._pruned_at:
            self._ends = {part: end for part, end in ends.items() if end > high_watermark}
            self._pruned_at = max(ENTRIES_MIN, 2 * len(self._ends))

    def concerns(self, parts: Iterable[Hashable], high_watermark: int) -> bool:
        """Whether one of these parts may depend on records that are not committed."""
        ends = self._ends
        return self._all_before > high_watermark or any(ends.get(part, 0) > high_watermark for part in parts)

    def concerns_kind(self, kind: type, high_watermark: int) -> bool:
        """The same for all parts of this type."""
        return self._all_before > high_watermark or any(
            end > high_watermark and type(part) is kind for part, end in self._ends.items()
        )
