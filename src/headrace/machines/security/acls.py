"""The authorizer: whether a principal may do something, by super users and access control rules (ACLs).

It decides as Kafka's StandardAuthorizer: a super user may do everything; a rule that denies overrides those
that allow; where no rule is about a resource, `allow.everyone.if.no.acl.found` decides; and until the rules
are loaded, only super users are allowed anything.

The rules are indexed by resource, principal and host, and each place has two masks of operations. A question
looks at the literal name, at `*`, and at the prefixes of the name whose length is that of some rule: its cost
depends on the length of the name, not on the number of rules. `version` is another object after each change:
a hot path keeps a decision together with it, and compares identities.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.machines.security.acl_rules import (
    EVERYBODY,
    EVERYTHING,
    IMPLIED_BY,
    OPERATIONS,
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    host_text,
    resource_text,
    word,
)

# the bits of a mask
_EVERY_OPERATION = sum(1 << operation for operation in Operation)
_SUPPORTED = {
    kind: sum(1 << operation for operation in operations) for kind, operations in OPERATIONS.items()
}
_DENIED = {int(operation): 1 << operation for operation in Operation} | {int(Operation.ALL): _EVERY_OPERATION}
_ALLOWED = {  # with what is implied
    operation: mask | sum(1 << implied for implied, by in IMPLIED_BY.items() if operation in by)
    for operation, mask in _DENIED.items()
}


class _Entry:
    """The rules of one resource pattern, principal and host, and the masks that they make together."""

    __slots__ = ("allowed", "denied", "rules")

    def __init__(self) -> None:
        self.rules: tuple[AclRule, ...] = ()
        self.allowed = 0
        self.denied = 0

    def add(self, rule: AclRule) -> None:
        """An operation that we do not know, in a rule of a newer version, has no bit: nobody asks for it."""
        self.rules = (*self.rules, rule)
        if rule.permission == Permission.DENY:
            self.denied |= _DENIED.get(rule.operation, 0)
        else:
            self.allowed |= _ALLOWED.get(rule.operation, 0)

    def remove(self, rule: AclRule) -> None:
        left = [other for other in self.rules if other != rule]
        self.rules, self.allowed, self.denied = (), 0, 0
        for other in left:
            self.add(other)

    def says(self, operation: int, permission: int) -> bool:
        """Whether a rule names this operation, or all: what is implied does not count."""
        return any(
            rule.permission == permission and rule.operation in (operation, Operation.ALL)
            for rule in self.rules
        )


# principal → host → entry
_Entries = dict[str, dict[str, _Entry]]


class _Resources:
    """The rules of one type of resource."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Entries] = {}
        self.prefixed: dict[str, _Entries] = {}
        self.lengths: dict[int, int] = {}  # of prefixes, with how many there are

    def covering(self, name: str) -> Iterator[_Entries]:
        """All that hold for this name."""
        found = self.literal.get(name)
        if found is not None:
            yield found
        if name != EVERYTHING:
            found = self.literal.get(EVERYTHING)
            if found is not None:
                yield found
        prefixed = self.prefixed
        for length in self.lengths:
            if length <= len(name):
                found = prefixed.get(name[:length])
                if found is not None:
                    yield found

    def named(self, pattern_type: int) -> dict[str, _Entries]:
        return self.prefixed if pattern_type == PatternType.PREFIXED else self.literal

    def entries(self, pattern_type: int, name: str) -> _Entries:
        """Those of a pattern, made if they are not there."""
        named = self.named(pattern_type)
        entries = named.get(name)
        if entries is None:
            entries = named[name] = {}
            if pattern_type == PatternType.PREFIXED:
                self.lengths[len(name)] = self.lengths.get(len(name), 0) + 1
        return entries

    def forget(self, pattern_type: int, name: str) -> None:
        del self.named(pattern_type)[name]
        if pattern_type == PatternType.PREFIXED:
            self.lengths[len(name)] -= 1
            if not self.lengths[len(name)]:
                del self.lengths[len(name)]


@dataclass(slots=True, frozen=True)
class Explanation:
    """An answer with its reason."""

    is_allowed: bool
    reason: str  # a sentence
    rule: AclRule | None = None  # the one that decided
    rule_id: bytes | None = None


