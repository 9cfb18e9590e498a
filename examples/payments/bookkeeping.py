"""The rules of bookkeeping: which payment belongs to which order, and what goes into the ledger.

Nothing here knows a topic, a clock or a database. The result depends on which orders and payments there are,
not on the order in which they are read, so the same history always makes the same ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import shop

PLACED = "placed"
STATES = {"sales": "paid", "refunds due": "too late"}  # of an order, by the account that its money went to


class Entry(NamedTuple):
    """A line of the ledger. The entries of a payment add up to zero."""

    payment: str
    order: str
    account: str
    cents: int
    at_ms: int


def entries(order: shop.Order, payment: shop.Payment) -> list[Entry]:
    """Money came; it is for the goods, or must be sent back."""
    is_late = payment.paid_at_ms > order.ordered_at_ms + shop.HOUR_MS
    other = "refunds due" if is_late else "sales"
    return [
        Entry(payment.payment, order.order, "cash", payment.cents, payment.paid_at_ms),
        Entry(payment.payment, order.order, other, -payment.cents, payment.paid_at_ms),
    ]


class Book:
    """Joins orders with payments, whichever is read first. A payment that comes twice counts once."""

    def __init__(self) -> None:
        self._orders: dict[str, shop.Order] = {}
        self._payments: dict[str, shop.Payment] = {}  # by order

    def add_order(self, order: shop.Order) -> list[Entry]:
        self._orders[order.order] = order
        payment = self._payments.get(order.order)
        return [] if payment is None else entries(order, payment)

    def add_payment(self, payment: shop.Payment) -> list[Entry]:
        if payment.order in self._payments:
            return []
        self._payments[payment.order] = payment
        order = self._orders.get(payment.order)
        return [] if order is None else entries(order, payment)


def ledger(orders: int, seed: int) -> Iterator[Entry]:
    """The truth."""
    book = Book()
    for record, _, commits in shop.transactions(orders, seed):
        if not commits:
            continue
        yield from book.add_order(record) if isinstance(record, shop.Order) else book.add_payment(record)


def states(orders: int, seed: int) -> dict[str, str]:
    """The truth: what became of each order."""
    found = {
        record.order: PLACED
        for record, _, commits in shop.transactions(orders, seed)
        if commits and isinstance(record, shop.Order)
    }
    for entry in ledger(orders, seed):
        if entry.account in STATES:
            found[entry.order] = STATES[entry.account]
    return found
