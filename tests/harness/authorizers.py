"""Authorizers that tests put into a node."""

from __future__ import annotations

from headrace.machines.security.acl_rules import OPERATIONS
from headrace.machines.security.acls import Explanation
from headrace.node.authorization import Operation, Resource
from headrace.node.connection import Connection


class ByName:
    """Decides by `allows` alone, which others override."""

    def allows(self, connection: Connection, operation: Operation, resource: Resource, name: str, /) -> bool:
        raise NotImplementedError

    def allows_any(self, connection: Connection, operation: Operation, resource: Resource, /) -> bool:
        return self.allows(connection, operation, resource, "any")

    def operations_bits(self, connection: Connection, resource: Resource, name: str, /) -> int:
        return sum(
            1 << operation
            for operation in OPERATIONS[resource]
            if self.allows(connection, operation, resource, name)
        )

    def explain(
        self, connection: Connection, operation: Operation, resource: Resource, name: str, /
    ) -> Explanation:
        return Explanation(self.allows(connection, operation, resource, name), "a test says so")


class Anybody(ByName):
    """Allows everything."""

    def allows(self, connection: Connection, operation: Operation, resource: Resource, name: str, /) -> bool:
        return True


class Nobody(ByName):
    """Allows nothing, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Operation, Resource, str]] = []

    def allows(self, connection: Connection, operation: Operation, resource: Resource, name: str, /) -> bool:
        self.asked.append((operation, resource, name))
        return False
