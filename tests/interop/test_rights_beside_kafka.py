"""Every API that Kafka serves too, with and without each right that it needs: both brokers answer with the
same error codes.

For each question of the table (`node/rights.py`) a client asks without a rule, with rules that are not
enough, with rules that allow and deny, with each right that will do, and as a super user. Names are new each
time, because requests that are allowed do what they say.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from typing import Any

import pytest

from harness.guarded_brokers import Guarded, Rule, guarded_headrace, guarded_kafka
from harness.recorded_answers import VALUES, fill, readable, requests
from harness.rights_cases import MEMBER, Asked, allows, asked, useless
from headrace.machines.security.acl_rules import CLUSTER_NAME, Operation, Permission, ResourceType
from headrace.node.rights import RIGHTS, Right
from headrace.node.routes import SERVED
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.notation import Struct

KAFKAS = [one for one in asked() if one.key < 30_000 and not one.on_controller]
KINDS = requests(SERVED)
ADA, EVE = "User:ada", "User:eve"
NUMBERS = count(1)
PATIENCE_S = 30
ALLOW, DENY = Permission.ALLOW, Permission.DENY
NAMED = (
    (ResourceType.TOPIC, "t"),
    (ResourceType.GROUP, "g"),
    (ResourceType.GROUP, "new-protocol"),
    (ResourceType.CLUSTER, CLUSTER_NAME),
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Guarded, Guarded]]:
    made = (
        guarded_kafka(tmp_path_factory.mktemp("oracle")),
        guarded_headrace(tmp_path_factory.mktemp("ours")),
    )
    for broker, _ in made:
        broker.start()
    oracle, tested = (Guarded(broker, port) for broker, port in made)
    for side in (oracle, tested):
        for kind in (0, 1):
            settle(side, kind)
    yield oracle, tested
    for side in (oracle, tested):
        side.close()
    oracle.broker.kill()
    tested.broker.stop()


def settle(side: Guarded, kind: int) -> None:
    """The coordinators' topics are there."""
    asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
    until(lambda: not side.admin.ask("admin", asked, 4).coordinators[0].error_code)


class Names:
    """New ones for an attempt, in place of those of the cases."""

    def __init__(self) -> None:
        number = next(NUMBERS)
        texts = ("t", "g", "tx", "new", "new-protocol", "patterns", "another")
        self.texts = {text: f"{text}{number}" for text in texts}

    def new(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.new(each) for each in value]
        if isinstance(value, Struct):
            for field in type(value).__fields__:
                setattr(value, field.name, self.new(getattr(value, field.name)))
            return value
        return self.texts.get(value, value) if isinstance(value, str) else value

    def __getitem__(self, text: str) -> str:
        return self.texts.get(text, text)


