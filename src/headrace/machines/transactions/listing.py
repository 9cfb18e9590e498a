"""What administrators ask for: which transactions there are, and what one of them holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import re2

from headrace.machines.transactions.transaction import State, Transaction
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import describe_transactions, list_transactions
from headrace.protocol.messages.list_transactions import ListTransactionsRequest

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
    """What a ListTransactions request asks for; the same for all shards."""

    states: frozenset[State] | None
    unknown_states: list[str]  # names that no state has: reported, and they match nothing
    producer_ids: frozenset[int]  # empty: all
    duration_ms: int  # those that began longer ago; negative: all
    matches: Callable[[str], object] | None  # the transactional id as a whole; None: all

    @classmethod
    def of(cls, request: ListTransactionsRequest) -> Filters:
        names = request.state_filters
        return cls(
            states=frozenset(_STATES[name] for name in names if name in _STATES) if names else None,
            unknown_states=sorted({name for name in names if name not in _STATES}),
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.duration_filter,
            matches=_compiled(request.transactional_id_pattern),
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


def listed(transaction: Transaction) -> list_transactions.TransactionState:
    return list_transactions.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.text,
    )


def described(
    transactional_id: str, transaction: Transaction | None
) -> describe_transactions.TransactionState:
    if transaction is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return describe_transactions.TransactionState(error_code=error, transactional_id=transactional_id)
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in transaction.by_topic()
        ],
    )
