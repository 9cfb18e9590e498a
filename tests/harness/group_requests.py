"""Requests to the machine of groups, translated as the handlers do it, without a node around it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from headrace.base.time import Now
from headrace.machines.coordination import Caller, Decision, Writer
from headrace.machines.groups.classic.requests import Joined, Synced
from headrace.machines.groups.groups import Groups
from headrace.node.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from headrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headrace.protocol.messages.describe_groups import DescribeGroupsResponse
from headrace.protocol.messages.list_groups import ListGroupsResponse
from headrace.protocol.messages.offset_commit import OffsetCommitResponse, OffsetCommitResponsePartition
from headrace.protocol.messages.offset_fetch import OffsetFetchResponse
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
)
from headrace.protocol.notation import Request


class Asked:
    """One request to a machine; `apply` writes down what it decides, and returns the reply."""

    def __init__(
        self,
        machine: Groups,
        now: Now,
        apply: Callable[[Decision], Any],
        version: int,
        caller: Caller,
        ticket: Any,
    ) -> None:
        self.machine = machine
        self.now = now
        self.apply = apply
        self.version = version
        self.caller = caller
        self.ticket = ticket

    def response(self, request: Request) -> Any:
        """None if it comes later, through the ticket."""
        return getattr(self, f"_{type(request).__name__.removesuffix('Request')}")(request)

    def _JoinGroup(self, request: Any) -> Any:
        value = join_group.asked(request, self.version)
        return response_of(self.apply(self.machine.join(self.now, value, self.caller, self.ticket)))

    def _SyncGroup(self, request: Any) -> Any:
        if not sync_group.names_what_it_must(request, self.version):
            return sync_group.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        value = sync_group.asked(request)
        return response_of(self.apply(self.machine.sync(self.now, value, self.ticket)))

    def _Heartbeat(self, request: Any) -> Any:
        decision = self.machine.heartbeat(
            self.now, request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )
        return heartbeat.respond(self.apply(decision))

    def _LeaveGroup(self, request: Any) -> Any:
        leaving = leave_group.asked(request, self.version)
        left = self.apply(self.machine.leave(self.now, request.group_id, leaving))
        return leave_group.respond(left, request, self.version)

    def _ConsumerGroupHeartbeat(self, request: Any) -> Any:
        value = consumer_group_heartbeat.asked(request, self.version)
        result = self.apply(self.machine.consumer_heartbeat(self.now, value, self.caller))
        return consumer_group_heartbeat.respond(result)

    def _ConsumerGroupDescribe(self, request: Any) -> Any:
        groups = [
            consumer_group_describe.respond(each, self.machine.describe_consumer(self.now, each))
            for each in request.group_ids
        ]
        return ConsumerGroupDescribeResponse(groups=groups)

    def _OffsetCommit(self, request: Any) -> Any:
        request = in_columns(request)
        committer = offset_commit.committer_of(request, self.version)
        offsets = offset_commit.offsets_of(request, self.machine.topics)
        retention_ms = request.retention_time_ms
        codes = self.apply(self.machine.commit_offsets(self.now, committer, offsets, retention_ms))
        topics = offset_commit.committed_topics(request.topics, codes)
        return in_objects(OffsetCommitResponse(topics=topics), OffsetCommitResponsePartition)

    def _TxnOffsetCommit(self, request: Any) -> Any:
        request = in_columns(request)
        writer = Writer(request.producer_id, request.producer_epoch)
        offsets = txn_offset_commit.offsets_of(request, self.machine.topics)
        committer = txn_offset_commit.committer_of(request)
        codes = self.apply(self.machine.commit_transactional(self.now, committer, writer, offsets))
        topics = txn_offset_commit.committed_topics(request.topics, codes)
        return in_objects(TxnOffsetCommitResponse(topics=topics), TxnOffsetCommitResponsePartition)

    def _OffsetFetch(self, request: Any) -> Any:
        groups = []
        for each in request.groups:
            fetched = self.machine.fetch_offsets(
                self.now,
                each.group_id,
                offset_fetch.asked(each),
                member_id=each.member_id,
                epoch=each.member_epoch,
                require_stable=request.require_stable,
            )
            groups.append(offset_fetch.respond(each, fetched))
        return OffsetFetchResponse(groups=groups)

    def _OffsetDelete(self, request: Any) -> Any:
        topics = offset_delete.asked(request.topics)
        reply = self.apply(self.machine.delete_offsets(self.now, request.group_id, topics))
        return offset_delete.respond(request.topics, reply)

    def _DescribeGroups(self, request: Any) -> Any:
        groups = [
            describe_groups.respond(each, self.machine.describe_classic(self.now, each), self.version)
            for each in request.groups
        ]
        return DescribeGroupsResponse(groups=groups)

    def _ListGroups(self, request: Any) -> Any:
        listed = self.machine.list_groups(request.states_filter, request.types_filter)
        return ListGroupsResponse(groups=[list_groups.respond(group) for group in listed])

    def _DeleteGroups(self, request: Any) -> Any:
        errors: dict[str, ErrorCode] = {
            name: self.apply(self.machine.delete_group(self.now, name)) for name in request.groups_names
        }
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=error) for name, error in errors.items()]
        )


def response_of(answer: Joined | Synced | None) -> Any:
    """Of a join or a sync; None if it is not answered yet."""
    if isinstance(answer, Joined):
        return join_group.respond(answer)
    if isinstance(answer, Synced):
        return sync_group.respond(answer)
    assert answer is None
    return None


def in_columns(request: Any) -> Any:
    """The commit as its handler gets it: partitions in columns."""
    asked = copy(request)
    asked.topics = []
    for each in request.topics:
        topic = copy(each)
        names = ("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata")
        topic.partitions = tuple([getattr(one, name) for one in each.partitions] for name in names)
        asked.topics.append(topic)
    return asked


def in_objects(response: Any, kind: type[Any]) -> Any:
    """What a client gets of its answer."""
    for topic in response.topics:
        topic.partitions = [
            kind(partition_index=index, error_code=code) for index, code in zip(*topic.partitions)
        ]
    return response
