"""Authorization: whether a client may do something. All handlers ask here.

There are no ACLs yet, so everything is allowed. Handlers ask anyway, so that ACLs will change no handler.
"""

from enum import IntEnum
from typing import Protocol

from headrace.node.connection import Connection
from headrace.node.routes import Request


class Operation(IntEnum):
    """Kafka's operation codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(IntEnum):
    """Kafka's resource-type codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"

# "authorized operations not asked for", as the protocol spells it
OPERATIONS_OMITTED = -(2**31)


class Authorizer(Protocol):
    def allows(
        self, connection: Connection, operation: Operation, resource: Resource, name: str, /
    ) -> bool: ...


class Access:
    """The question that handlers ask. Without an authorizer everything is allowed."""

    __slots__ = ("authorizer",)

    def __init__(self) -> None:
        self.authorizer: Authorizer | None = None  # None: hot paths need not even ask

    def allows(self, request: Request, operation: Operation, resource: Resource, name: str) -> bool:
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows(request.connection, operation, resource, name)


def operations_bits(resource: Resource) -> int:
    """Bit field of everything that can be done to a resource: what a client may do while ACLs are off."""
    operations = {
        Resource.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        Resource.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
        Resource.GROUP: (
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        Resource.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    }[resource]
    return sum(1 << operation for operation in operations)
