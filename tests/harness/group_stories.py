"""Stories about one group: who asks for what, and what was answered to whom, line by line.

    a join 9 protocols=range,sticky      JoinGroup 9 of the client a
      a: MEMBER_ID_REQUIRED a1           the answer; a1 is the first member id that a was given
    a join 9                             again, with what a knows by now: its member id
    wait 500                             time passes, in milliseconds
      a: generation=1 consumer/range leader=a1 member=a1 members=a1:meta
    a sync 5 a1=x b1=y                   SyncGroup 5; a leader hands in shares
    a heartbeat 4                        Heartbeat 4; also `leave`, `commit`, `fetch`, `describe`, `list`,
                                         `delete`, `forget` (OffsetDelete), `txn` (TxnOffsetCommit)
    a end commit                         the end of its transaction
    a restart                            it forgets its member id and generation
    log                                  what was written to `__consumer_offsets` since the last `log`

Words with = change what the client would say by itself: as=b1 (a member id, `as=` for none), instance=i,
gen=3, session=, rebalance=, type=, meta=, topics=t,u (a consumer's subscription). Settings of the coordinator
are those of `SETTINGS`. The same story is told to the machine alone and to brokers over sockets; what is
written below a line was recorded from Kafka 4.3.1.
"""

from __future__ import annotations

from typing import Any, Protocol

from harness.stories import retold
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import GroupMetadataKey, OffsetCommitKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.protocol.notation import Request
from headrace.protocol.versioned import encode_versioned

# Short enough to be waited for, long enough for a broker's answers to be told apart.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "1500",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "3",
    "offset.metadata.max.bytes": "20",
}
SESSION_MS, REBALANCE_MS = 8000, 9000
STEP_MS = 250  # how long every request takes: after this long without an answer there is none to come
FIRST_VERSION_OF_MANY = 3  # of LeaveGroup
Answer = tuple[str, Any]  # the client, and the response it got


class Coordinator(Protocol):
    """Whoever is told the story."""

    def ask(self, client: str, request: Request, version: int) -> list[Answer]:
        """Sends, and prints all answers that came, to anybody."""
        ...

    def wait(self, milliseconds: int) -> list[Answer]: ...

    def producer(self, client: str) -> tuple[int, int]:
        """Id and epoch of the client's transactional producer, which has the group in its transaction."""
        ...

    def end_transaction(self, client: str, is_commit: bool) -> None: ...

    def log(self, group_id: str) -> list[Record]:
        """All that was written about the group, in order."""
        ...


