"""The authorizer's index against a scan of the list of rules, while rules come and go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.security.acl_rules import (
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.machines.security.acls import Authorizer

# few of each, so that rules meet
NAMES = ["a", "ab", "abc", "b", "*", "hardcode", "har"]
PRINCIPALS = ["User:x", "User:y", "User:*"]
HOSTS = ["10.0.0.1", "10.0.0.2", "*"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
OPERATIONS = [
    Operation.ALL,
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.ALTER_CONFIGS,
    Operation.DESCRIBE_CONFIGS,
]

RULES = st.builds(
    AclRule,
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
FILTERS = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, *TYPES, ResourceType.USER]),
    st.sampled_from([None, *NAMES, "abcd"]),
    st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([None, *PRINCIPALS]),
    st.sampled_from([None, *HOSTS]),
    st.sampled_from([Operation.ANY, *OPERATIONS]),
    st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from(["User:x", "User:y", "User:z", "User:root"]),
    st.sampled_from(["10.0.0.1", "10.0.0.3"]),
    st.sampled_from(OPERATIONS[1:]),
    st.sampled_from(TYPES),
    st.sampled_from([*NAMES, "abcd", "c", ""]),
)

Question = tuple[str, str, Operation, ResourceType, str]


def is_about(rule: AclRule, kind: int, name: str) -> bool:
    if rule.resource_type != kind:
        return False
    if rule.pattern_type == PatternType.PREFIXED:
        return name[: len(rule.name)] == rule.name
    return rule.name == "*" or rule.name == name


def is_for(rule: AclRule, principal: str, host: str) -> bool:
    return rule.principal in ("User:*", principal) and rule.host in ("*", host)


def grants(rule: AclRule, operation: int) -> bool:
    if rule.operation in (Operation.ALL, operation):
        return True
    if operation == Operation.DESCRIBE:
        return rule.operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    return operation == Operation.DESCRIBE_CONFIGS and rule.operation == Operation.ALTER_CONFIGS


def scan(rules: list[AclRule], asked: Question, allow_if_no_rule: bool) -> bool:
    principal, host, operation, kind, name = asked
    if principal == "User:root":
        return True
    about = [rule for rule in rules if is_about(rule, kind, name)]
    if not about:
        return allow_if_no_rule
    mine = [rule for rule in about if is_for(rule, principal, host)]
    if any(
        rule.permission == Permission.DENY and rule.operation in (Operation.ALL, operation) for rule in mine
    ):
        return False
    return any(rule.permission == Permission.ALLOW and grants(rule, operation) for rule in mine)


def scan_any(rules: list[AclRule], asked: Question, allow_if_no_rule: bool) -> bool:
    """KIP-679 in its own words: an allowed pattern that no denied one covers."""
    principal, host, operation, kind, _ = asked
    if scan(rules, (principal, host, operation, kind, "hardcode"), allow_if_no_rule):
        return True
    mine = [
        rule
        for rule in rules
        if rule.resource_type == kind
        and is_for(rule, principal, host)
        and rule.operation in (Operation.ALL, operation)
    ]
    denied = {(rule.pattern_type, rule.name) for rule in mine if rule.permission == Permission.DENY}
    allowed = {(rule.pattern_type, rule.name) for rule in mine if rule.permission == Permission.ALLOW}
    star = (PatternType.LITERAL, "*")
    if star in denied:
        return False
    if star in allowed:
        return True
    for pattern, name in allowed:
        if pattern == PatternType.LITERAL and (pattern, name) in denied:
            continue
        if not any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1)):
            return True
    return False


@settings(max_examples=400, deadline=None)
@given(
    rules=st.lists(RULES, max_size=14, unique=True),
    gone=st.lists(st.integers(0, 13), max_size=8, unique=True),
    questions=st.lists(QUESTIONS, min_size=1, max_size=12),
    filters=st.lists(FILTERS, max_size=4),
    allow_if_no_rule=st.booleans(),
)
def test_the_index_answers_as_a_scan_does(
    rules: list[AclRule],
    gone: list[int],
    questions: list[Question],
    filters: list[AclFilter],
    allow_if_no_rule: bool,
) -> None:
    authorizer = Authorizer(["User:root"], allow_if_no_rule=allow_if_no_rule)
    for number, rule in enumerate(rules):
        authorizer.add(bytes([number]), rule)
    authorizer.loaded()
    left = dict(enumerate(rules))
    for number in gone:
        if number in left:
            assert authorizer.remove(bytes([number])) == left.pop(number)
    known = list(left.values())
    assert len(authorizer) == len(known)
    for asked in questions:
        answer = authorizer.allows(*asked)
        assert answer == scan(known, asked, allow_if_no_rule)
        explained = authorizer.explain(*asked)
        assert explained.is_allowed == answer
        if explained.rule is not None:
            assert explained.rule in known
            assert (explained.rule.permission == Permission.ALLOW) == answer
        principal, host, operation, kind, name = asked
        assert authorizer.operations_bits(principal, host, kind, name) >> operation & 1 == answer or (
            operation == Operation.WRITE and kind == ResourceType.GROUP  # which a group does not have
        )
        assert authorizer.allows_any(principal, host, operation, kind) == scan_any(
            known, asked, allow_if_no_rule
        )
    for which in filters:
        found = authorizer.find(which)
        assert [rule for _, rule in found] == sorted(rule for rule in known if which.matches(rule))
        assert all(left[number[0]] == rule for number, rule in found)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.sampled_from([10, 1_000, 5_000]))
def test_a_question_looks_at_few_places_however_many_rules_there_are(seed: int, count: int) -> None:
    """Counted, not timed: at most the name, `*`, and one place per length of a prefix."""
    authorizer = Authorizer()
    for number in range(count):
        pattern = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
        rule = AclRule(
            ResourceType.TOPIC,
            f"t{seed}-{number}",
            pattern,
            f"User:{number}",
            "*",
            Operation.READ,
            Permission.ALLOW,
        )
        authorizer.add(number.to_bytes(4, "big"), rule)
    authorizer.loaded()
    name = f"t{seed}-{count - 1}-longer"
    places = list(authorizer._resources[ResourceType.TOPIC].covering(name))
    assert len(places) <= 2 + len(name)
    assert len(authorizer._resources[ResourceType.TOPIC].lengths) <= 4
    assert authorizer.allows(f"User:{count - 1}", "::1", Operation.READ, ResourceType.TOPIC, name)
