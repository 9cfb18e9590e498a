"""Authorization: whether a client may do something. All handlers ask here, by the table in `rights.py`.

Without an authorizer everything is allowed. A fast path does not ask for each request: it remembers what was
allowed together with `Access.rights`, which is another object after each change of the rules.
"""

from typing import TYPE_CHECKING, Final, Protocol

from headrace.machines.security.acl_rules import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from headrace.node.connection import Connection
from headrace.node.routes import Request, WebRequest

if TYPE_CHECKING:
    from headrace.machines.security.acls import Explanation
    from headrace.node.audit import Audit

__all__ = ["CLUSTER_NAME", "NOTHING", "Access", "Authorizer", "Operation", "Resource"]

Resource = ResourceType
Asked = Request | WebRequest

# The authorized operations of somebody who may not even describe the cluster.
NOTHING: Final = 0

# In the audit log, where any resource of a type would do.
ANY_NAME: Final = "(any)"


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

    def explain(
        self, connection: Connection, operation: Operation, resource: Resource, name: str, /
    ) -> "Explanation":
        """Why the client may do this, or may not."""
        ...


class Access:
    """The questions that handlers ask."""

    __slots__ = ("_authorizer", "audit", "rights")

    def __init__(self) -> None:
        self._authorizer: Authorizer | None = None
        self.audit: Audit | None = None
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

    def allows(self, request: Asked, operation: Operation, resource: Resource, name: str) -> bool:
        """A client that is refused is told so: the audit log has an entry."""
        authorizer = self._authorizer
        if authorizer is None:
            return True
        is_allowed = authorizer.allows(request.connection, operation, resource, name)
        if self.audit is not None:
            self._note(authorizer, self.audit, request, operation, resource, name, is_allowed)
        return is_allowed

    def shows(self, request: Asked, operation: Operation, resource: Resource, name: str) -> bool:
        """The same where a client without the right is refused nothing: something is left out of its answer,
        or another right will do.
        """
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows(request.connection, operation, resource, name)

    def allows_any(self, request: Request, operation: Operation, resource: Resource) -> bool:
        authorizer = self._authorizer
        if authorizer is None:
            return True
        is_allowed = authorizer.allows_any(request.connection, operation, resource)
        if self.audit is not None:
            self._note(authorizer, self.audit, request, operation, resource, ANY_NAME, is_allowed)
        return is_allowed

    def _note(
        self,
        authorizer: Authorizer,
        audit: "Audit",
        request: Asked,
        operation: Operation,
        resource: Resource,
        name: str,
        is_allowed: bool,
    ) -> None:
        if not is_allowed:
            audit.refused(request, operation, resource, name, authorizer.explain)
        elif audit.tells_allowed and not request.connection.is_own:
            audit.allowed(request, operation, resource, name)

    def operations_bits(self, request: Request, resource: Resource, name: str) -> int:
        """What the client may do to the resource: "authorized operations"."""
        authorizer = self._authorizer
        if authorizer is None:
            return sum(1 << operation for operation in OPERATIONS[resource])
        return authorizer.operations_bits(request.connection, resource, name)

    def cluster_operations_bits(self, request: Request) -> int:
        """The same for the cluster, of which nothing is told to who may not describe it."""
        if not self.shows(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            return NOTHING
        return self.operations_bits(request, Resource.CLUSTER, CLUSTER_NAME)
