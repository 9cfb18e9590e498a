"""TxnOffsetCommit, key 28, versions 0–5: offsets that count when the transaction commits.

From version 5 on (KIP-890) the request itself adds the group's partition to the transaction; before, it
must have been added with AddOffsetsToTxn.
"""

from collections.abc import Callable
from typing import Any

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics
from headrace.node.coordinators.shard import Shard, Ticket
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


class TxnOffsetCommit:
    def __init__(
        self,
        groups: GroupCoordinator,
        topics: ImageTopics,
        transactions: TransactionCoordinator,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._transactions = transactions
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
        code, awaited = self._transactions.admit_commit(request, shard.partition)
        if code is not ErrorCode.NONE:
            return refused(code)
        if awaited is not None:
            ticket = AfterCommit(self._waiting, request, refused, shard, rest)
            awaited.await_commit(request.now, ticket)
            return ticket
        return shard.answer(request, committed(request.now, shard, request, rest), refused)


def committed(
    now: Now, shard: Shard[Any], request: Request, rest: list[TxnOffsetCommitResponseTopic]
) -> Decision:
    decision: Decision = shard.machine.commit_transactional(now, request.body, request.version)
    decision.reply.topics += rest
    return decision


class AfterCommit(Ticket):
    """The offsets are written once the transaction is known to hold their partition, not before."""

    __slots__ = ("_rest", "_shard")

    def __init__(
        self,
        waiting: Waiting,
        request: Request,
        refused: Callable[[ErrorCode], Any],
        shard: Shard[Any],
        rest: list[TxnOffsetCommitResponseTopic],
    ) -> None:
        super().__init__(waiting, request, refused)
        self._shard = shard
        self._rest = rest

    def settle(self, now: Now, reply: Any) -> None:
        """First the coordinator's commit, then, with the reply, the group's own."""
        if reply is not None:
            super().settle(now, reply)
            return
        if self._shard.current is None:
            self.refuse(now, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        decision = committed(now, self._shard, self.request, self._rest)
        decision.answers.append((self, decision.reply))
        if not self._shard.carry_out(now, decision):
            self.refuse(now, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def refused_topic(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )
