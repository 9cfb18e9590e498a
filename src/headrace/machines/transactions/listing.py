"""Filters for a list of transactions (ListTransactions)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import re2

from headrace.machines.transactions.transaction import State, Transaction

# RE2 matches in time linear in the id, whatever a client sends; a pattern that needs more memory is refused.
PATTERN_BYTES_MAX = 1 << 20

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = PATTERN_BYTES_MAX

_STATES = {state.text: state for state in State}


class InvalidPattern(ValueError):
    """The pattern for transactional ids is not a regular expression."""


@dataclass(slots=True)
class Filters:
    """Which transactions are asked for; the same for all shards."""

    states: frozenset[State] | None
    unknown_states: list[str]  # names that no state has: reported, and they match nothing
    producer_ids: frozenset[int]  # empty: all
    duration_ms: int  # those that began longer ago; negative: all
    matches: Callable[[str], object] | None  # the transactional id as a whole; None: all

    @classmethod
    def of(
        cls, states: Sequence[str], producer_ids: Iterable[int], duration_ms: int, pattern: str | None
    ) -> Filters:
        """Without states or a pattern: all. InvalidPattern if the pattern is not a regular expression."""
        return cls(
            states=frozenset(_STATES[name] for name in states if name in _STATES) if states else None,
            unknown_states=sorted({name for name in states if name not in _STATES}),
            producer_ids=frozenset(producer_ids),
            duration_ms=duration_ms,
            matches=_compiled(pattern),
        )

    def match(self, now_ms: int, transaction: Transaction) -> bool:
        return (
            (self.states is None or transaction.state in self.states)
            and (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (self.duration_ms < 0 or now_ms - transaction.start_ms > self.duration_ms)
            and (self.matches is None or bool(self.matches(transaction.transactional_id)))
        )


def _compiled(pattern: str | None) -> Callable[[str], object] | None:
    if not pattern:
        return None
    try:
        matches: Callable[[str], object] = re2.compile(pattern, options=_OPTIONS).fullmatch
    except re2.error as error:
        raise InvalidPattern(pattern) from error
    return matches
