"""Authorizers that tests put into a node."""

from __future__ import annotations

from headrace.node.authorization import Operation, Resource
from headrace.node.connection import Connection


class Nobody:
    """Allows nothing, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Operation, Resource, str]] = []

    def allows(self, connection: Connection, operation: Operation, resource: Resource, name: str) -> bool:
        self.asked.append((operation, resource, name))
        return False
