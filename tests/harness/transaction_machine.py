"""A machine with a log beside it, as its node drives it: decisions are appended and replayed at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.refused_first import RefusedTransactions
from headrace.base.time import ManualClock
from headrace.machines.coordination import Decision
from headrace.machines.transactions.effects import WriteMarkers
from headrace.machines.transactions.listing import InvalidPattern
from headrace.machines.transactions.settings import TransactionSettings
from headrace.machines.transactions.transaction import Transaction
from headrace.machines.transactions.transactions import Transactions
from headrace.node.coordinators.transactions import older
from headrace.node.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.transactions import TransactionLogKey, TransactionLogValue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from headrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headrace.protocol.notation import Request

COORDINATOR_EPOCH = 7
OFFSETS_PARTITION = ("__consumer_offsets", 3)


class MachineCoordinator:
    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.clock = ManualClock()
        self.settings = settings or TransactionSettings()
        self.records: list[Record] = []
        self.orders: list[WriteMarkers] = []  # not carried out yet
        self._next_id = 1000
        self.machine = self._loaded()

    def _loaded(self) -> Transactions:
        machine = RefusedTransactions(self.settings, COORDINATOR_EPOCH)
        for record in self.records:
            machine.replay(record)
        self.orders = list(machine.loaded(self.clock.now()).effects)
        return machine

    def crash(self) -> None:
        """The machine is lost and recreated from the log; the rebuilt state must be the one before."""
        before = self.machine.state()
        self.machine = self._loaded()
        assert self.machine.state() == before

    def fresh_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def carry_out(self, decision: Decision) -> Any:
        for record in decision.records:
            self.records.append(record)
            self.machine.replay(record)
        self.orders += decision.effects
        return decision.reply

    def write_markers(self) -> None:
        orders, self.orders = self.orders, []
        for order in orders:
            self.carry_out(self.machine.markers_written(self.clock.now(), order))
        self.machine.check()

    def wake(self) -> list[Decision]:
        decisions = self.machine.wake(self.clock.now())
        for decision in decisions:
            self.carry_out(decision)
        self.machine.check()
        return decisions

    def transaction(self, transactional_id: str) -> Transaction:
        return self.machine.state()[transactional_id]

    # what a story asks

    def ask(self, request: Request, version: int) -> Any:
        reply = self.handlers[type(request)](self, request, version)
        self.machine.check()
        return reply

    def settle(self) -> None:
        self.write_markers()

    def run_into_timeout(self) -> None:
        deadline = self.machine.deadline()
        assert deadline is not None
        self.clock.advance(deadline - self.clock.mono)
        self.wake()

    def raise_epoch(self, transactional_id: str, epoch: int) -> None:
        value = self.records[-1].value
        assert isinstance(value, TransactionLogValue)
        value.producer_epoch = epoch
        self.crash_into(Record(TransactionLogKey(transactional_id=transactional_id), value))

    def crash_into(self, record: Record) -> None:
        """A machine that was loaded from this record alone."""
        self.records = [record]
        self.machine = self._loaded()

    def log(self, transactional_id: str) -> list[Any]:
        keys = TransactionLogKey(transactional_id=transactional_id)
        return [value for key, value in self.records if key == keys]

    def init(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        value = init_producer_id.asked(request, request.transactional_id or "")
        granted = self.carry_out(self.machine.init_producer_id(self.clock.now(), value, self.fresh_id))
        return init_producer_id.respond(granted, version)

    def add_partitions(self, request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
        if version > 3:
            results = []
            for each in request.transactions:
                producer = (each.transactional_id, each.producer_id, each.producer_epoch)
                topics = self._add(version, *producer, each.topics, verify_only=each.verify_only)
                results.append(
                    AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=topics)
                )
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        topics = self._add(
            version,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def _add(
        self,
        version: int,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        topics: list[AddPartitionsToTxnTopic],
        *,
        verify_only: bool = False,
    ) -> list[AddPartitionsToTxnTopicResult]:
        result = self.carry_out(
            self.machine.add_partitions(
                self.clock.now(),
                transactional_id,
                producer_id,
                epoch,
                [(topic.name, partition) for topic in topics for partition in topic.partitions],
                verify_only=verify_only,
                transaction_version=2 if version > 3 else 1,
            )
        )
        return [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition,
                        partition_error_code=older(
                            result[topic.name, partition],
                            is_fenced_known=version >= add_partitions_to_txn.FENCED_SINCE,
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]

    def add_offsets(self, request: AddOffsetsToTxnRequest, version: int) -> AddOffsetsToTxnResponse:
        producer = request.transactional_id, request.producer_id, request.producer_epoch
        code = self.carry_out(self.machine.add_offsets(self.clock.now(), *producer, OFFSETS_PARTITION))
        return add_offsets_to_txn.respond(code, version)

    def end(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        value = end_txn.asked(request, version)
        ended = self.carry_out(self.machine.end(self.clock.now(), value, self.fresh_id))
        return end_txn.respond(ended, version)

    def describe(self, request: DescribeTransactionsRequest, version: int) -> DescribeTransactionsResponse:
        found = [
            describe_transactions.respond(each, self.machine.describe(self.clock.now(), each))
            for each in request.transactional_ids
        ]
        return DescribeTransactionsResponse(transaction_states=found)

    def list(self, request: ListTransactionsRequest, version: int) -> ListTransactionsResponse:
        try:
            filters = list_transactions.filters_of(request)
        except InvalidPattern:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        return ListTransactionsResponse(
            unknown_state_filters=filters.unknown_states,
            transaction_states=[
                list_transactions.respond(each)
                for each in self.machine.list_transactions(self.clock.now(), filters)
            ],
        )

    handlers: dict[type[Request], Callable[[MachineCoordinator, Any, int], Any]] = {
        InitProducerIdRequest: init,
        AddPartitionsToTxnRequest: add_partitions,
        AddOffsetsToTxnRequest: add_offsets,
        EndTxnRequest: end,
        DescribeTransactionsRequest: describe,
        ListTransactionsRequest: list,
    }