class Client:
    """What a client remembers."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.instance_id: str | None = None
        self.protocol = "consumer", "range"  # type and name
        self.ids = 0  # member ids that it was given


class Storyteller:
    def __init__(self, coordinator: Coordinator, group_id: str) -> None:
        self.coordinator = coordinator
        self.group_id = group_id
        self.clients: dict[str, Client] = {}
        self.names: dict[str, str] = {"": "-"}  # of member ids
        self.logged = 0

    def tell(self, story: str) -> str:
        return retold(story, self._do)

    def _do(self, words: list[str]) -> list[str]:
        if words[0] == "wait":
            return self._told(self.coordinator.wait(int(words[1])))
        if words[0] == "log":
            return self._log()
        name, verb, *rest = words
        client = self.clients.setdefault(name, Client())
        if verb == "restart":
            self.clients[name].member_id, self.clients[name].generation = "", -1
            return []
        if verb == "end":
            self.coordinator.end_transaction(name, rest[0] == "commit")
            return []
        version, options, plain = int(rest[0]), {}, []
        for word in rest[1:]:
            key, _, value = word.partition("=")
            if key in OPTIONS:
                options[key] = value
            else:
                plain.append((key, value))
        request = getattr(self, f"_{verb}")(client, name, version, options, plain)
        return self._told(self.coordinator.ask(name, request, version))

    def _id(self, client: Client, options: dict[str, str]) -> str:
        name = options.get("as")
        if name is None:
            return client.member_id
        return "" if name == "" else self._called(name)

    def _called(self, name: str) -> str:
        return next((member_id for member_id, known in self.names.items() if known == name), name)

    # --- requests -------------------------------------------------------------------------------------------

    def _join(
        self, client: Client, name: str, version: int, options: dict[str, str], _: list[tuple[str, str]]
    ) -> Request:
        client.instance_id = options.get("instance", client.instance_id)
        metadata = options.get("meta", "meta").encode()
        if "topics" in options:
            subscription = ConsumerProtocolSubscription(topics=options["topics"].split(","))
            metadata = encode_versioned(subscription, 0)
        protocols = [each for each in options.get("protocols", "range").split(",") if each]
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=int(options.get("session", SESSION_MS)),
            rebalance_timeout_ms=int(options.get("rebalance", REBALANCE_MS)),
            member_id=self._id(client, options),
            group_instance_id=client.instance_id,
            protocol_type=options.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=each, metadata=metadata) for each in protocols],
        )

    def _sync(
        self, client: Client, _: str, version: int, options: dict[str, str], plain: list[tuple[str, str]]
    ) -> Request:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=int(options.get("gen", client.generation)),
            member_id=self._id(client, options),
            group_instance_id=options.get("instance", client.instance_id),
            protocol_type=options.get("type", client.protocol[0]),
            protocol_name=options.get("protocols", client.protocol[1]),
            assignments=[
                SyncGroupRequestAssignment(member_id=self._called(member), assignment=share.encode())
                for member, share in plain
            ],
        )

    def _heartbeat(
        self, client: Client, _: str, version: int, options: dict[str, str], __: list[tuple[str, str]]
    ) -> Request:
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=int(options.get("gen", client.generation)),
            member_id=self._id(client, options),
            group_instance_id=options.get("instance", client.instance_id),
        )

    def _leave(
        self, client: Client, _: str, version: int, options: dict[str, str], plain: list[tuple[str, str]]
    ) -> Request:
        """`a leave 5` for itself, `a leave 5 b1 -/i` for others: a member id, / and an instance id."""
        if version < FIRST_VERSION_OF_MANY:
            return LeaveGroupRequest(group_id=self.group_id, member_id=self._id(client, options))
        if plain:
            named = [word.partition("/") for word, _ in plain]
            members = [
                MemberIdentity(
                    member_id="" if member == "-" else self._called(member),
                    group_instance_id=instance or None,
                )
                for member, _, instance in named
            ]
        else:
            members = [
                MemberIdentity(member_id=self._id(client, options), group_instance_id=client.instance_id)
            ]
        return LeaveGroupRequest(group_id=self.group_id, members=members)

    def _commit(
        self, client: Client, _: str, version: int, options: dict[str, str], plain: list[tuple[str, str]]
    ) -> Request:
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=int(options.get("gen", client.generation)),
            member_id=self._id(client, options),
            group_instance_id=options.get("instance", client.instance_id),
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=int(offset),
                            committed_metadata=options.get("meta"),
                        )
                    ],
                )
                for topic, partition, offset in map(_place, plain)
            ],
        )

    def _txn(
        self, client: Client, name: str, version: int, options: dict[str, str], plain: list[tuple[str, str]]
    ) -> Request:
        producer_id, epoch = self.coordinator.producer(name)
        return TxnOffsetCommitRequest(
            transactional_id=f"{self.group_id}-{name}",
            group_id=self.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=int(options.get("gen", client.generation)),
            member_id=self._id(client, options),
            group_instance_id=client.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=int(offset),
                            committed_metadata=options.get("meta"),
                        )
                    ],
                )
                for topic, partition, offset in map(_place, plain)
            ],
        )

    def _fetch(
        self, client: Client, _: str, version: int, options: dict[str, str], plain: list[tuple[str, str]]
    ) -> Request:
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
            for topic, partition, _ in map(_place, plain)
        ]
        group = OffsetFetchRequestGroup(
            group_id=self.group_id,
            topics=topics or None,
            member_id=self._called(options["as"]) if "as" in options else None,
            member_epoch=int(options.get("gen", -1)),
        )
        return OffsetFetchRequest(groups=[group], require_stable="stable" in options)

    def _forget(
        self, client: Client, _: str, version: int, options: dict[str, str], plain: list[tuple[str, str]]
    ) -> Request:
        return OffsetDeleteRequest(
            group_id=self.group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                )
                for topic, partition, _ in map(_place, plain)
            ],
        )

    def _describe(self, *_: Any) -> Request:
        return DescribeGroupsRequest(groups=[self.group_id])

    def _list(
        self, client: Client, _: str, version: int, options: dict[str, str], plain: list[tuple[str, str]]
    ) -> Request:
        return ListGroupsRequest(
            states_filter=[each for each in options.get("states", "").split(",") if each],
            types_filter=[each for each in options.get("type", "").split(",") if each],
        )

    def _delete(self, *_: Any) -> Request:
        return DeleteGroupsRequest(groups_names=[self.group_id])

    # --- answers --------------------------------------------------------------------------------------------

    def _told(self, answers: list[Answer]) -> list[str]:
        """Clients are answered at the same time: in which order they hear of it is nobody's promise."""
        lines = []
        for name, response in sorted(answers, key=lambda answer: answer[0]):
            kind = type(response).__name__.removesuffix("Response")
            if kind == "JoinGroup":
                self._learn(name, response)
        for name, response in sorted(answers, key=lambda answer: answer[0]):
            kind = type(response).__name__.removesuffix("Response")
            lines.append(f"{name}: {getattr(self, f'_told_{kind}')(response)}")
        return lines

    def _learn(self, name: str, response: Any) -> None:
        client = self.clients[name]
        if response.member_id and response.member_id not in self.names:
            client.ids += 1
            self.names[response.member_id] = f"{name}{client.ids}"
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = response.member_id
        if response.error_code == ErrorCode.NONE:
            client.generation = response.generation_id
            client.protocol = response.protocol_type or client.protocol[0], response.protocol_name

    def _name(self, member_id: str | None) -> str:
        return "-" if member_id is None else self.names.get(member_id, member_id)

    def _told_JoinGroup(self, response: Any) -> str:
        if response.error_code:
            return f"{_error(response)} {self._name(response.member_id)}"
        words = [
            f"generation={response.generation_id} {response.protocol_type}/{response.protocol_name}",
            f"leader={self._name(response.leader)} member={self._name(response.member_id)}",
        ]
        members = sorted(f"{self._name(each.member_id)}:{_text(each.metadata)}" for each in response.members)
        if members:
            words.append(f"members={','.join(members)}")
        if response.skip_assignment:
            words.append("skip")
        return " ".join(words)

    def _told_SyncGroup(self, response: Any) -> str:
        if response.error_code:
            return _error(response)
        return f"{response.protocol_type}/{response.protocol_name} share={_text(response.assignment)}"

    def _told_Heartbeat(self, response: Any) -> str:
        return _error(response)

    def _told_LeaveGroup(self, response: Any) -> str:
        members = [
            f"{self._name(each.member_id)}/{each.group_instance_id or '-'}={_error(each)}"
            for each in response.members
        ]
        return " ".join([_error(response), *members])

    def _told_OffsetCommit(self, response: Any) -> str:
        errors = sorted(
            f"{topic.name}-{each.partition_index}={_error(each)}"
            for topic in response.topics
            for each in topic.partitions
        )
        return " ".join(errors)

    _told_TxnOffsetCommit = _told_OffsetCommit

    def _told_OffsetFetch(self, response: Any) -> str:
        (group,) = response.groups
        if group.error_code:
            return _error(group)
        found = sorted(
            f"{topic.name}-{each.partition_index}="
            + (_error(each) if each.error_code else f"{each.committed_offset}:{each.metadata}")
            for topic in group.topics
            for each in topic.partitions
        )
        return " ".join(found) or "nothing"

    def _told_OffsetDelete(self, response: Any) -> str:
        if response.error_code:
            return _error(response)
        return self._told_OffsetCommit(response)

    def _told_DescribeGroups(self, response: Any) -> str:
        (group,) = response.groups
        members = sorted(
            f"{self._name(each.member_id)}/{each.group_instance_id or '-'}"
            f":{_text(each.member_metadata)}:{_text(each.member_assignment)}"
            for each in group.members
        )
        return " ".join(
            [_error(group), f"{group.group_state} {group.protocol_type}/{group.protocol_data}", *members]
        )

    def _told_ListGroups(self, response: Any) -> str:
        for group in response.groups:
            if group.group_id == self.group_id:
                return f"{group.group_state} {group.group_type} {group.protocol_type or '-'}"
        return "nothing"

    def _told_DeleteGroups(self, response: Any) -> str:
        return _error(response.results[0])

    def _log(self) -> list[str]:
        records = self.coordinator.log(self.group_id)
        fresh, self.logged = records[self.logged :], len(records)
        return [self._told_record(record) for record in fresh]

    def _told_record(self, record: Record) -> str:
        key: Any = record.key
        value: Any = record.value
        if isinstance(key, OffsetCommitKey):
            place = f"{key.topic}-{key.partition}"
            return f"{place} gone" if value is None else f"{place}={value.offset}:{value.metadata}"
        assert isinstance(key, GroupMetadataKey)
        if value is None:
            return "group gone"
        members = sorted(
            f"{self._name(each.member_id)}/{each.group_instance_id or '-'}"
            f":{_text(each.subscription)}:{_text(each.assignment)}"
            for each in value.members
        )
        head = f"group generation={value.generation} {value.protocol_type or '-'}/{value.protocol or '-'}"
        return " ".join([head, f"leader={self._name(value.leader)}", *members])


OPTIONS = {
    "as",
    "gen",
    "instance",
    "meta",
    "protocols",
    "rebalance",
    "session",
    "stable",
    "states",
    "topics",
    "type",
}


def _place(word: tuple[str, str]) -> tuple[str, int, str]:
    topic, partition = word[0].rsplit("-", 1)
    return topic, int(partition), word[1]


def _error(response: Any) -> str:
    return ErrorCode(response.error_code).name


def _text(content: bytes) -> str:
    """Subscriptions are bytes, not text: their topics are shown."""
    return "".join(chr(byte) for byte in content if chr(byte).isascii() and chr(byte).isalnum())