class Authorizer:
    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_rule: bool = False) -> None:
        self.version = object()
        self._super_users = frozenset(super_users)
        self._allow_if_no_rule = allow_if_no_rule
        self._is_loaded = False
        self._rules: dict[bytes, AclRule] = {}
        self._ids: dict[AclRule, bytes] = {}
        self._resources: dict[int, _Resources] = {}
        # the patterns in which a principal is named: (type, principal) → (pattern type, name)
        self._patterns: dict[tuple[int, str], dict[tuple[int, str], int]] = {}

    # --- changes -------------------------------------------------------------------------------------

    def configure(self, super_users: Iterable[str], *, allow_if_no_rule: bool) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_rule = allow_if_no_rule
        self.version = object()

    def loaded(self) -> None:
        """All rules that there are have been added."""
        self._is_loaded = True
        self.version = object()

    def add(self, rule_id: bytes, rule: AclRule) -> None:
        """ValueError if the id or the rule is there already: the controller writes neither twice."""
        if rule_id in self._rules or rule in self._ids:
            raise ValueError(f"the rule is there already: {rule}")
        self._rules[rule_id] = rule
        self._ids[rule] = rule_id
        resources = self._resources.get(rule.resource_type)
        if resources is None:
            resources = self._resources[rule.resource_type] = _Resources()
        hosts = resources.entries(rule.pattern_type, rule.name).setdefault(rule.principal, {})
        hosts.setdefault(host_text(rule.host), _Entry()).add(rule)
        patterns = self._patterns.setdefault((rule.resource_type, rule.principal), {})
        pattern = (rule.pattern_type, rule.name)
        patterns[pattern] = patterns.get(pattern, 0) + 1
        self.version = object()

    def remove(self, rule_id: bytes) -> AclRule:
        """KeyError if there is no such rule."""
        rule = self._rules.pop(rule_id)
        del self._ids[rule]
        resources = self._resources[rule.resource_type]
        entries = resources.entries(rule.pattern_type, rule.name)
        hosts, host = entries[rule.principal], host_text(rule.host)
        hosts[host].remove(rule)
        if not hosts[host].rules:
            del hosts[host]
        if not hosts:
            del entries[rule.principal]
        if not entries:
            resources.forget(rule.pattern_type, rule.name)
        patterns = self._patterns[rule.resource_type, rule.principal]
        pattern = (rule.pattern_type, rule.name)
        patterns[pattern] -= 1
        if not patterns[pattern]:
            del patterns[pattern]
        if not patterns:
            del self._patterns[rule.resource_type, rule.principal]
        self.version = object()
        return rule

    # --- questions -----------------------------------------------------------------------------------

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """`host` as `host_text` writes it."""
        if principal in self._super_users:
            return True
        if not self._is_loaded:
            return False
        has_rules, allowed, denied = self._masks(principal, host, resource_type, name)
        if not has_rules:
            return self._allow_if_no_rule
        return bool((allowed & ~denied) >> operation & 1)

    def operations_bits(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """All that the principal may do to a resource, as a bit field: "authorized operations"."""
        supported = _SUPPORTED[ResourceType(resource_type)]
        if principal in self._super_users:
            return supported
        if not self._is_loaded:
            return 0
        has_rules, allowed, denied = self._masks(principal, host, resource_type, name)
        if not has_rules:
            return supported if self._allow_if_no_rule else 0
        return supported & allowed & ~denied

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether the principal may do this to at least one resource of the type (KIP-679).

        As in Kafka, operations that others imply do not count here, and one allowed name counts unless it is
        denied itself or by a prefix of it.
        """
        # a name that hardly has rules of its own: super users, rules for all names, and no rule at all
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        resources = self._resources.get(resource_type)
        if not self._is_loaded or resources is None:
            return False

        def says(pattern_type: int, name: str, permission: int) -> bool:
            entries = resources.named(pattern_type).get(name)
            return entries is not None and any(
                entry.says(operation, permission) for entry in _entries_for(entries, principal, host)
            )

        if says(PatternType.LITERAL, EVERYTHING, Permission.DENY):
            return False
        for who in (principal, EVERYBODY):
            for pattern_type, name in self._patterns.get((resource_type, who), ()):
                if not says(pattern_type, name, Permission.ALLOW):
                    continue
                if pattern_type == PatternType.LITERAL and name == EVERYTHING:
                    return True
                if pattern_type == PatternType.LITERAL and says(PatternType.LITERAL, name, Permission.DENY):
                    continue
                if not any(
                    says(PatternType.PREFIXED, name[:length], Permission.DENY)
                    for length in resources.lengths
                    if length <= len(name)
                ):
                    return True
        return False

    def explain(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Explanation:
        """What `allows` answers, and why."""
        asked = f"{word(Operation, operation)} on {resource_text(resource_type, name)}"
        if principal in self._super_users:
            return Explanation(True, f"{principal} is a super user")
        if not self._is_loaded:
            return Explanation(False, "the rules are not loaded yet: only super users are allowed anything")
        resources = self._resources.get(resource_type)
        covering = list(resources.covering(name)) if resources is not None else []
        if not covering:
            why = f"no rule is about {resource_text(resource_type, name)}"
            if self._allow_if_no_rule:
                why += ", and allow.everyone.if.no.acl.found=true"
            return Explanation(self._allow_if_no_rule, why)
        entries = [entry for of in covering for entry in _entries_for(of, principal, host)]
        for permission in (Permission.DENY, Permission.ALLOW):
            rules = [
                rule for entry in entries for rule in entry.rules if _decides(rule, operation, permission)
            ]
            if rules:
                rule = min(rules)
                return Explanation(permission == Permission.ALLOW, str(rule), rule, self._ids[rule])
        where = "" if host == EVERYTHING else f" from {host}"
        why = f"no rule allows {principal} {asked}{where}; others have rules for this resource"
        return Explanation(False, why)

    def find(self, which: AclFilter) -> list[tuple[bytes, AclRule]]:
        """The rules that a filter matches, with their ids, in order of the rules."""
        found = [(self._ids[rule], rule) for rule in self._candidates(which) if which.matches(rule)]
        return sorted(found, key=lambda pair: pair[1])

    def id_of(self, rule: AclRule) -> bytes | None:
        """None if there is no such rule."""
        return self._ids.get(rule)

    def __len__(self) -> int:
        return len(self._rules)

    def _masks(self, principal: str, host: str, resource_type: int, name: str) -> tuple[bool, int, int]:
        """Whether there is any rule for the resource, and what is allowed and denied to the principal."""
        resources = self._resources.get(resource_type)
        if resources is None:
            return False, 0, 0
        has_rules = False
        allowed = denied = 0
        for entries in resources.covering(name):
            has_rules = True
            for entry in _entries_for(entries, principal, host):
                allowed |= entry.allowed
                denied |= entry.denied
        return has_rules, allowed, denied

    def _candidates(self, which: AclFilter) -> Iterable[AclRule]:
        """At least those that the filter matches, and not all if an index helps."""
        kinds = list(self._resources) if which.resource_type == ResourceType.ANY else [which.resource_type]
        if which.name is not None:
            groups = [
                entries
                for kind in kinds
                if (resources := self._resources.get(kind)) is not None
                for entries in _named(resources, which.name, which.pattern_type)
            ]
        elif which.principal is not None:
            groups = [
                {which.principal: self._resources[kind].named(pattern_type)[name][which.principal]}
                for kind in kinds
                for pattern_type, name in self._patterns.get((kind, which.principal), ())
            ]
        else:
            return self._rules.values()
        return (
            rule
            for entries in groups
            for hosts in entries.values()
            for entry in hosts.values()
            for rule in entry.rules
        )


def _named(resources: _Resources, name: str, pattern_type: int) -> Iterable[_Entries]:
    if pattern_type == PatternType.MATCH:
        return resources.covering(name)
    both = (resources.literal.get(name), resources.prefixed.get(name))
    return [entries for entries in both if entries is not None]


def _entries_for(entries: _Entries, principal: str, host: str) -> Iterator[_Entry]:
    for who in (principal, EVERYBODY):
        hosts = entries.get(who)
        if hosts is not None:
            for where in (host, EVERYTHING):
                entry = hosts.get(where)
                if entry is not None:
                    yield entry


def _decides(rule: AclRule, operation: int, permission: int) -> bool:
    if rule.permission != permission:
        return False
    if rule.operation in (operation, Operation.ALL):
        return True
    return permission == Permission.ALLOW and rule.operation in IMPLIED_BY.get(Operation(operation), ())
