"""Decisions about access rules: create them, and delete those that filters match.

A rule that is there already is created once more with success and without a record, as in Kafka. A request
that would write or look at too much is refused as a whole, so that nobody mistakes a part of it for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.base.randomness import Randomness
from headrace.machines.metadata.controller.decision import (
    RECORDS_MAX,
    TOO_LARGE,
    MetadataDecision,
    Refusal,
)
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.security_image import SecurityImage, rule_record
from headrace.machines.security.acl_rules import (
    AclFilter,
    AclRule,
    InvalidAcl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_filter,
    check_new_rule,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import RemoveAccessControlEntryRecord
from headrace.protocol.notation import Data

# Rules that the filters of one request are compared with, or that are told about: about a second of work.
LOOKED_AT_MAX = 1_000_000


@dataclass(slots=True)
class CreatedRule:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(slots=True)
class DeletedRules:
    """What became of one filter."""

    rules: list[AclRule] = field(default_factory=list)  # those that it matched
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def create_rules(
    image: ClusterImage, rules: Sequence[AclRule], rng: Randomness
) -> MetadataDecision[list[CreatedRule]]:
    """Refusal: too many rules."""
    security = image.security
    new: dict[AclRule, bytes] = {}
    created: list[CreatedRule] = []
    for rule in rules:
        try:
            check_new_rule(rule)
        except InvalidAcl as invalid:
            created.append(CreatedRule(ErrorCode.INVALID_REQUEST, str(invalid)))
            continue
        if rule not in security.rule_ids and rule not in new:
            if len(new) >= RECORDS_MAX:
                raise Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
            new[rule] = _new_id(security, rng)
        created.append(CreatedRule())
    return MetadataDecision(created, [rule_record(rule_id, rule) for rule, rule_id in new.items()])


def delete_rules(image: ClusterImage, filters: Sequence[AclFilter]) -> MetadataDecision[list[DeletedRules]]:
    """Refusal: the filters match too many rules."""
    security = image.security
    removed: dict[bytes, Data] = {}
    known: dict[AclFilter, list[AclRule]] = {}
    deleted: list[DeletedRules] = []
    looked_at = 0
    for which in filters:
        try:
            check_filter(which)
        except InvalidAcl as invalid:
            deleted.append(DeletedRules(error=ErrorCode.INVALID_REQUEST, message=str(invalid)))
            continue
        matched = known.get(which)
        if matched is None:
            looked_at += 1 if _exact(which) is not None else len(security.rules)
            if looked_at > LOOKED_AT_MAX:
                raise Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
            matched = known[which] = find_rules(security, which)
        looked_at += len(matched)
        for rule in matched:
            rule_id = security.rule_ids[rule]
            removed[rule_id] = RemoveAccessControlEntryRecord(id=rule_id)
        if len(removed) > RECORDS_MAX or looked_at > LOOKED_AT_MAX:
            raise Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
        deleted.append(DeletedRules(matched))
    return MetadataDecision(deleted, list(removed.values()))


def find_rules(security: SecurityImage, which: AclFilter) -> list[AclRule]:
    """Those that a filter matches, in an order that depends on nothing but the rules."""
    exact = _exact(which)
    if exact is not None:
        return [exact] if exact in security.rule_ids else []
    return sorted(rule for rule in security.rules.values() if which.matches(rule))


def _exact(which: AclFilter) -> AclRule | None:
    """The one rule that the filter can match; None: there may be several."""
    if (
        which.resource_type == ResourceType.ANY
        or which.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or which.operation == Operation.ANY
        or which.permission == Permission.ANY
        or which.name is None
        or which.principal is None
        or which.host is None
    ):
        return None
    return AclRule(
        which.resource_type,
        which.name,
        which.pattern_type,
        which.principal,
        which.host,
        which.operation,
        which.permission,
    )


def _new_id(security: SecurityImage, rng: Randomness) -> bytes:
    while True:
        rule_id = rng.randbytes(16)
        if rule_id not in security.rules:
            return rule_id