def prepare(side: Guarded, names: Names, *, awaits_assignment: bool = False) -> bytes:
    """A topic, a group with an offset, one with a member, a transactional id; the topic's id."""
    ask = side.admin.ask
    topic = names["t"]
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    ask("admin", CreateTopicsRequest(topics=[wanted], timeout_ms=5000), 7)
    until(lambda: ask("admin", named(topic), 12).topics[0].error_code == 0)
    topic_id = bytes(ask("admin", named(topic), 12).topics[0].topic_id)
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequest(
        group_id=names["g"], topics=[OffsetCommitRequestTopic(name=topic, partitions=[offset])]
    )
    until(lambda: ask("admin", commit, 9).topics[0].partitions[0].error_code == 0)
    member = ConsumerGroupHeartbeatRequest(
        group_id=names["new-protocol"],
        member_id=MEMBER,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    until(lambda: ask("admin", member, 1).error_code == 0)
    if awaits_assignment:  # Kafka computes it in a later heartbeat
        described = ConsumerGroupDescribeRequest(group_ids=[names["new-protocol"]])
        until(lambda: has_target(ask("admin", described, 1)) or beats(side, member))
    init = InitProducerIdRequest(transactional_id=names["tx"], transaction_timeout_ms=60_000)
    until(lambda: ask("admin", init, 4).error_code == 0)
    return topic_id


def beats(side: Guarded, joined: ConsumerGroupHeartbeatRequest) -> bool:
    """One more heartbeat of the member; False."""
    described = ConsumerGroupDescribeRequest(group_ids=[joined.group_id])
    ((member,),) = [group.members for group in side.admin.ask("admin", described, 1).groups]
    again = ConsumerGroupHeartbeatRequest(
        group_id=joined.group_id, member_id=joined.member_id, member_epoch=member.member_epoch
    )
    side.admin.ask("admin", again, 1)
    return False


def has_target(answer: Any) -> bool:
    return any(
        member.target_assignment.topic_partitions for group in answer.groups for member in group.members
    )


def named(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


def until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "that never comes true"
        time.sleep(0.01)


def variants(one: Asked, names: Names) -> Iterator[tuple[str, str, list[Rule]]]:
    """What it is called, who asks, and the rules."""
    question = one.question
    rest = [
        rule(other.rights[-1], one, names)
        for other in RIGHTS[one.key]
        if not any(allows(other.rights[-1], wanted) for wanted in question.rights)
    ]
    yield "no rule", "ada", rest
    wrong = list(rest)
    for right in question.rights:
        wrong.append(rule(right, one, names, principal=EVE))
        if not right.of_any and right.resource is not ResourceType.CLUSTER:
            wrong.append(rule(right, one, names, name=names["another"]))
        other = useless(right, question)
        if other is not None:
            wrong.append(rule(Right(other, right.resource), one, names))
    yield "wrong rules", "ada", wrong
    denied = list(rest)
    for right in question.rights:
        denied.append(rule(right, one, names))
        name = "*" if right.of_any else None
        denied.append(rule(right, one, names, name=name, permission=DENY))
    yield "denied over allowed", "ada", denied
    for right in question.rights:
        yield (
            f"right {right.operation.name} on {right.resource.name}",
            "ada",
            [*rest, rule(right, one, names)],
        )
    yield "super user", "admin", []


def rule(
    right: Right,
    one: Asked,
    names: Names,
    *,
    principal: str = ADA,
    name: str | None = None,
    permission: Permission = ALLOW,
) -> Rule:
    resource = right.resource
    found = CLUSTER_NAME if resource is ResourceType.CLUSTER else name or names[one.name(resource)]
    return right.operation, resource, found, principal, permission


def request_of(one: Asked, names: Names, topic_id: bytes) -> tuple[Any, int]:
    case = one.case
    version = SERVED[one.key][1] if case.version is None else case.version
    if case.request is not None:
        return names.new(case.request(topic_id)), version
    values = {**VALUES, "topic_id": topic_id, "topic_ids": bytes(16), **case.values}
    return names.new(fill(KINDS[one.key], version, values)), version


def codes(value: Any, path: str = "") -> list[str]:
    """Of all errors in an answer, with the place of each, and authorized operations."""
    if isinstance(value, list):
        return [code for each in value for code in codes(each, path)]
    if not isinstance(value, Struct):
        return []
    found = []
    for field in type(value).__fields__:
        each = getattr(value, field.name)
        if field.name.endswith("error_code"):
            found.append(f"{path}{field.name}={ErrorCode(each).name}")
        elif field.name.endswith("authorized_operations"):
            found.append(f"{path}{field.name}={each}")
        elif isinstance(each, list | Struct):
            found += codes(each, f"{path}{field.name}.")
    return found


OF_ALL_TOPICS = {"3-1", "75-1"}
# Kafka finds the topics of a pattern after the first heartbeat, and Headrace before it answers that.
LATER = {"68-2"}
# Kafka answers that there is no such topic, and creates it then. Headrace creates it, and answers then.
CREATED_FIRST = (
    "3-2",
    "topics.error_code=UNKNOWN_TOPIC_OR_PARTITION; ",
    "topics.error_code=NONE; topics.partitions.error_code=NONE; ",
)


def told(side: Guarded, one: Asked) -> list[str]:
    lines = []
    labels = [label for label, _, _ in variants(one, Names())]
    for index, label in enumerate(labels):
        names = Names()
        _, user, rules = list(variants(one, names))[index]
        topic_id = prepare(side, names, awaits_assignment=one.key == ApiKey.CONSUMER_GROUP_DESCRIBE)
        request, version = request_of(one, names, topic_id)
        side.set_rules(rules)
        answer = side.ask(user, request, version)
        found = [answer] if isinstance(answer, str) else codes(answer)
        if str(one) in OF_ALL_TOPICS:
            found = sorted(set(found))  # those of earlier attempts, too
        line = f"{label}: {'; '.join(found) or 'no code'}"
        if one.question.refusal is None and str(one) not in LATER:
            shown = one.case.shown or repr(names[one.name(one.question.rights[-1].resource)])
            line += "; shown" if shown in readable(answer, topic_id) else "; not shown"
        lines.append(line)
    return lines


@pytest.mark.parametrize("one", KAFKAS, ids=str)
def test_answers_have_the_codes_of_kafka(pair: tuple[Guarded, Guarded], one: Asked) -> None:
    oracle, tested = pair
    expected, actual = told(oracle, one), told(tested, one)
    name, theirs, ours = CREATED_FIRST
    if str(one) == name:
        expected = [line.replace(theirs, ours) for line in expected]
    assert actual == expected


BITS = [
    (
        "metadata",
        MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
        10,
        "include_topic_authorized_operations",
    ),
    ("metadata-cluster", MetadataRequest(topics=[]), 10, "include_cluster_authorized_operations"),
    ("describe-groups", DescribeGroupsRequest(groups=["g"]), 5, "include_authorized_operations"),
    ("describe-cluster", DescribeClusterRequest(), 1, "include_cluster_authorized_operations"),
    (
        "consumer-group-describe",
        ConsumerGroupDescribeRequest(group_ids=["new-protocol"]),
        1,
        "include_authorized_operations",
    ),
]
ROWS: list[list[tuple[Operation, ResourceType, str, Permission]]] = [
    [],
    [(Operation.DESCRIBE, kind, name, ALLOW) for kind, name in NAMED],
    [(Operation.READ, ResourceType.TOPIC, "t", ALLOW), (Operation.READ, ResourceType.GROUP, "g", ALLOW)],
    [
        *((Operation.ALL, kind, name, ALLOW) for kind, name in NAMED),
        (Operation.WRITE, ResourceType.TOPIC, "t", DENY),
        (Operation.DELETE, ResourceType.GROUP, "g", DENY),
        (Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, DENY),
    ],
    [
        *((Operation.ALTER_CONFIGS, kind, name, ALLOW) for kind, name in NAMED),
        *((Operation.DELETE, kind, name, ALLOW) for kind, name in NAMED if kind is not ResourceType.CLUSTER),
        (Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, ALLOW),
    ],
]


@pytest.mark.parametrize(("name", "request_", "version", "flag"), BITS, ids=[one[0] for one in BITS])
def test_authorized_operations_are_those_of_kafka(
    pair: tuple[Guarded, Guarded], name: str, request_: Any, version: int, flag: str
) -> None:
    def bits(side: Guarded) -> list[str]:
        lines = []
        for number, row in enumerate(ROWS):
            names = Names()
            prepare(side, names, awaits_assignment=name == "consumer-group-describe")
            wanted = names.new(deepcopy(request_))
            setattr(wanted, flag, True)
            side.set_rules([(op, kind, names[text], ADA, how) for op, kind, text, how in row])
            lines.append(f"{number}: {'; '.join(codes(side.ask('ada', wanted, version)))}")
        return lines

    oracle, tested = pair
    expected, actual = bits(oracle), bits(tested)
    assert actual == expected
    assert len(set(expected)) > 1, "the rules make no difference"


REPEATED = [one for one in KAFKAS if str(one) in ("0-1", "1-1", "8-0", "8-1")]


@pytest.mark.parametrize("one", REPEATED, ids=str)
def test_fast_paths_refuse_like_kafka_when_a_rule_goes(pair: tuple[Guarded, Guarded], one: Asked) -> None:
    """A connection that repeats its request is served by the fast path; the rule goes, and comes back."""

    def story(side: Guarded) -> list[str]:
        names = Names()
        topic_id = prepare(side, names)
        request, version = request_of(one, names, topic_id)
        _, _, rules = next(found for found in variants(one, names) if found[0].startswith("right"))
        client = side.log_in("ada")
        lines = []
        for some in (rules, [], rules):
            side.set_rules(some)
            for _ in range(4):
                lines.append("; ".join(codes(side.answer(client, request, version))))
        client.close()
        return lines

    oracle, tested = pair
    expected, actual = story(oracle), story(tested)
    assert actual == expected
    assert expected[0] == expected[8] != expected[4]
