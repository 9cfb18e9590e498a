"""A node with the standard authorizer, whose rules a test adds and removes as committed metadata would."""

from __future__ import annotations

from itertools import count

from headrace.machines.security.acl_rules import Operation, PatternType, Permission, ResourceType
from headrace.node.authorizer_settings import AuthorizerSettings
from headrace.node.connection import ANONYMOUS
from headrace.node.standard_authorizer import StandardAuthorizer
from headrace.protocol.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from headrace.protocol.notation import Data
from headrace.simulator.manual_host import ManualHost


class Rules:
    """From now on, nobody but super users may do anything without a rule. Clients are anonymous."""

    def __init__(
        self,
        host: ManualHost,
        *super_users: str,
        allows_if_no_rule: bool = False,
        is_loaded: bool = True,
    ) -> None:
        self._host = host
        self._ids = count(1)
        settings = AuthorizerSettings(frozenset(super_users), allows_if_no_rule)
        self.authorizer = StandardAuthorizer(host.node.access, settings)
        if is_loaded:
            self.authorizer.caught_up(host.clock.now())

    def allow(
        self,
        operation: Operation,
        resource: ResourceType,
        name: str,
        principal: str = ANONYMOUS,
        *,
        host: str = "*",
        permission: Permission = Permission.ALLOW,
        pattern: PatternType = PatternType.LITERAL,
    ) -> bytes:
        """The id of the new rule."""
        rule_id = next(self._ids).to_bytes(16, "big")
        self._commit(
            AccessControlEntryRecord(
                id=rule_id,
                resource_type=resource,
                resource_name=name,
                pattern_type=pattern,
                principal=principal,
                host=host,
                operation=operation,
                permission_type=permission,
            )
        )
        return rule_id

    def deny(
        self, operation: Operation, resource: ResourceType, name: str, principal: str = ANONYMOUS
    ) -> bytes:
        return self.allow(operation, resource, name, principal, permission=Permission.DENY)

    def remove(self, rule_id: bytes) -> None:
        self._commit(RemoveAccessControlEntryRecord(id=rule_id))

    def _commit(self, record: Data) -> None:
        image = self._host.node.controller.metadata.image
        self.authorizer.committed(self._host.clock.now(), image, [record])
