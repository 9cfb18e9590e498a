"""Reads one topic in a group and writes each value into another, exactly once: consume, transform, produce.

It dies, and comes back as another member with the same transactional id; it sleeps for longer than its
session, and wakes up as a zombie; it aborts now and then. Only what its transactions commit may be seen.
"""

from collections.abc import Callable, Iterator
from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.records.builder import build_batch
from headrace.simulator.clients.member import (
    GROUP,
    PASSING,
    SESSION_TIMEOUT_MS,
    TRANSACTION,
    Membership,
    Step,
    found,
)
from headrace.simulator.clients.polling import READ_COMMITTED, polled
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import (
    CommitOfTransactionAsked,
    EndAsked,
    PartitionKey,
    TransactionBegun,
    TransactionEnded,
)
from headrace.simulator.host import Host

PRODUCE, INIT_PRODUCER_ID = 0, 22
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
TRANSACTION_TIMEOUT_MS = 3_000
TRIES = (6, 40)  # of one request, before a copier gives up its life: some are more patient


class LifeEnded(Exception):
    """This copier knows no way on: it starts over, as a new process would."""


class Copier(Script):
    def __init__(
        self,
        host: Host,
        name: str,
        source: Topic,
        target: Topic,
        membership: type[Membership],
        *,
        transaction_version: int,
    ) -> None:
        super().__init__(host, name)
        self._source = source
        self._target = target
        self._is_second = transaction_version >= 2
        self._member = membership(self, "copy", source)
        self._tries = host.world.rng.choice(TRIES)
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[int, int] = {}  # by partition of the target
        self._written: dict[int, int] = {}  # the same: first offset of the transaction that is open
        self._begun = self.world.now()  # and when it was
        self._number = 0  # of its transactions, over all its lives
        self.tell: Callable[[Ask], None] = lambda asked: None  # somebody who listens to the wire
        self.is_careful = False  # lives on from now, and aborts nothing

    def story(self) -> Story:
        while True:
            try:
                yield from found(GROUP, self._member.group)
                yield from found(TRANSACTION, self.name)
                yield from self._initialized()
                while True:
                    yield from self._member.joined()
                    yield from self._copied_for_a_generation()
            except LifeEnded:
                self._member.forget()
                yield Pause(self.world.between(0.1, 1.0))

    # --- one generation ------------------------------------------------------------------------------------

    def _copied_for_a_generation(self) -> Step:
        positions: dict[PartitionKey, int] | None = None
        while True:
            yield from self._mishaps()
            if not (yield from self._member.alive()):
                return
            if not self._member.partitions:
                yield Pause(0.3)
                continue
            if positions is None:
                positions = yield from self._member.committed()
                if positions is None:
                    yield Pause(0.1)
                    continue
            poll = yield from polled(self._source, positions)
            rows, ends = [value for rows in poll.rows.values() for _, value in rows], poll.ends
            if rows:
                is_commit = self.is_careful or not self.world.chance(0.15)
                yield from self._mishaps()
                if (yield from self._transaction(rows, ends, is_commit=is_commit)):
                    positions = ends
                    continue
                positions = None  # what counts is what the group has
            else:
                positions = ends
            yield Pause(self.world.between(0.02, 0.2))

    def _mishaps(self) -> Step:
        if self.is_careful:
            return
        if self.world.chance(0.02):
            raise LifeEnded
        if self.world.chance(0.02):
            yield Pause(SESSION_TIMEOUT_MS / 1000 * self.world.between(0.5, 2.5))

    # --- one transaction ---------------------------------------------------------------------------

    def _initialized(self) -> Step:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        while True:
            answer = yield Ask(INIT_PRODUCER_ID, 5, request)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self._take(answer.producer_id, answer.producer_epoch)
                return
            yield Pause(0.1)

    def _take(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        self._sequences = {}

    def _transaction(self, rows: list[bytes], ends: dict[PartitionKey, int], *, is_commit: bool) -> Step:
        """Whether it was committed for sure. LifeEnded when nobody can say."""
        self._number += 1
        values = tuple(
            f"{self.name}.{self._number}:{index}/{len(rows)}:".encode() + value
            for index, value in enumerate(rows)
        )
        self.history.add(TransactionBegun(self.name, self._number, values))
        self._written = {}
        self._begun = self.world.now()
        shares: dict[int, list[bytes]] = {}
        for value in values:
            shares.setdefault(self.world.rng.randrange(self._target.partitions), []).append(value)
        if not self._is_second:
            yield from self._added(sorted(shares))
        for number, share in sorted(shares.items()):
            yield from self._produced(number, share)
        is_fine = yield from self._offsets_committed(ends)
        if not self.is_careful and self.world.chance(0.1):
            yield Pause(self.world.between(0.1, TRANSACTION_TIMEOUT_MS / 1000 / 2))
        yield from self._ended(is_commit=is_commit and is_fine)
        return is_commit and is_fine

    def _asked_until_clear(self, api_key: int, version: int, body: Any, code_of: Any) -> Step:
        """The answer's code, once it is neither lost nor a passing one; LifeEnded after some tries."""
        for _ in range(self._tries * (10 if self.is_careful else 1)):
            asked = Ask(api_key, version, body)
            self.tell(asked)
            answer = yield asked
            code = None if answer is None else code_of(answer)
            if code is not None and code not in PASSING:
                return code
            yield Pause(self.world.between(0.05, 0.3))
        raise LifeEnded

    def _added(self, numbers: list[int]) -> Step:
        """The first protocol: the coordinator is told before anything is written."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._target.name, partitions=numbers)],
        )
        code = yield from self._asked_until_clear(
            ADD_PARTITIONS,
            3,
            request,
            lambda answer: max(
                one.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ),
        )
        if code != ErrorCode.NONE:
            raise LifeEnded

    def _produced(self, number: int, share: list[bytes]) -> Step:
        wall_ms = self.world.now().wall_ms
        sequence = self._sequences.get(number, 0)
        self._sequences[number] = sequence + len(share)
        data = build_batch(
            [(wall_ms, None, value, ()) for value in share],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        topic = TopicProduceData(
            name=self._target.name,
            topic_id=self._target.topic_id,
            partition_data=[PartitionProduceData(index=number, records=data)],
        )
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=2_000, topic_data=[topic])

        def code_of(answer: Any) -> int:
            result = answer.responses[0].partition_responses[0]
            if result.error_code == ErrorCode.NONE:
                self._written[number] = result.base_offset
            code: int = result.error_code
            return code

        code = yield from self._asked_until_clear(PRODUCE, 13 if self._is_second else 9, request, code_of)
        if code != ErrorCode.NONE:
            raise LifeEnded

    def _offsets_committed(self, ends: dict[PartitionKey, int]) -> Step:
        """False: the group does not know this member any more, and the transaction has to be aborted."""
        if not self._is_second:
            added = yield from self._asked_until_clear(
                ADD_OFFSETS,
                3,
                AddOffsetsToTxnRequest(
                    transactional_id=self.name,
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    group_id=self._member.group,
                ),
                lambda answer: answer.error_code,
            )
            if added != ErrorCode.NONE:
                raise LifeEnded
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self._member.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=self._member.generation,
            member_id=self._member.member_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=self._source.name,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=key.number, committed_offset=offset, committed_metadata=""
                        )
                        for key, offset in ends.items()
                    ],
                )
            ],
        )
        accepted = self._member.commit_asked(ends)
        code = yield from self._asked_until_clear(
            TXN_OFFSET_COMMIT,
            5 if self._is_second else 3,
            request,
            lambda answer: max(one.error_code for topic in answer.topics for one in topic.partitions),
        )
        if code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.STALE_MEMBER_EPOCH,
        ):
            return False
        if code != ErrorCode.NONE:
            raise LifeEnded
        accepted()
        return True

    def _passed(self) -> Iterator[str]:
        """Partitions in which records of the open transaction can be read as if it had ended."""
        node = self.host.reach(None).node
        topic = node.broker.partitions.of_name(self._target.name) if node is not None else None
        if topic is None:
            return
        for number, offset in self._written.items():
            partition = topic.replicas[number]
            log = partition.log
            if log is None or log.is_offline or partition.is_offline:
                continue
            if partition.visible_end(READ_COMMITTED) > offset:
                yield f"{partition.topic}-{number} from {offset} on"

    def _may_be_timed_out(self) -> bool:
        """By either clock: the wall's may have jumped."""
        now, begun = self.world.now(), self._begun
        jump_ms = abs(now.wall_ms - begun.wall_ms - 1000 * (now.mono - begun.mono))
        return 1000 * (now.mono - begun.mono) + jump_ms >= TRANSACTION_TIMEOUT_MS

    def _ended(self, *, is_commit: bool) -> Step:
        number, version = self._number, 5 if self._is_second else 3
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )

        # the coordinator aborts what takes too long, and takes our own abort for a repeated one
        passed = ", ".join(self._passed()) if is_commit or not self._may_be_timed_out() else ""
        self.history.add(EndAsked(self.name, number, passed))
        if is_commit:
            self.history.add(CommitOfTransactionAsked(self.name, number))

        def promised(answer: Any) -> None:
            if answer.error_code == ErrorCode.NONE:
                self.history.add(TransactionEnded(self.name, number, is_commit))

        for _ in range(self._tries * (10 if self.is_careful else 1)):
            asked = Ask(END_TXN, version, request, promised)
            self.tell(asked)
            answer = yield asked
            if answer is not None and answer.error_code == ErrorCode.NONE:
                if self._is_second:
                    self._take(answer.producer_id, answer.producer_epoch)
                return
            if answer is not None and answer.error_code not in PASSING:
                raise LifeEnded
            yield Pause(self.world.between(0.05, 0.3))
        raise LifeEnded
