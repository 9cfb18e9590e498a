"""The coordinator of transactions: `__transaction_state`, its shards, markers, and the check that a produce
belongs to an open transaction.
"""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.versions import TRANSACTION_VERSION
from headrace.machines.transactions.settings import TransactionSettings
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.coordinator import Coordinator, segment_bytes, take_over
from headrace.node.coordinators.markers import Markers
from headrace.node.coordinators.shard import Shard
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.faults import Refused
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Ports
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings, Settings
from headrace.protocol.coordinator_records import TRANSACTION_RECORDS
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from headrace.records.batch import BatchHeader, read_header

if TYPE_CHECKING:
    from headrace.machines.sinks.sinks import Sinks
    from headrace.machines.transactions.transactions import Transactions

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


class TransactionCoordinator(Coordinator["Transactions"]):
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        settings: LiveSettings,
        ports: Ports,
        access: Access,
        markers: Markers,
        sinks: SinkCoordinator,
    ) -> None:
        super().__init__(
            TOPIC,
            TRANSACTION_RECORDS,
            self._make_machine,
            markers.write,
            partitions,
            directories,
            metadata,
            decisions,
            settings,
            ports,
        )
        self._access = access
        self._sinks = sinks
        self._transaction_settings = transaction_settings(settings.current, metadata.image)

    def _make_machine(self, partition: Partition) -> "Transactions":
        # a broker without transactions starts without loading what they need
        from headrace.machines.transactions.transactions import Transactions

        return Transactions(self._transaction_settings, partition.leader.epoch)

    @property
    def verifies(self) -> bool:
        """Whether writes of the first protocol are checked too."""
        return self._settings.current.transaction_partition_verification_enable

    def configured(self) -> None:
        """The broker's settings changed. All shards share one object, which is changed in place."""
        fresh = transaction_settings(self._settings.current, self._metadata.image)
        take_over(self._transaction_settings, fresh)

    def create_topic(self, now: Now) -> None:
        settings = self._settings.current
        self.ensure_topic(
            now,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": segment_bytes(settings.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(
                    min(
                        settings.transaction_state_log_min_isr,
                        len(self._metadata.image.live_brokers()),
                    )
                ),
                "unclean.leader.election.enable": "false",
            },
        )

    # --- the beginning of one in a partition ------------------------------------------------------------

    def permit(self, request: Request, partition: Partition, records: memoryview) -> "WritePermit":
        """For a transactional batch of a produce request; Refused when it needs not even ask."""
        transactional_id = request.body.transactional_id
        if transactional_id is None or not self._access.allows(
            request,
            Operation.WRITE,
            Resource.TRANSACTIONAL_ID,
            transactional_id.removeprefix(TRANSACTIONAL_ID_PREFIX),
        ):
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return WritePermit(self, transactional_id, partition, read_header(records), request.version)

    def admit(
        self,
        now: Now,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: Partition,
        *,
        adds: bool,
    ) -> tuple[ErrorCode, Shard[Any] | None]:
        """Whether this producer may write to the partition inside its transaction, and whose commit has to be
        awaited before it does: what is written may not outlive the record that says so.

        With the second transaction protocol the partition is added; with the first it must have been
        (KIP-890: a write of an older request must not open a transaction that nobody will end).
        """
        shard: Shard[Transactions] | Shard[Sinks] | ErrorCode
        if transactional_id.startswith(TRANSACTIONAL_ID_PREFIX):  # an attempt of a sink
            shard = self._sinks.shard_of(now, transactional_id.removeprefix(TRANSACTIONAL_ID_PREFIX))
        else:
            shard = self.shard_of(now, transactional_id)
        if isinstance(shard, ErrorCode):
            return shard, None
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
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        return code, None if shard.is_committed else shard

    def admit_commit(self, request: Request, partition: Partition) -> tuple[ErrorCode, Shard[Any] | None]:
        """Whether the transaction may commit offsets of groups that live in this partition, and whose commit
        has to be awaited before.
        """
        body: TxnOffsetCommitRequest = request.body
        adds = request.version >= COMMIT_ADDS_SINCE
        if not adds and not self.verifies:
            return ErrorCode.NONE, None
        code, awaited = self.admit(
            request.now,
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            partition,
            adds=adds,
        )
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return older(code, is_abortable_known=request.version >= COMMIT_ABORTABLE_SINCE), awaited


class WritePermit:
    """What a transactional batch needs before it is appended: the coordinator's word that its transaction is
    open. It is asked for when the batch comes, and again if the batch had to wait in front of its log.
    """

    __slots__ = ("_coordinator", "_epoch", "_partition", "_producer_id", "_transactional_id", "_version")

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        transactional_id: str,
        partition: Partition,
        header: BatchHeader,
        version: int,
    ) -> None:
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._partition = partition
        self._producer_id = header.producer_id
        self._epoch = header.producer_epoch
        self._version = version  # of the produce request

    def ask(self, now: Now) -> Shard[Any] | None:
        """None: append it now. A shard: ask again when it has committed what it has. Refused: never."""
        state = self._partition.opened(now).producer_state(now.wall_ms)
        if state.is_open(self._producer_id, self._epoch):
            return None
        coordinator = self._coordinator
        adds = self._version >= PRODUCE_ADDS_SINCE
        if not adds and not coordinator.verifies:
            return None
        code, awaited = coordinator.admit(
            now, self._transactional_id, self._producer_id, self._epoch, self._partition, adds=adds
        )
        if code in COORDINATOR_ERRORS or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
            code = ErrorCode.NOT_ENOUGH_REPLICAS  # the code that producers of every age try again after
        elif code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if code is not ErrorCode.NONE:
            raise Refused(older(code, is_abortable_known=self._version >= ABORTABLE_SINCE))
        return awaited


def older(code: ErrorCode, *, is_abortable_known: bool) -> ErrorCode:
    """What a client is told that may be too old for TRANSACTION_ABORTABLE."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and not is_abortable_known:
        return ErrorCode.INVALID_TXN_STATE
    return code


def transaction_settings(settings: Settings, image: ClusterImage) -> TransactionSettings:
    return TransactionSettings(
        **{name: getattr(settings, name) for name in SETTINGS},
        transaction_version=image.features.get(TRANSACTION_VERSION, 0),
    )
