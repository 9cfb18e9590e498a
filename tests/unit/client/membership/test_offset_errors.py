"""What becomes of commits and lookups with each error code, as with Java's consumer."""

from __future__ import annotations

from typing import Any

import pytest

from harness.scripted_member import A0, BOTH, ScriptedMember
from headrace.base.time import Instant
from headrace.client.errors import KafkaError, TimedOut
from headrace.client.membership.events import (
    AutoCommitFailed,
    CommitEnded,
    CommittedOffset,
    Lost,
    OffsetsFetched,
    Revoked,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


class TestCommit:
    def commit(self, code: ErrorCode, **settings: Any) -> ScriptedMember:
        member = ScriptedMember(**settings)
        member.settled()
        member.group.commit(member.now, {A0: CommittedOffset(5)})
        asked, ticket = member.next(OffsetCommitRequest)
        assert (asked.member_id, asked.generation_id_or_member_epoch) == ("me", 1)
        self.refuse(member, ticket, code)
        return member

    def refuse(self, member: ScriptedMember, ticket: int, code: ErrorCode) -> None:
        told = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topic = OffsetCommitResponseTopic(name="a", partitions=[told])
        member.answer(ticket, OffsetCommitResponse(topics=[topic]))

    @pytest.mark.parametrize(
        ("code", "searches"),
        [
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1),
            (ErrorCode.REBALANCE_IN_PROGRESS, 1),
            (ErrorCode.NOT_COORDINATOR, 2),
            (ErrorCode.REQUEST_TIMED_OUT, 2),
        ],
    )
    def test_is_tried_again(self, code: ErrorCode, searches: int) -> None:
        member = self.commit(code)
        asked, ticket = member.next(OffsetCommitRequest)
        assert asked.topics[0].partitions[0].committed_offset == 5
        assert member.searches == searches
        self.refuse(member, ticket, ErrorCode.NONE)
        assert [event.error for event in member.take() if isinstance(event, CommitEnded)] == [None]

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ],
    )
    def test_fails_and_the_membership_goes_on(self, code: ErrorCode) -> None:
        member = self.commit(code)
        (ended,) = member.take()
        assert isinstance(ended, CommitEnded)
        assert isinstance(ended.error, KafkaError)
        assert ended.error.name == code.name
        member.next(HeartbeatRequest)

    @pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
    def test_of_somebody_whom_the_group_forgot(self, code: ErrorCode) -> None:
        events = self.commit(code).take()
        assert Lost(BOTH) in events
        (ended,) = (event for event in events if isinstance(event, CommitEnded))
        assert isinstance(ended.error, KafkaError)
        assert ended.error.name == code.name

    def test_an_older_one_never_follows_a_newer_one(self) -> None:
        member = self.commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        member.group.commit(member.now, {A0: CommittedOffset(6)})
        asked, ticket = member.next(OffsetCommitRequest)
        assert asked.topics[0].partitions[0].committed_offset == 6
        self.refuse(member, ticket, ErrorCode.NONE)
        assert [event.number for event in member.take() if isinstance(event, CommitEnded)] == [1, 2]

    def test_a_rebalance_waits_for_the_commits_of_what_is_given_up(self) -> None:
        """They travel another way than JoinGroup: overtaken by it, they would be refused."""
        member = ScriptedMember()
        member.settled()
        member.group.commit(member.now, {A0: CommittedOffset(5)})
        _, commit = member.next(OffsetCommitRequest)
        _, heartbeat = member.next(HeartbeatRequest)
        member.answer(heartbeat, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        assert member.take() == [Revoked(BOTH)]
        member.group.acknowledge(member.now)
        assert member.nothing_open()
        self.refuse(member, commit, ErrorCode.NONE)
        member.next(JoinGroupRequest)
        assert [type(event) for event in member.take()] == [CommitEnded]


class TestAutoCommit:
    def save(self, member: ScriptedMember) -> tuple[int, int]:
        asked, ticket = member.next(OffsetCommitRequest)
        return asked.topics[0].partitions[0].committed_offset, ticket

    def saved(self, member: ScriptedMember, ticket: int, code: int = 0) -> None:
        told = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topic = OffsetCommitResponseTopic(name="a", partitions=[told])
        member.answer(ticket, OffsetCommitResponse(topics=[topic]))

    def test_what_was_read_meanwhile_is_saved_next(self) -> None:
        member = ScriptedMember(auto_commit_interval_s=5.0)
        member.settled()
        member.group.consumed(member.now, {A0: CommittedOffset(4)})
        offset, ticket = self.save(member)
        assert offset == 4
        member.group.consumed(member.now, {A0: CommittedOffset(9)})
        self.saved(member, ticket)
        offset, _ = self.save(member)
        assert offset == 9

    def test_what_is_saved_is_not_saved_again(self) -> None:
        member = ScriptedMember(auto_commit_interval_s=5.0)
        member.settled()
        member.group.consumed(member.now, {A0: CommittedOffset(4)})
        _, ticket = self.save(member)
        member.group.consumed(member.now, {A0: CommittedOffset(4)})
        self.saved(member, ticket)
        member.group.consumed(member.now, {A0: CommittedOffset(4)})
        for _ in range(5):
            _, ticket = member.next(HeartbeatRequest)
            member.answer(ticket, HeartbeatResponse())
        assert member.nothing_open()

    def test_a_failure_is_told_and_tried_again(self) -> None:
        member = ScriptedMember(auto_commit_interval_s=5.0)
        member.settled()
        member.group.consumed(member.now, {A0: CommittedOffset(4)})
        _, ticket = self.save(member)
        self.saved(member, ticket, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        (event,) = member.take()
        assert isinstance(event, AutoCommitFailed)
        assert dict(event.offsets) == {A0: CommittedOffset(4)}
        offset, _ = self.save(member)
        assert offset == 4


class TestLookup:
    def look(self, code: ErrorCode, *, of_group: bool = False) -> ScriptedMember:
        member = ScriptedMember()
        member.settled()
        member.group.fetch_committed(member.now, [A0])
        asked, ticket = member.next(OffsetFetchRequest)
        assert asked.require_stable
        member.answer(ticket, self.told(0 if of_group else code, code if of_group else 0))
        return member

    def told(self, of_partition: int, of_group: int = 0, offset: int = 9) -> OffsetFetchResponse:
        found = OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=offset, metadata="", error_code=of_partition
        )
        topics = [OffsetFetchResponseTopics(name="a", partitions=[found])]
        group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=of_group)
        return OffsetFetchResponse(groups=[group])

    @pytest.mark.parametrize(
        ("code", "of_group"),
        [
            (ErrorCode.UNSTABLE_OFFSET_COMMIT, False),
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
            (ErrorCode.NOT_COORDINATOR, True),
        ],
    )
    def test_is_tried_again(self, code: ErrorCode, of_group: bool) -> None:
        member = self.look(code, of_group=of_group)
        assert member.take() == []
        _, ticket = member.next(OffsetFetchRequest)
        member.answer(ticket, self.told(0))
        assert member.take() == [OffsetsFetched(1, {A0: CommittedOffset(9)}, None)]

    @pytest.mark.parametrize(
        ("code", "of_group"),
        [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, False), (ErrorCode.GROUP_AUTHORIZATION_FAILED, True)],
    )
    def test_fails(self, code: ErrorCode, of_group: bool) -> None:
        (event,) = self.look(code, of_group=of_group).take()
        assert isinstance(event, OffsetsFetched)
        assert isinstance(event.error, KafkaError)
        assert event.error.name == code.name

    @pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
    def test_that_is_late_may_be_made_again_although_its_last_error_may_not(self, code: ErrorCode) -> None:
        member = self.look(code, of_group=True)
        member.cluster.now = Instant(member.now + 3600)
        (event,) = [one for one in member.take() if isinstance(one, OffsetsFetched)]
        assert isinstance(event.error, TimedOut)
        assert event.error.is_retriable
        assert isinstance(event.error.__cause__, KafkaError)
        assert event.error.__cause__.name == code.name


def test_older_brokers_are_asked_in_older_ways() -> None:
    member = ScriptedMember()
    member.settled()
    member.group.fetch_committed(member.now, [A0])
    fetch, _ = member.next(OffsetFetchRequest, version=5)
    assert (fetch.group_id, fetch.require_stable) == ("g", False)
    member.group.leave(member.now)
    member.take()
    member.group.acknowledge(member.now)
    leave, _ = member.next(LeaveGroupRequest, version=2)
    assert (leave.member_id, leave.members) == ("me", [])
