"""The authorizer of a node: the rules of the cluster's metadata, asked with a connection's principal and
address.

It follows committed metadata. Until the node has caught up with the other nodes it knows only some of the
rules, and allows nothing but to super users.
"""

from collections.abc import Mapping
from typing import Final

from headrace.base.time import Now
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.security.acl_rules import AclRule, Operation, ResourceType, host_text
from headrace.machines.security.acls import Authorizer, Explanation
from headrace.node.authorization import Access
from headrace.node.authorizer_settings import AuthorizerSettings
from headrace.node.connection import NODE_ITSELF, Connection
from headrace.protocol.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from headrace.protocol.notation import Data

HOSTS_REMEMBERED_MAX: Final = 10_000


class StandardAuthorizer:
    __slots__ = ("_access", "_hosts", "rules")

    def __init__(self, access: Access, settings: AuthorizerSettings) -> None:
        super_users = settings.super_users | {NODE_ITSELF}
        self.rules = Authorizer(super_users, allow_if_no_rule=settings.allows_if_no_rule)
        self._access = access
        self._hosts: dict[str, str] = {}  # the one text of each address
        access.authorizer = self

    # --- the rules -----------------------------------------------------------------------------------------

    def load(self, rules: Mapping[bytes, AclRule]) -> None:
        """Those that the node has when it starts."""
        for rule_id, rule in rules.items():
            self.rules.add(rule_id, rule)
        self._access.changed()

    def caught_up(self, now: Now) -> None:
        """All rules that there are have been added."""
        self.rules.loaded()
        self._access.changed()

    def committed(self, now: Now, image: ClusterImage, records: list[Data]) -> None:
        has_changed = False
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                self.rules.add(record.id, rule_of(record))
            elif isinstance(record, RemoveAccessControlEntryRecord):
                self.rules.remove(record.id)
            else:
                continue
            has_changed = True
        if has_changed:
            self._access.changed()

    # --- questions -----------------------------------------------------------------------------------------

    def allows(
        self, connection: Connection, operation: Operation, resource: ResourceType, name: str, /
    ) -> bool:
        return self.rules.allows(connection.principal, self._host(connection), operation, resource, name)

    def allows_any(self, connection: Connection, operation: Operation, resource: ResourceType, /) -> bool:
        return self.rules.allows_any(connection.principal, self._host(connection), operation, resource)

    def operations_bits(self, connection: Connection, resource: ResourceType, name: str, /) -> int:
        return self.rules.operations_bits(connection.principal, self._host(connection), resource, name)

    def explain(
        self, connection: Connection, operation: Operation, resource: ResourceType, name: str, /
    ) -> Explanation:
        return self.rules.explain(connection.principal, self._host(connection), operation, resource, name)

    def _host(self, connection: Connection) -> str:
        address = connection.address
        host = self._hosts.get(address)
        if host is None:
            if len(self._hosts) >= HOSTS_REMEMBERED_MAX:
                self._hosts.clear()
            host = self._hosts[address] = host_text(address)
        return host


def rule_of(record: AccessControlEntryRecord) -> AclRule:
    return AclRule(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
