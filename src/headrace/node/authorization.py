"""Authorization: whether a client may do something. All handlers ask here, by the table in `rights.py`.

Without an authorizer everything is allowed. A fast path does not ask for each request: it remembers what was
allowed together with `Access.rights`, which is another object after each change of the rules.
"""

from typing import Final, Protocol

from headrace.machines.security.acl_rules import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from headrace.node.connection import Connection
from headrace.node.routes import Request

__all__ = ["CLUSTER_NAME", "NOTHING", "Access", "Authorizer", "Operation", "Resource"]

Resource = ResourceType

# The authorized operations of somebody who may not even describe the cluster.
NOTHING: Final = 0


class Authorizer(Protocol):
    def allows(
        self, connection: Connection, operation: Operation, resource: Resource, name: str, /
    ) -> bool: ...

    def allows_any(self, connection: Connection, operation: Operation, resource: Resource, /) -> bool:
        """Whether there is at least one resource of the type to which the client may do this."""
        ...

    def operations_bits(self, connection: Connection, resource: Resource, name: str, /) -> int:
        """All that the client may do to the resource, as a bit field."""
        ...


class Access:
    """The questions that handlers ask."""

    __slots__ = ("_authorizer", "rights")

    def __init__(self) -> None:
        self._authorizer: Authorizer | None = None
        # stands for the rules of this moment; None: there is no authorizer, and hot paths need not even ask
        self.rights: object | None = None

    @property
    def authorizer(self) -> Authorizer | None:
        return self._authorizer

    @authorizer.setter
    def authorizer(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer
        self.changed()

    def changed(self) -> None:
        """The rules have changed: nothing that was allowed before is taken for granted."""
        self.rights = None if self._authorizer is None else object()

    def allows(self, request: Request, operation: Operation, resource: Resource, name: str) -> bool:
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows(request.connection, operation, resource, name)

    def allows_any(self, request: Request, operation: Operation, resource: Resource) -> bool:
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows_any(request.connection, operation, resource)

    def operations_bits(self, request: Request, resource: Resource, name: str) -> int:
        """What the client may do to the resource: "authorized operations"."""
        authorizer = self._authorizer
        if authorizer is None:
            return sum(1 << operation for operation in OPERATIONS[resource])
        return authorizer.operations_bits(request.connection, resource, name)

    def cluster_operations_bits(self, request: Request) -> int:
        """The same for the cluster, of which nothing is told to who may not describe it."""
        if not self.allows(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            return NOTHING
        return self.operations_bits(request, Resource.CLUSTER, CLUSTER_NAME)
