"""Stories about one group of the consumer protocol: heartbeats, and what was answered, line by line.

    topic orders 4                  creates a topic; `grow orders 6` adds partitions
    join a topics=orders            ConsumerGroupHeartbeat 1 of member a at epoch 0
      NONE a epoch=2 orders:4       the answer: the member, its epoch, how many partitions of each topic
    beat a owns                     the next heartbeat; `owns`: it says that it owns what it was last given
    leave a                         at epoch -1; `leave a epoch=-2` for a while
    classic-join x topics=orders    JoinGroup 9 of a member of the classic protocol; also `classic-beat`,
                                    `classic-leave`, `classic-sync` (gives=orders:0: a leader, to itself)
    commit a epoch=2 orders:0       OffsetCommit 9
    settle orders:4                 everybody beats until the group is stable and has that many partitions
    gone a                          time passes until a is no longer a member
    describe                        ConsumerGroupDescribe
    log                             what was written to `__consumer_offsets` since the last `log`

Words with = change what the member would say by itself; `quietly` leaves an answer out that depends on the
moment (Kafka resolves a pattern a little after it was asked to, we do it at once). The same story is told to
the machine alone and to brokers over a socket; what is written below a line was recorded from Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from harness.stories import retold
from headrace.protocol.coordinator_records import Record
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.protocol.messages.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.notation import Request
from headrace.protocol.versioned import decode_versioned, encode_versioned

# Targets follow every change at once, and nobody waits long for a silent member.
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.max.size": "3",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
REBALANCE_MS = 2_000
CLASSIC_SESSION_MS = 30_000
STATES = {0: "STABLE", 1: "UNREVOKED", 2: "UNRELEASED"}
Held = dict[bytes, list[int]]


class Coordinator(Protocol):
    """Whoever is told the story."""

    def ask(self, request: Request, version: int) -> Any: ...

    def create_topic(self, name: str, partitions: int) -> bytes:
        """Its id."""

    def grow_topic(self, name: str, partitions: int) -> None: ...

    def until(self, is_so: Callable[[], bool]) -> None:
        """Lets time pass until it is."""

    def log(self, group_id: str) -> list[Record]:
        """All records of the group, in order."""


class Storyteller:
    def __init__(self, coordinator: Coordinator, group_id: str) -> None:
        self.coordinator = coordinator
        self.group_id = group_id
        self.topic_names: dict[bytes, str] = {}
        self.epochs: dict[str, int] = {}
        self.held: dict[str, Held] = {}  # what each member was last given
        self.instances: dict[str, str | None] = {}
        self.classic_ids: dict[str, str] = {}
        self.classic_topics: dict[str, list[str]] = {}
        self.classic_held: dict[str, dict[str, list[int]]] = {}
        self.logged = 0

    def tell(self, story: str) -> str:
        return retold(story, self._answers)

    def _answers(self, words: list[str]) -> list[str]:
        answers = self.commands[words[0]](self, words[1:])
        return [] if "quietly" in words else answers

    # --- topics -------------------------------------------------------------------------------------------

    def _real(self, topic: str) -> str:
        """Many stories are told to one broker: each has topics of its own."""
        return f"{self.group_id}.{topic}"

    def topic(self, words: list[str]) -> list[str]:
        self.topic_names[self.coordinator.create_topic(self._real(words[0]), int(words[1]))] = words[0]
        return []

    def grow(self, words: list[str]) -> list[str]:
        self.coordinator.grow_topic(self._real(words[0]), int(words[1]))
        return []

    def _counted(self, held: Iterable[tuple[bytes, Any]]) -> str:
        counts = sorted((self.topic_names[topic], len(numbers)) for topic, numbers in held)
        return " ".join(f"{name}:{count}" for name, count in counts)

    # --- the consumer protocol ----------------------------------------------------------------------------

    def join(self, words: list[str]) -> list[str]:
        name, options = words[0], _options(words[1:])
        self.instances[name] = options.get("instance")
        self.held[name] = {}
        self.epochs[name] = 0
        return self._heartbeat(name, {"timeout": str(REBALANCE_MS)} | options, [])

    def beat(self, words: list[str]) -> list[str]:
        name = words[0]
        owns = None
        if "owns" in words:
            owns = [
                TopicPartitions(topic_id=topic, partitions=sorted(numbers))
                for topic, numbers in self.held[name].items()
            ]
        return self._heartbeat(name, _options(words[1:]), owns)

    def _heartbeat(self, name: str, options: dict[str, str], owns: list[TopicPartitions] | None) -> list[str]:
        topics = options.get("topics")
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.get("group", self.group_id),
            member_id=options.get("as", name),
            member_epoch=int(options.get("epoch", self.epochs.get(name, 0))),
            instance_id=options.get("instance", self.instances.get(name)),
            rack_id=options.get("rack"),
            rebalance_timeout_ms=int(options.get("timeout", -1)),
            subscribed_topic_names=None
            if topics is None
            else [self._real(each) for each in topics.split(",") if each],
            subscribed_topic_regex=self._regex(options.get("regex")),
            server_assignor=options.get("assignor"),
            topic_partitions=None if options.get("owned") == "null" else owns,
        )
        if options.get("owned") == "some":
            request.topic_partitions = [
                TopicPartitions(topic_id=next(iter(self.topic_names)), partitions=[0])
            ]
        return [self._learn(name, self.coordinator.ask(request, int(options.get("version", 1))))]

    def _regex(self, regex: str | None) -> str | None:
        return self._real(regex).replace(".", r"\.", 1) if regex else regex

    def _learn(self, name: str, response: ConsumerGroupHeartbeatResponse) -> str:
        error = ErrorCode(response.error_code)
        if error:
            return error.name
        if response.member_epoch > 0:
            self.epochs[name] = response.member_epoch
        member = response.member_id if response.member_id == name else "(another id)"
        told = f"NONE {member} epoch={response.member_epoch}"
        if response.assignment is None:
            return told
        self.held[name] = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
        return f"{told} {self._counted(self.held[name].items()) or '-'}"

    def leave(self, words: list[str]) -> list[str]:
        name, options = words[0], {"epoch": "-1"} | _options(words[1:])
        answer = self._heartbeat(name, options, None)
        self.held.pop(name, None)
        return answer

    def settle(self, words: list[str]) -> list[str]:
        """Nobody is told what it already has, so only the end of it is the same everywhere."""

        def is_settled() -> bool:
            for name in list(self.held):
                self.beat([name, "owns"])
            for name in list(self.classic_held):
                if "REBALANCE_IN_PROGRESS" in self.classic_beat([name]):
                    self.classic_join([name])
                    self.classic_sync([name])
            group = self._described()
            given: dict[str, int] = {}
            for member in group.members:
                for each in member.assignment.topic_partitions:
                    topic = self.topic_names[each.topic_id]
                    given[topic] = given.get(topic, 0) + len(each.partitions)
            told = sorted(f"{topic}:{count}" for topic, count in given.items() if count)
            return group.group_state == "Stable" and told == sorted(words)

        self.coordinator.until(is_settled)
        return [f"{name} {self._counted(self.held[name].items()) or '-'}" for name in sorted(self.held)]

    def gone(self, words: list[str]) -> list[str]:
        def is_gone() -> bool:
            for name in words[1:]:
                self.beat([name])
            return words[0] not in {member.member_id for member in self._described().members}

        self.coordinator.until(is_gone)
        self.held.pop(words[0], None)
        return []

    # --- members of the classic protocol ------------------------------------------------------------------

    def classic_join(self, words: list[str]) -> list[str]:
        name, options = words[0], _options(words[1:])
        self.classic_topics.setdefault(
            name, [self._real(each) for each in options.get("topics", "").split(",")]
        )
        owned = self.classic_held.setdefault(name, {})
        subscription = ConsumerProtocolSubscription(
            topics=self.classic_topics[name],
            owned_partitions=[TopicPartition(topic=topic, partitions=own) for topic, own in owned.items()],
        )
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=CLASSIC_SESSION_MS,
            rebalance_timeout_ms=CLASSIC_SESSION_MS,
            member_id=self.classic_ids.get(name, ""),
            group_instance_id=self.instances.setdefault(name, options.get("instance")),
            protocol_type=options.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(
                    name=options.get("protocol", "cooperative-sticky"),
                    metadata=encode_versioned(subscription, 3),
                )
            ],
        )
        response = self.coordinator.ask(request, 9)
        error = ErrorCode(response.error_code)
        if response.member_id:
            self.classic_ids[name] = response.member_id
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            return [error.name, *self.classic_join(words)]
        if error:
            return [error.name]
        self.epochs[name] = response.generation_id
        leader = response.leader or "nobody"
        leader = next((each for each, found in self.classic_ids.items() if found == leader), leader)
        protocol = f"{response.protocol_type}/{response.protocol_name}"
        return [f"NONE generation={response.generation_id} {protocol} leader={leader}"]

    def classic_sync(self, words: list[str]) -> list[str]:
        name, options = words[0], _options(words[1:])
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=int(options.get("generation", self.epochs.get(name, 0))),
            member_id=options.get("as", self.classic_ids.get(name, name)),
            group_instance_id=self.instances.get(name),
            protocol_type="consumer",
            protocol_name=options.get("protocol", "cooperative-sticky"),
        )
        if "gives" in options:
            topic, numbers = options["gives"].split(":")
            share = AssignedTopic(
                topic=self._real(topic), partitions=[int(each) for each in numbers.split(",")]
            )
            request.assignments.append(
                SyncGroupRequestAssignment(
                    member_id=request.member_id,
                    assignment=encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[share]), 3),
                )
            )
        response = self.coordinator.ask(request, 5)
        if response.error_code:
            return [ErrorCode(response.error_code).name]
        assignment = decode_versioned(ConsumerProtocolAssignment, response.assignment)
        self.classic_held[name] = {each.topic: each.partitions for each in assignment.assigned_partitions}
        counts = {topic: len(numbers) for topic, numbers in self.classic_held[name].items()}
        told = " ".join(
            f"{topic.removeprefix(self.group_id + '.')}:{count}" for topic, count in sorted(counts.items())
        )
        return [f"NONE {told or '-'}"]

    def classic_beat(self, words: list[str]) -> list[str]:
        name, options = words[0], _options(words[1:])
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=int(options.get("generation", self.epochs.get(name, 0))),
            member_id=options.get("as", self.classic_ids.get(name, name)),
            group_instance_id=self.instances.get(name),
        )
        return [ErrorCode(self.coordinator.ask(request, 4).error_code).name]

    def classic_leave(self, words: list[str]) -> list[str]:
        name = words[0]
        identity = MemberIdentity(
            member_id=self.classic_ids.get(name, name), group_instance_id=self.instances.get(name)
        )
        response = self.coordinator.ask(LeaveGroupRequest(group_id=self.group_id, members=[identity]), 5)
        self.classic_held.pop(name, None)
        codes = [response.error_code, *(member.error_code for member in response.members)]
        return [" ".join(ErrorCode(code).name for code in codes)]

    # --- what others ask ----------------------------------------------------------------------------------

    def commit(self, words: list[str]) -> list[str]:
        name, options = words[0], _options(words[1:])
        topic, partition = words[-1].split(":")
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=int(options.get("epoch", self.epochs.get(name, -1))),
            member_id="" if name == "-" else self.classic_ids.get(name, name),
            group_instance_id=self.instances.get(name),
            topics=[
                OffsetCommitRequestTopic(
                    name=self._real(topic),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=self._nth(name, topic, partition), committed_offset=1
                        )
                    ],
                )
            ],
        )
        response = self.coordinator.ask(request, int(options.get("version", 9)))
        return [ErrorCode(response.topics[0].partitions[0].error_code).name]

    def _nth(self, name: str, topic: str, which: str) -> int:
        """`first` of what the member has, `lost`: the first that it has not."""
        if which not in ("first", "lost"):
            return int(which)
        topic_id = next(each for each, found in self.topic_names.items() if found == topic)
        has = self.held[name].get(topic_id, [])
        return min(has) if which == "first" else min(set(range(100)) - set(has))

    def _described(self) -> Any:
        [group] = self.coordinator.ask(ConsumerGroupDescribeRequest(group_ids=[self.group_id]), 1).groups
        return group

    def describe(self, words: list[str]) -> list[str]:
        group = self._described()
        if group.error_code:
            return [ErrorCode(group.error_code).name]
        told = [
            f"{group.group_state} epoch={group.group_epoch} assignment={group.assignment_epoch}"
            f" {group.assignor_name}"
        ]
        for member in group.members:
            held, target = (
                self._counted((each.topic_id, each.partitions) for each in assignment.topic_partitions)
                for assignment in (member.assignment, member.target_assignment)
            )
            topics = ",".join(self._short(each) for each in sorted(member.subscribed_topic_names))
            regex = member.subscribed_topic_regex
            kind = {0: "classic", 1: "consumer"}[member.member_type]
            told.append(
                f"{self._called(member.member_id)} {kind} instance={member.instance_id}"
                f" epoch={member.member_epoch} topics={topics} regex={regex and self._short_regex(regex)}"
                f" has={held or '-'} target={target or '-'}"
            )
        return [told[0], *sorted(told[1:])]

    def _called(self, member_id: str) -> str:
        return next((name for name, found in self.classic_ids.items() if found == member_id), member_id)

    def _short(self, topic: str) -> str:
        return topic.removeprefix(self.group_id + ".")

    def _short_regex(self, regex: str) -> str:
        return regex.removeprefix(self.group_id + r"\.")

    # --- the log ------------------------------------------------------------------------------------------

    def log(self, words: list[str]) -> list[str]:
        records = self.coordinator.log(self.group_id)
        new, self.logged = records[self.logged :], len(records)
        told: list[tuple[str, str]] = [self._written(record) for record in new]
        # Records of one kind in a row are those of several members, whose order is nobody's business.
        in_order: list[str] = []
        start = 0
        for position in range(1, len(told) + 1):
            if position == len(told) or told[position][0] != told[start][0]:
                in_order += sorted(f"{kind} {text}".strip() for kind, text in told[start:position])
                start = position
        return in_order

    def _written(self, record: Record) -> tuple[str, str]:
        key: Any
        value: Any
        key, value = record
        kind = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        who = self._called(getattr(key, "member_id", ""))
        if kind == "RegularExpression":
            who = self._short_regex(key.regular_expression)
        if value is None:
            return kind, f"{who} gone".strip()
        if kind == "Metadata":
            return kind, f"epoch={value.epoch}"
        if kind == "MemberMetadata":
            topics = ",".join(self._short(each) for each in sorted(value.subscribed_topic_names))
            regex = self._short_regex(value.subscribed_topic_regex or "")
            classic = value.classic_member_metadata
            protocols = "" if classic is None else " classic " + classic.supported_protocols[0].name
            return kind, (
                f"{who} instance={value.instance_id} topics={topics} regex={regex}"
                f" timeout={value.rebalance_timeout_ms} assignor={value.server_assignor}{protocols}"
            )
        if kind == "TargetAssignmentMetadata":
            return kind, f"epoch={value.assignment_epoch}"
        if kind == "TargetAssignmentMember":
            held = self._counted((each.topic_id, each.partitions) for each in value.topic_partitions)
            return kind, f"{who} {held or '-'}"
        if kind == "CurrentMemberAssignment":
            held, revoking = (
                self._counted((each.topic_id, each.partitions) for each in partitions)
                for partitions in (value.assigned_partitions, value.partitions_pending_revocation)
            )
            since = sorted(
                {epoch for each in value.assigned_partitions for epoch in each.assignment_epochs or []}
            )
            return kind, (
                f"{who} epoch={value.previous_member_epoch}->{value.member_epoch} {STATES[value.state]}"
                f" has={held or '-'} since={since} revoking={revoking or '-'}"
            )
        if kind == "RegularExpression":
            return kind, f"{who} {','.join(self._short(each) for each in sorted(value.topics))}"
        if kind == "GroupMetadata":
            members = ",".join(sorted(self._called(each.member_id) for each in value.members))
            return kind, f"generation={value.generation} {value.protocol_type}/{value.protocol} {members}"
        return kind, ""

    commands: dict[str, Callable[[Storyteller, list[str]], list[str]]] = {
        "topic": topic,
        "grow": grow,
        "join": join,
        "beat": beat,
        "leave": leave,
        "settle": settle,
        "gone": gone,
        "classic-join": classic_join,
        "classic-sync": classic_sync,
        "classic-beat": classic_beat,
        "classic-leave": classic_leave,
        "commit": commit,
        "describe": describe,
        "log": log,
    }


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def stories() -> dict[str, Path]:
    folder = Path(__file__).parents[1] / "unit" / "machines" / "groups_consumer" / "stories"
    return {path.stem: path for path in sorted(folder.glob("*.txt"))}
