"""Access control rules (ACLs), filters for them, and the checks of a new rule: Kafka's words and numbers.

A rule allows or denies one operation, or all, to one principal or everybody (`User:*`), from one address or
everywhere (`*`), on the resources of one type whose name is the rule's, begins with it, or is anything (a
literal `*`). `acls.py` answers questions with many of them.
"""

from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1  # in a filter
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1  # in a filter: rules with this very name, of both types
    MATCH = 2  # in a filter: all rules that hold for a resource of this name
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1  # in a filter
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1  # in a filter
    DENY = 2
    ALLOW = 3


EVERYTHING: Final = "*"  # as a host, or as the name of a literal rule
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"

# What can be done to a resource; authorized-operations bits are among these.
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}

# A rule that allows one of the operations on the right also allows the one on the left. A rule that denies
# implies nothing.
IMPLIED_BY: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class AclRule(NamedTuple):
    resource_type: int
    name: str
    pattern_type: int
    principal: str  # as User:alice
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        """As a sentence: `deny User:alice WRITE on topic 'orders' from *`."""
        prefix = "prefix " if self.pattern_type == PatternType.PREFIXED else ""
        resource = resource_text(self.resource_type, self.name, prefix)
        verb, operation = word(Permission, self.permission).lower(), word(Operation, self.operation)
        return f"{verb} {self.principal} {operation} on {resource} from {self.host}"

    def covers(self, resource_type: int, name: str) -> bool:
        """Whether it is about this resource."""
        if self.resource_type != resource_type:
            return False
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, EVERYTHING)


class AclFilter(NamedTuple):
    """None and ANY match everything."""

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, rule: AclRule) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self._matches_name(rule)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
        )

    def _matches_name(self, rule: AclRule) -> bool:
        if self.pattern_type == PatternType.MATCH:
            return self.name is None or rule.covers(rule.resource_type, self.name)
        if self.pattern_type not in (PatternType.ANY, rule.pattern_type):
            return False
        return self.name in (None, rule.name)


class InvalidAcl(ValueError):
    """A rule or filter that a client must not ask for; the text is for the client."""


def check_new_rule(rule: AclRule) -> None:
    """Raises InvalidAcl if Kafka would not create it."""
    if rule.resource_type not in OPERATIONS:
        raise InvalidAcl(f"Invalid resourceType {word(ResourceType, rule.resource_type)}")
    if rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidAcl(f"Invalid patternType {word(PatternType, rule.pattern_type)}")
    if not _is_known(Operation, rule.operation) or rule.operation == Operation.ANY:
        raise InvalidAcl(f"Invalid operation {word(Operation, rule.operation)}")
    if rule.permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidAcl(f"Invalid permissionType {word(Permission, rule.permission)}")
    if not rule.name:
        raise InvalidAcl("Resource name should not be empty")
    if rule.resource_type == ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        raise InvalidAcl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in rule.principal:
        raise InvalidAcl(
            f"Could not parse principal from `{rule.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )


def check_filter(which: AclFilter) -> None:
    """Raises InvalidAcl if a part of it is not known."""
    if not _is_known(ResourceType, which.resource_type) or not _is_known(PatternType, which.pattern_type):
        raise InvalidAcl("Unknown patternFilter.")
    if not _is_known(Operation, which.operation) or not _is_known(Permission, which.permission):
        raise InvalidAcl("Unknown entryFilter.")


# No address is longer: 45 characters of IPv6, and the name of an interface behind them.
ADDRESS_CHARACTERS_MAX = 64


def host_text(host: str) -> str:
    """The one text of an address, so that `::1` is `0:0:0:0:0:0:0:1`, and IPv4 inside IPv6 is IPv4.

    Whatever is not an address stays as it is.
    """
    if host == EVERYTHING:
        return host
    return _address_text(host) if len(host) <= ADDRESS_CHARACTERS_MAX else host


@lru_cache(maxsize=1024)  # each new connection asks, and to read an address takes 20 µs
def _address_text(host: str) -> str:
    from ipaddress import IPv6Address, ip_address  # here: a node without rules starts without it

    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


def word(kind: type[IntEnum], number: int) -> str:
    return kind(number).name if _is_known(kind, number) else "UNKNOWN"


def resource_text(resource_type: int, name: str, prefix: str = "") -> str:
    return f"{word(ResourceType, resource_type).lower().replace('_', ' ')} {prefix}{name!r}"


def _is_known(kind: type[IntEnum], number: int) -> bool:
    return number != 0 and number in kind._value2member_map_
