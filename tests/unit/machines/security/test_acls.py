"""Rights: who may do what under which rules, what is said about it, and how rules are found and checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.machines.security.acl_rules import (
    CLUSTER_NAME,
    EVERYBODY,
    AclFilter,
    AclRule,
    InvalidAcl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_filter,
    check_new_rule,
    host_text,
)
from headrace.machines.security.acls import Authorizer

ADA, BOB = "User:ada", "User:bob"
HOST = "10.0.0.1"
TOPIC = ResourceType.TOPIC


def allow(
    operation: int,
    name: str = "orders",
    *,
    principal: str = ADA,
    host: str = "*",
    prefixed: bool = False,
    resource: int = TOPIC,
    permission: int = Permission.ALLOW,
) -> AclRule:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclRule(resource, name, pattern, principal, host, operation, permission)


def deny(operation: int, name: str = "orders", **more: object) -> AclRule:
    return allow(operation, name, permission=Permission.DENY, **more)  # type: ignore[arg-type]


def with_rules(*rules: AclRule, allow_if_no_rule: bool = False) -> Authorizer:
    authorizer = Authorizer(["User:root"], allow_if_no_rule=allow_if_no_rule)
    for number, rule in enumerate(rules):
        authorizer.add(number.to_bytes(16, "big"), rule)
    authorizer.loaded()
    return authorizer


def may(
    authorizer: Authorizer, operation: int, name: str = "orders", principal: str = ADA, host: str = HOST
) -> bool:
    answer = authorizer.allows(principal, host, operation, TOPIC, name)
    assert authorizer.explain(principal, host, operation, TOPIC, name).is_allowed == answer
    return answer


class TestRules:
    def test_nothing_is_allowed_without_a_rule(self) -> None:
        assert not may(with_rules(), Operation.READ)
        assert not may(with_rules(allow(Operation.WRITE)), Operation.READ)
        assert not may(with_rules(allow(Operation.READ)), Operation.READ, principal=BOB)
        assert not may(with_rules(allow(Operation.READ, resource=ResourceType.GROUP)), Operation.READ)

    def test_names(self) -> None:
        authorizer = with_rules(allow(Operation.READ), allow(Operation.WRITE, "or", prefixed=True))
        assert may(authorizer, Operation.READ, "orders")
        assert not may(authorizer, Operation.READ, "orders2")
        assert not may(authorizer, Operation.READ, "order")
        assert may(authorizer, Operation.WRITE, "or")
        assert may(authorizer, Operation.WRITE, "orders")
        assert not may(authorizer, Operation.WRITE, "o")

    def test_a_literal_star_means_all_names_and_a_prefixed_one_does_not(self) -> None:
        assert may(with_rules(allow(Operation.READ, "*")), Operation.READ, "anything")
        assert not may(with_rules(allow(Operation.READ, "*", prefixed=True)), Operation.READ, "anything")

    def test_everybody(self) -> None:
        authorizer = with_rules(allow(Operation.READ, principal=EVERYBODY))
        assert may(authorizer, Operation.READ, principal=BOB)
        assert may(authorizer, Operation.READ, principal="User:ANONYMOUS")

    def test_principals_are_compared_as_a_whole(self) -> None:
        authorizer = with_rules(allow(Operation.READ))
        for principal in ("User:Ada", "ada", "Group:ada", "User:ada ", "User:"):
            assert not may(authorizer, Operation.READ, principal=principal)

    @pytest.mark.parametrize(
        ("said", "asked"),
        [
            ("10.0.0.1", "10.0.0.1"),
            ("0:0:0:0:0:0:0:1", "::1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("FE80::1", "fe80::1"),
        ],
    )
    def test_hosts_are_addresses(self, said: str, asked: str) -> None:
        authorizer = with_rules(allow(Operation.READ, host=said))
        assert may(authorizer, Operation.READ, host=host_text(asked))
        assert not may(authorizer, Operation.READ, host="10.0.0.2")

    def test_deny_overrides_allow_wherever_it_comes_from(self) -> None:
        allowed = allow(Operation.READ)
        for denied in (
            deny(Operation.READ),
            deny(Operation.ALL),
            deny(Operation.READ, "o", prefixed=True),
            deny(Operation.READ, "*"),
            deny(Operation.READ, principal=EVERYBODY),
            deny(Operation.READ, host=HOST),
        ):
            assert not may(with_rules(allowed, denied), Operation.READ)
            assert not may(with_rules(denied, allowed), Operation.READ)
        assert may(with_rules(allowed, deny(Operation.READ, host="10.0.0.2")), Operation.READ)

    @pytest.mark.parametrize(
        "operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER]
    )
    def test_describe_is_implied(self, operation: Operation) -> None:
        assert may(with_rules(allow(operation)), Operation.DESCRIBE)
        assert not may(with_rules(allow(operation), deny(Operation.DESCRIBE)), Operation.DESCRIBE)
        # not the reverse: to deny READ does not deny DESCRIBE
        assert may(with_rules(allow(Operation.DESCRIBE), deny(operation)), Operation.DESCRIBE)

    def test_describe_configs_is_implied(self) -> None:
        authorizer = with_rules(allow(Operation.ALTER_CONFIGS))
        assert may(authorizer, Operation.DESCRIBE_CONFIGS)
        assert not may(authorizer, Operation.DESCRIBE)
        assert not may(with_rules(allow(Operation.CREATE)), Operation.DESCRIBE)

    def test_all_allows_every_operation(self) -> None:
        authorizer = with_rules(allow(Operation.ALL))
        assert all(may(authorizer, operation) for operation in Operation if operation > Operation.ALL)

    def test_a_rule_with_an_operation_of_a_newer_version(self) -> None:
        authorizer = with_rules(allow(77), allow(Operation.READ))
        assert may(authorizer, Operation.READ)
        assert not may(authorizer, Operation.WRITE)
        authorizer.remove(bytes(16))
        assert may(authorizer, Operation.READ)


class TestSuperUsers:
    def test_they_need_no_rules_and_mind_none(self) -> None:
        authorizer = with_rules(deny(Operation.ALL, "*", principal=EVERYBODY))
        assert may(authorizer, Operation.DELETE, principal="User:root")
        authorizer.configure([BOB], allow_if_no_rule=False)
        assert not may(authorizer, Operation.DELETE, principal="User:root")
        assert may(authorizer, Operation.DELETE, principal=BOB)

    def test_until_the_rules_are_loaded_they_are_the_only_ones(self) -> None:
        authorizer = Authorizer(["User:root"], allow_if_no_rule=True)
        authorizer.add(b"1", allow(Operation.READ))
        assert not may(authorizer, Operation.READ)
        assert not authorizer.allows_any(ADA, HOST, Operation.READ, TOPIC)
        assert authorizer.operations_bits(ADA, HOST, TOPIC, "orders") == 0
        assert may(authorizer, Operation.READ, principal="User:root")
        authorizer.loaded()
        assert may(authorizer, Operation.READ)


class TestNoRuleFound:
    def test_it_counts_only_where_no_rule_at_all_is_about_the_resource(self) -> None:
        authorizer = with_rules(allow(Operation.READ, principal=BOB), allow_if_no_rule=True)
        assert may(authorizer, Operation.READ, "other")
        assert not may(authorizer, Operation.READ, "orders")
        assert not may(authorizer, Operation.WRITE, "orders", principal=BOB)

    def test_a_prefix_and_a_star_are_about_the_resource(self) -> None:
        for rule in (
            allow(Operation.READ, "or", prefixed=True, principal=BOB),
            allow(Operation.READ, "*", principal=BOB),
        ):
            assert not may(with_rules(rule, allow_if_no_rule=True), Operation.READ)


class TestChanges:
    def test_the_version_is_another_after_each_change(self) -> None:
        authorizer = Authorizer()
        seen = [authorizer.version]
        rule = allow(Operation.READ)
        for change in (
            lambda: authorizer.add(b"1", rule),
            authorizer.loaded,
            lambda: authorizer.configure([], allow_if_no_rule=True),
            lambda: authorizer.remove(b"1"),
        ):
            change()
            assert all(authorizer.version is not old for old in seen)
            seen.append(authorizer.version)
        may(authorizer, Operation.READ)
        assert authorizer.version is seen[-1]

    def test_a_removed_rule_leaves_nothing_behind(self) -> None:
        authorizer = with_rules(allow(Operation.READ), deny(Operation.READ, "or", prefixed=True))
        authorizer.remove((1).to_bytes(16, "big"))
        assert may(authorizer, Operation.READ)
        assert authorizer.remove(bytes(16)) == allow(Operation.READ)
        authorizer.configure([], allow_if_no_rule=True)
        assert may(authorizer, Operation.WRITE)
        assert len(authorizer) == 0
        with pytest.raises(KeyError):
            authorizer.remove(bytes(16))

    def test_two_texts_of_one_address_are_two_rules(self) -> None:
        first, second = allow(Operation.READ, host="::1"), allow(Operation.READ, host="0:0:0:0:0:0:0:1")
        authorizer = with_rules(first, second)
        authorizer.remove(bytes(16))
        assert may(authorizer, Operation.READ, host="::1")

    def test_the_same_rule_or_id_twice_is_our_own_mistake(self) -> None:
        authorizer = with_rules(allow(Operation.READ))
        with pytest.raises(ValueError, match="there already"):
            authorizer.add(b"other", allow(Operation.READ))
        with pytest.raises(ValueError, match="there already"):
            authorizer.add(bytes(16), allow(Operation.WRITE))
        assert authorizer.id_of(allow(Operation.READ)) == bytes(16)
        assert authorizer.id_of(allow(Operation.WRITE)) is None


class TestAnyResource:
    """KIP-679: WRITE on any topic is enough for an idempotent producer."""

    def may_write(self, *rules: AclRule, allow_if_no_rule: bool = False, principal: str = ADA) -> bool:
        authorizer = with_rules(*rules, allow_if_no_rule=allow_if_no_rule)
        return authorizer.allows_any(principal, HOST, Operation.WRITE, TOPIC)

    def test_one_name_or_prefix_is_enough(self) -> None:
        assert self.may_write(allow(Operation.WRITE))
        assert self.may_write(allow(Operation.ALL, "o", prefixed=True))
        assert self.may_write(allow(Operation.WRITE, "*", principal=EVERYBODY))
        assert self.may_write(principal="User:root")
        assert self.may_write(allow_if_no_rule=True)

    def test_other_operations_types_hosts_and_users_are_not(self) -> None:
        assert not self.may_write()
        assert not self.may_write(allow(Operation.READ))
        assert not self.may_write(allow(Operation.WRITE, resource=ResourceType.GROUP))
        assert not self.may_write(allow(Operation.WRITE, host="10.0.0.2"))
        assert not self.may_write(allow(Operation.WRITE, principal=BOB))

    def test_denials_that_leave_nothing(self) -> None:
        written = allow(Operation.WRITE)
        assert not self.may_write(written, deny(Operation.WRITE))
        assert not self.may_write(written, deny(Operation.WRITE, "*"))
        assert not self.may_write(written, deny(Operation.ALL, "ord", prefixed=True))
        assert not self.may_write(
            allow(Operation.WRITE, "or", prefixed=True), deny(Operation.WRITE, "o", prefixed=True)
        )

    def test_denials_that_leave_something(self) -> None:
        assert self.may_write(allow(Operation.WRITE), deny(Operation.WRITE, "other"))
        assert self.may_write(allow(Operation.WRITE, "or", prefixed=True), deny(Operation.WRITE, "or"))
        assert self.may_write(
            allow(Operation.WRITE, "o", prefixed=True), deny(Operation.WRITE, "or", prefixed=True)
        )
        assert self.may_write(allow(Operation.WRITE, "*"), deny(Operation.WRITE, "hard", prefixed=True))

    def test_implied_operations_do_not_count(self) -> None:
        authorizer = with_rules(allow(Operation.WRITE))
        assert not authorizer.allows_any(ADA, HOST, Operation.DESCRIBE, TOPIC)


class TestOperationsBits:
    def bits(self, authorizer: Authorizer, resource: int = TOPIC, principal: str = ADA) -> set[Operation]:
        field = authorizer.operations_bits(principal, HOST, resource, "orders")
        return {operation for operation in Operation if field >> operation & 1}

    def test_what_is_allowed_less_what_is_denied(self) -> None:
        authorizer = with_rules(
            allow(Operation.READ), allow(Operation.ALTER_CONFIGS), deny(Operation.DESCRIBE)
        )
        assert self.bits(authorizer) == {
            Operation.READ,
            Operation.ALTER_CONFIGS,
            Operation.DESCRIBE_CONFIGS,
        }

    def test_only_operations_that_the_resource_has(self) -> None:
        everything = allow(Operation.ALL, "*", resource=ResourceType.TRANSACTIONAL_ID)
        assert self.bits(with_rules(everything), ResourceType.TRANSACTIONAL_ID) == {
            Operation.WRITE,
            Operation.DESCRIBE,
            Operation.TWO_PHASE_COMMIT,
        }

    def test_super_users_and_no_rules(self) -> None:
        assert len(self.bits(with_rules(), principal="User:root")) == 8
        assert self.bits(with_rules()) == set()
        assert len(self.bits(with_rules(allow_if_no_rule=True))) == 8


class TestExplain:
    def test_sentences(self) -> None:
        authorizer = with_rules(allow(Operation.ALL, "or", prefixed=True), deny(Operation.WRITE))
        denied = authorizer.explain(ADA, HOST, Operation.WRITE, TOPIC, "orders")
        assert (denied.is_allowed, denied.rule, denied.rule_id) == (
            False,
            deny(Operation.WRITE),
            (1).to_bytes(16, "big"),
        )
        assert denied.reason == "deny User:ada WRITE on topic 'orders' from *"
        allowed = authorizer.explain(ADA, HOST, Operation.READ, TOPIC, "orders")
        assert allowed.reason == "allow User:ada ALL on topic prefix 'or' from *"
        assert (
            "no rule is about topic 'x'" in authorizer.explain(ADA, HOST, Operation.READ, TOPIC, "x").reason
        )
        other = authorizer.explain(BOB, HOST, Operation.READ, TOPIC, "orders")
        assert other.reason.startswith("no rule allows User:bob READ on topic 'orders' from 10.0.0.1")
        assert "super user" in authorizer.explain("User:root", HOST, Operation.READ, TOPIC, "x").reason

    def test_no_rules(self) -> None:
        reason = with_rules(allow_if_no_rule=True).explain(ADA, HOST, Operation.READ, TOPIC, "x").reason
        assert "allow.everyone.if.no.acl.found" in reason
        assert "not loaded" in Authorizer().explain(ADA, HOST, Operation.READ, TOPIC, "x").reason


class TestFilters:
    RULES = (
        allow(Operation.READ),
        allow(Operation.READ, "or", prefixed=True),
        allow(Operation.READ, "orders", prefixed=True),
        allow(Operation.READ, "*"),
        deny(Operation.WRITE, "other", principal=BOB, host=HOST),
        allow(Operation.ALTER, CLUSTER_NAME, resource=ResourceType.CLUSTER),
    )

    def found(self, which: AclFilter) -> set[AclRule]:
        return {rule for _, rule in with_rules(*self.RULES).find(which)}

    def test_everything(self) -> None:
        assert self.found(AclFilter()) == set(self.RULES)

    def test_names(self) -> None:
        literal, short, prefix, star = self.RULES[:4]
        assert self.found(AclFilter(TOPIC, "orders")) == {literal, prefix}
        assert self.found(AclFilter(TOPIC, "orders", PatternType.LITERAL)) == {literal}
        assert self.found(AclFilter(TOPIC, "orders", PatternType.PREFIXED)) == {prefix}
        assert self.found(AclFilter(TOPIC, "orders", PatternType.MATCH)) == {literal, short, prefix, star}
        assert self.found(AclFilter(TOPIC, "ore", PatternType.MATCH)) == {short, star}
        assert self.found(AclFilter(TOPIC, "*", PatternType.LITERAL)) == {star}
        assert self.found(AclFilter(TOPIC, None, PatternType.PREFIXED)) == {short, prefix}

    def test_other_fields(self) -> None:
        denied = self.RULES[4]
        assert self.found(AclFilter(principal=BOB)) == {denied}
        assert self.found(AclFilter(host=HOST)) == {denied}
        assert self.found(AclFilter(permission=Permission.DENY)) == {denied}
        assert self.found(AclFilter(operation=Operation.ALTER)) == {self.RULES[5]}
        # a filter is about what rules say, not about what they mean
        assert self.found(AclFilter(operation=Operation.DESCRIBE)) == set()

    @pytest.mark.parametrize(
        "which",
        [
            AclFilter(resource_type=0),
            AclFilter(resource_type=99),
            AclFilter(pattern_type=0),
            AclFilter(operation=0),
            AclFilter(operation=77),
            AclFilter(permission=0),
        ],
    )
    def test_unknown_parts(self, which: AclFilter) -> None:
        with pytest.raises(InvalidAcl, match="Unknown"):
            check_filter(which)

    def test_known_parts(self) -> None:
        check_filter(AclFilter())
        check_filter(AclFilter(TOPIC, "x", PatternType.MATCH, ADA, "*", Operation.ALL, Permission.DENY))


class TestNewRules:
    def test_good_ones(self) -> None:
        check_new_rule(allow(Operation.READ))
        check_new_rule(deny(Operation.ALL, "*", principal=EVERYBODY))
        check_new_rule(allow(Operation.ALTER, CLUSTER_NAME, resource=ResourceType.CLUSTER))
        check_new_rule(allow(Operation.READ, principal="User:CN=a,OU=b:c"))

    @pytest.mark.parametrize(
        ("rule", "message"),
        [
            (allow(Operation.READ, resource=ResourceType.ANY), "resourceType ANY"),
            (allow(Operation.READ, resource=42), "resourceType UNKNOWN"),
            (allow(Operation.READ)._replace(pattern_type=PatternType.MATCH), "patternType MATCH"),
            (allow(Operation.READ)._replace(pattern_type=9), "patternType UNKNOWN"),
            (allow(Operation.ANY), "operation ANY"),
            (allow(-1), "operation UNKNOWN"),
            (allow(Operation.READ, permission=Permission.ANY), "permissionType ANY"),
            (allow(Operation.READ, ""), "name should not be empty"),
            (allow(Operation.READ, "x", resource=ResourceType.CLUSTER), "kafka-cluster"),
            (allow(Operation.READ, principal="ada"), "Could not parse principal from `ada`"),
            (allow(Operation.READ, principal=""), "principal"),
        ],
    )
    def test_bad_ones(self, rule: AclRule, message: str) -> None:
        with pytest.raises(InvalidAcl, match=message):
            check_new_rule(rule)


def test_answers_as_kafka_gives_them() -> None:
    authorizer = Authorizer()
    asked = 0
    for line in Path(__file__).with_name("acls_of_kafka.txt").read_text().splitlines():
        word, *rest = line.split()
        if word == "rules":
            authorizer = Authorizer(["User:root"], allow_if_no_rule=rest[0] == "1")
            for number, text in enumerate(rest[1:]):
                kind, name, pattern, principal, host, operation, permission = text.split(",")
                rule = AclRule(
                    int(kind), name, int(pattern), principal, host, int(operation), int(permission)
                )
                authorizer.add(bytes([number]), rule)
            authorizer.loaded()
        elif word == "ask":
            principal, host, operation, name, this, some = rest
            name = name.removesuffix(":")
            question = f"{line} with {[str(rule) for _, rule in authorizer.find(AclFilter())]}"
            assert authorizer.allows(principal, host, int(operation), TOPIC, name) == (this == "1"), question
            assert authorizer.allows_any(principal, host, int(operation), TOPIC) == (some == "1"), question
            asked += 1
    assert asked > 400
