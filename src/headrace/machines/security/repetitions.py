"""Limits on entries of the audit log that clients can cause without end, such as refused logins.

In each period a few entries of one kind are written, and a few of all kinds together. The others are counted,
by kind. A client that varies what makes the kind (user names, addresses) fills the table of kinds: then
what is new is counted together. So a period has a limited number of lines, whatever clients do.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

PERIOD_MS: Final = 10_000

# Enough to see what happens, and who does it.
WRITTEN_OF_KIND_MAX: Final = 5
# With one line of counts for each kind: 15 lines a second at the most. 128 MiB of files, the default, then
# hold more than seven hours of an attack.
WRITTEN_MAX: Final = 100
KINDS_MAX: Final = 50


class Repeated(NamedTuple):
    """Entries of a kind that were not written. Kind None: of all kinds for which there was no room."""

    kind: Hashable | None
    times: int


class _Kind:
    __slots__ = ("held_back", "written")

    def __init__(self) -> None:
        self.written = 0
        self.held_back = 0


class Repetitions:
    """Of one period at a time; the caller says when it ends."""

    __slots__ = ("_kinds", "_others", "_written")

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        self._written = 0
        self._others = 0

    @property
    def is_empty(self) -> bool:
        """Nothing was asked in this period yet."""
        return not self._kinds

    def admits(self, kind: Hashable) -> bool:
        """Whether the next entry of the kind is written; otherwise it is counted."""
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= KINDS_MAX:
                self._others += 1
                return False
            known = self._kinds[kind] = _Kind()
        if known.written >= WRITTEN_OF_KIND_MAX or self._written >= WRITTEN_MAX:
            known.held_back += 1
            return False
        known.written += 1
        self._written += 1
        return True

    def end(self) -> list[Repeated]:
        """What was not written in this period; the next one begins."""
        repeated = [Repeated(kind, known.held_back) for kind, known in self._kinds.items() if known.held_back]
        if self._others:
            repeated.append(Repeated(None, self._others))
        self._kinds.clear()
        self._written = self._others = 0
        return repeated
