"""What becomes of commits and lookups with each error code, as with Java's consumer."""

from __future__ import annotations

from typing import Any

import pytest

from harness.group_stage import A0, BOTH, Stage
from headrace.client.errors import KafkaError
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
    def commit(self, code: ErrorCode, **settings: Any) -> Stage:
        stage = Stage(**settings)
        stage.settled()
        stage.group.commit(stage.now, {A0: CommittedOffset(5)})
        asked, ticket = stage.next(OffsetCommitRequest)
        assert (asked.member_id, asked.generation_id_or_member_epoch) == ("me", 1)
        self.refuse(stage, ticket, code)
        return stage

    def refuse(self, stage: Stage, ticket: int, code: ErrorCode) -> None:
        told = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topic = OffsetCommitResponseTopic(name="a", partitions=[told])
        stage.answer(ticket, OffsetCommitResponse(topics=[topic]))

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
        stage = self.commit(code)
        asked, ticket = stage.next(OffsetCommitRequest)
        assert asked.topics[0].partitions[0].committed_offset == 5
        assert stage.searches == searches
        self.refuse(stage, ticket, ErrorCode.NONE)
        assert [event.error for event in stage.take() if isinstance(event, CommitEnded)] == [None]

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ],
    )
    def test_fails_and_the_membership_goes_on(self, code: ErrorCode) -> None:
        stage = self.commit(code)
        (ended,) = stage.take()
        assert isinstance(ended, CommitEnded)
        assert isinstance(ended.error, KafkaError)
        assert ended.error.name == code.name
        stage.next(HeartbeatRequest)

    @pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
    def test_of_somebody_whom_the_group_forgot(self, code: ErrorCode) -> None:
        events = self.commit(code).take()
        assert Lost(BOTH) in events
        (ended,) = (event for event in events if isinstance(event, CommitEnded))
        assert isinstance(ended.error, KafkaError)
        assert ended.error.name == code.name

    def test_an_older_one_never_follows_a_newer_one(self) -> None:
        stage = self.commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        stage.group.commit(stage.now, {A0: CommittedOffset(6)})
        asked, ticket = stage.next(OffsetCommitRequest)
        assert asked.topics[0].partitions[0].committed_offset == 6
        self.refuse(stage, ticket, ErrorCode.NONE)
        assert [event.number for event in stage.take() if isinstance(event, CommitEnded)] == [1, 2]

    def test_a_rebalance_waits_for_the_commits_of_what_is_given_up(self) -> None:
        """They travel another way than JoinGroup: overtaken by it, they would be refused."""
        stage = Stage()
        stage.settled()
        stage.group.commit(stage.now, {A0: CommittedOffset(5)})
        _, commit = stage.next(OffsetCommitRequest)
        _, heartbeat = stage.next(HeartbeatRequest)
        stage.answer(heartbeat, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        assert stage.take() == [Revoked(BOTH)]
        stage.group.acknowledge(stage.now)
        assert stage.nothing_open()
        self.refuse(stage, commit, ErrorCode.NONE)
        stage.next(JoinGroupRequest)
        assert [type(event) for event in stage.take()] == [CommitEnded]


class TestAutoCommit:
    def save(self, stage: Stage) -> tuple[int, int]:
        asked, ticket = stage.next(OffsetCommitRequest)
        return asked.topics[0].partitions[0].committed_offset, ticket

    def saved(self, stage: Stage, ticket: int, code: int = 0) -> None:
        told = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topic = OffsetCommitResponseTopic(name="a", partitions=[told])
        stage.answer(ticket, OffsetCommitResponse(topics=[topic]))

    def test_what_was_read_meanwhile_is_saved_next(self) -> None:
        stage = Stage(auto_commit_interval_s=5.0)
        stage.settled()
        stage.group.consumed(stage.now, {A0: CommittedOffset(4)})
        offset, ticket = self.save(stage)
        assert offset == 4
        stage.group.consumed(stage.now, {A0: CommittedOffset(9)})
        self.saved(stage, ticket)
        offset, _ = self.save(stage)
        assert offset == 9

    def test_what_is_saved_is_not_saved_again(self) -> None:
        stage = Stage(auto_commit_interval_s=5.0)
        stage.settled()
        stage.group.consumed(stage.now, {A0: CommittedOffset(4)})
        _, ticket = self.save(stage)
        stage.group.consumed(stage.now, {A0: CommittedOffset(4)})
        self.saved(stage, ticket)
        stage.group.consumed(stage.now, {A0: CommittedOffset(4)})
        for _ in range(5):
            _, ticket = stage.next(HeartbeatRequest)
            stage.answer(ticket, HeartbeatResponse())
        assert stage.nothing_open()

    def test_a_failure_is_told_and_tried_again(self) -> None:
        stage = Stage(auto_commit_interval_s=5.0)
        stage.settled()
        stage.group.consumed(stage.now, {A0: CommittedOffset(4)})
        _, ticket = self.save(stage)
        self.saved(stage, ticket, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        (event,) = stage.take()
        assert isinstance(event, AutoCommitFailed)
        assert dict(event.offsets) == {A0: CommittedOffset(4)}
        offset, _ = self.save(stage)
        assert offset == 4


class TestLookup:
    def look(self, code: ErrorCode, *, of_group: bool = False) -> Stage:
        stage = Stage()
        stage.settled()
        stage.group.fetch_committed(stage.now, [A0])
        asked, ticket = stage.next(OffsetFetchRequest)
        assert asked.require_stable
        stage.answer(ticket, self.told(0 if of_group else code, code if of_group else 0))
        return stage

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
        stage = self.look(code, of_group=of_group)
        assert stage.take() == []
        _, ticket = stage.next(OffsetFetchRequest)
        stage.answer(ticket, self.told(0))
        assert stage.take() == [OffsetsFetched(1, {A0: CommittedOffset(9)}, None)]

    @pytest.mark.parametrize(
        ("code", "of_group"),
        [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, False), (ErrorCode.GROUP_AUTHORIZATION_FAILED, True)],
    )
    def test_fails(self, code: ErrorCode, of_group: bool) -> None:
        (event,) = self.look(code, of_group=of_group).take()
        assert isinstance(event, OffsetsFetched)
        assert isinstance(event.error, KafkaError)
        assert event.error.name == code.name


def test_older_brokers_are_asked_in_older_ways() -> None:
    stage = Stage()
    stage.settled()
    stage.group.fetch_committed(stage.now, [A0])
    fetch, _ = stage.next(OffsetFetchRequest, version=5)
    assert (fetch.group_id, fetch.require_stable) == ("g", False)
    stage.group.leave(stage.now)
    stage.take()
    stage.group.acknowledge(stage.now)
    leave, _ = stage.next(LeaveGroupRequest, version=2)
    assert (leave.member_id, leave.members) == ("me", [])
