"""TxnOffsetCommit, key 28, versions 0–5: offsets that count when the transaction commits.

From version 5 on (KIP-890) the request itself adds the group's partition to the transaction; before, it
must have been added with AddOffsetsToTxn.
"""

from collections.abc import Callable
from typing import Any

from headrace.base.time import Now
from headrace.machines.coordination import Decision, Topics, Writer
from headrace.machines.groups.group import Committer
from headrace.machines.groups.groups import Groups
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics
from headrace.node.coordinators.permits import CommitPermit, Permits
from headrace.node.coordinators.shard import Shard, Ticket
from headrace.node.error_codes import Refused
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.coordinator_records.offset_commits import TopicColumns
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)
from headrace.protocol.notation import ZERO_UUID


class TxnOffsetCommit:
    def __init__(
        self,
        groups: GroupCoordinator,
        topics: ImageTopics,
        permits: Permits,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._permits = permits
        self._access = access
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: TxnOffsetCommitRequest = request.body
        asked = body.topics

        def refused(code: ErrorCode) -> TxnOffsetCommitResponse:
            return TxnOffsetCommitResponse(topics=[refused_topic(topic, code) for topic in asked])

        if not self._access.allows(
            request, Operation.WRITE, Resource.TRANSACTIONAL_ID, body.transactional_id
        ):
            return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        shard = self._groups.asked(request, Operation.READ, body.group_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        rest: list[TxnOffsetCommitResponseTopic] = []
        body.topics = []
        for topic in asked:
            if not self._access.allows(request, Operation.READ, Resource.TOPIC, topic.name):
                rest.append(refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif self._topics.partition_count(topic.name) is None:
                rest.append(refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                body.topics.append(topic)
        if not body.topics:
            return TxnOffsetCommitResponse(topics=rest)
        topics = body.topics

        def respond(codes: list[ErrorCode]) -> TxnOffsetCommitResponse:
            return TxnOffsetCommitResponse(topics=committed_topics(topics, codes) + rest)

        if body.producer_id < 0 or body.producer_epoch < 0:
            return refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        permit = self._permits.to_commit(request, shard.partition)
        try:
            awaited = permit.ask(request.now)
        except Refused as refusal:
            return refused(refusal.code)
        if awaited is not None:
            ticket = Permitted(self._waiting, request, respond, refused, shard, permit, self._commit)
            awaited.await_commit(request.now, ticket)
            return ticket
        return shard.answer(request, self._commit(request.now, shard, body), respond, refused)

    def _commit(self, now: Now, shard: Shard[Groups], body: TxnOffsetCommitRequest) -> Decision | ErrorCode:
        writer = Writer(body.producer_id, body.producer_epoch)
        offsets = offsets_of(body, self._topics)
        decision = shard.machine.commit_transactional(now, committer_of(body), writer, offsets)
        return shard.if_writable(now, decision)


def committer_of(body: TxnOffsetCommitRequest) -> Committer:
    return Committer(body.group_id, body.member_id, body.group_instance_id, body.generation_id)


def offsets_of(body: TxnOffsetCommitRequest, topics: Topics) -> list[TopicColumns]:
    columns: list[TopicColumns] = []
    for topic in body.topics:
        partitions: Any = topic.partitions  # columns
        columns.append(TopicColumns(topic.name, topics.id_of(topic.name) or ZERO_UUID, *partitions))
    return columns


def committed_topics(
    topics: list[TxnOffsetCommitRequestTopic], codes: list[ErrorCode]
) -> list[TxnOffsetCommitResponseTopic]:
    """With an error code for each partition of the topics, in their order."""
    made = []
    start = 0
    for topic in topics:
        partitions: Any = topic.partitions  # columns
        stop = start + len(partitions[0])
        made.append(answered_topic(topic, partitions[0], codes[start:stop]))
        start = stop
    return made


class Permitted(Ticket):
    """The offsets are written once the transaction is known to hold their partition, not before."""

    __slots__ = ("_body", "_commit", "_permit", "_shard")

    def __init__(
        self,
        waiting: Waiting,
        request: Request,
        respond: Callable[[Any], Any],
        refused: Callable[[ErrorCode], Any],
        shard: Shard[Groups],
        permit: CommitPermit,
        commit: Callable[[Now, Shard[Groups], TxnOffsetCommitRequest], Decision | ErrorCode],
    ) -> None:
        self._body: TxnOffsetCommitRequest = request.body
        super().__init__(waiting, request, respond, refused)
        self._shard = shard
        self._permit = permit
        self._commit = commit

    def settle(self, now: Now, reply: Any) -> None:
        """First the transaction's coordinator has its say, then, with the reply, the group's own."""
        if reply is not None:
            super().settle(now, reply)
            return
        shard = self._shard
        if shard.current is None or not shard.is_led:
            self.refuse(now, ErrorCode.NOT_COORDINATOR if not shard.is_led else shard.refusal)
            return
        try:
            awaited = self._permit.ask(now)
        except Refused as refusal:
            self.refuse(now, refusal.code)
            return
        if awaited is not None:
            awaited.await_commit(now, self)
            return
        self._permit.drop()
        decision = self._commit(now, shard, self._body)
        if isinstance(decision, ErrorCode):
            self.refuse(now, decision)
            return
        decision.answers.append((self, decision.reply))
        if code := shard.write(now, decision):
            self.refuse(now, code)

    def refuse(self, now: Now, code: ErrorCode) -> None:
        self._permit.drop()
        super().refuse(now, code)


def refused_topic(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    partitions: Any = topic.partitions  # columns
    return answered_topic(topic, partitions[0], [code] * len(partitions[0]))


def answered_topic(
    topic: TxnOffsetCommitRequestTopic, partitions: list[int], codes: list[ErrorCode]
) -> TxnOffsetCommitResponseTopic:
    columns: Any = (partitions, codes)
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=columns)
