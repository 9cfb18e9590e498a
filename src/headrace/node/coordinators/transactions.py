"""The coordinator of transactions: `__transaction_state`, its shards, markers, and the check that a produce
belongs to an open transaction.
"""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.machines.metadata.versions import TRANSACTION_VERSION
from headrace.machines.transactions.effects import WriteMarkers
from headrace.machines.transactions.settings import TransactionSettings
from headrace.machines.transactions.transactions import Transactions
from headrace.node.authorization import Operation, Resource
from headrace.node.coordinators.coordinator import Coordinator, take_over
from headrace.node.coordinators.markers import MarkersUnderWay
from headrace.node.coordinators.shard import Shard
from headrace.node.partition import Partition
from headrace.node.request import Request
from headrace.protocol.coordinator_records import TRANSACTION_RECORDS
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from headrace.records.batch import read_header

if TYPE_CHECKING:
    from headrace.node.node import Node

TOPIC = "__transaction_state"

# What a shard knows of the broker's settings has the same names there and here.
SETTINGS = tuple(field.name for field in fields(TransactionSettings) if field.name != "transaction_version")

PRODUCE_ADDS_SINCE = 12
ABORTABLE_SINCE = 11  # the first Produce whose clients know TRANSACTION_ABORTABLE
COMMIT_ADDS_SINCE = 5
COMMIT_ABORTABLE_SINCE = 4

COORDINATOR_ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class TransactionCoordinator(Coordinator):
    def __init__(self, node: "Node") -> None:
        super().__init__(node, TOPIC, TRANSACTION_RECORDS, self._machine, self._write_markers)
        self._settings = transaction_settings(node)

    def _machine(self, partition: Partition) -> Transactions:
        return Transactions(self._settings, partition.leader.epoch)

    def configured(self) -> None:
        """The broker's settings changed. All shards share one object, which is changed in place."""
        take_over(self._settings, transaction_settings(self._node))

    def create_topic(self, now: Now) -> None:
        settings = self._node.settings
        self.ensure_topic(
            now,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(settings.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(
                    min(
                        settings.transaction_state_log_min_isr,
                        len(self._node.metadata.image.live_brokers()),
                    )
                ),
                "unclean.leader.election.enable": "false",
            },
        )

    # --- the end of a transaction ------------------------------------------------------------------------

    def _write_markers(self, now: Now, shard: Shard, effect: Any) -> None:
        assert isinstance(effect, WriteMarkers)

        def written(now: Now) -> None:
            if shard.machine is not None:
                shard.carry_out(now, shard.machine.markers_written(now, effect))

        MarkersUnderWay(self._node, effect, written).expired(now)

    # --- the beginning of one in a partition ------------------------------------------------------------

    def fault_of_write(self, request: Request, partition: Partition, records: memoryview) -> ErrorCode:
        """Why a transactional batch of a produce request is refused; NONE when it may be appended."""
        transactional_id = request.body.transactional_id
        if transactional_id is None or not self._node.allows(
            request, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        header = read_header(records)
        producer_id, epoch = header.producer_id, header.producer_epoch
        state = partition.opened(request.now).producer_state(request.now.wall_ms)
        if state.is_open(producer_id, epoch):
            return ErrorCode.NONE
        adds = request.version >= PRODUCE_ADDS_SINCE
        if not adds and not self._node.settings.transaction_partition_verification_enable:
            return ErrorCode.NONE
        code = self.admit(request.now, transactional_id, producer_id, epoch, partition, adds=adds)
        if code in COORDINATOR_ERRORS or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
            return ErrorCode.NOT_ENOUGH_REPLICAS  # the code that producers of every age try again after
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return older(code, is_abortable_known=request.version >= ABORTABLE_SINCE)

    def admit(
        self,
        now: Now,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: Partition,
        *,
        adds: bool,
    ) -> ErrorCode:
        """Whether this producer may write to the partition inside its transaction.

        With the second transaction protocol the partition is added; with the first it must have been
        (KIP-890: a write of an older request must not open a transaction that nobody will end).
        """
        shard = self.shard_of(now, transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        place = (partition.topic, partition.index)
        decision = shard.machine.add_partitions(
            now,
            transactional_id,
            producer_id,
            epoch,
            [place],
            verify_only=not adds,
            transaction_version=2 if adds else 1,
        )
        code: ErrorCode = decision.reply[place]
        if decision.records and not shard.carry_out(now, decision):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return code

    def fault_of_commit(self, request: Request, partition: Partition) -> ErrorCode:
        """Why the transaction may not commit offsets of groups that live in this partition."""
        body: TxnOffsetCommitRequest = request.body
        adds = request.version >= COMMIT_ADDS_SINCE
        if not adds and not self._node.settings.transaction_partition_verification_enable:
            return ErrorCode.NONE
        code = self.admit(
            request.now,
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            partition,
            adds=adds,
        )
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return older(code, is_abortable_known=request.version >= COMMIT_ABORTABLE_SINCE)


def older(code: ErrorCode, *, is_abortable_known: bool) -> ErrorCode:
    """What a client is told that may be too old for TRANSACTION_ABORTABLE."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and not is_abortable_known:
        return ErrorCode.INVALID_TXN_STATE
    return code


def transaction_settings(node: "Node") -> TransactionSettings:
    return TransactionSettings(
        **{name: getattr(node.settings, name) for name in SETTINGS},
        transaction_version=node.metadata.image.features.get(TRANSACTION_VERSION, 0),
    )
