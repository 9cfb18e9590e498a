"""A broker as the listener of transaction stories: requests over one socket, its log read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.broker import Broker
from harness.message_socket import MessageSocket
from harness.wait import eventually
from headrace.protocol.coordinator_records import TRANSACTION_RECORDS, decode
from headrace.protocol.coordinator_records.transactions import TransactionLogKey, TransactionLogValue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.protocol.notation import Request
from headrace.records.reader import batches, read_rows

FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2
GROUP, TRANSACTION = 0, 1


class BrokerCoordinator:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.transactional_id = ""
        self._read: dict[Path, int] = {}  # so far, of each file of the log
        self._values: dict[str, list[TransactionLogValue | None]] = {}
        self.connection = MessageSocket(broker.port)
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)

    def close(self) -> None:
        self.connection.close()

    def ask(self, request: Request, version: int) -> Any:
        return self.connection.ask("story", request, version)

    def finalize(self, *, transaction_version: int) -> None:
        """Sets the cluster's feature level, and returns when the broker knows."""

        def level() -> int | None:
            response = self.ask(
                ApiVersionsRequest(client_software_name="story", client_software_version="1"), 3
            )
            return next(
                (each.max_version_level for each in response.finalized_features if each.name == FEATURE), None
            )

        if level() == transaction_version:
            return
        kind = UPGRADE if transaction_version == 2 else SAFE_DOWNGRADE
        update = FeatureUpdateKey(feature=FEATURE, max_version_level=transaction_version, upgrade_type=kind)
        self.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
        eventually(level, transaction_version)

    def find(self, transactional_id: str) -> None:
        """The story's id. Returns when it has a coordinator that has loaded its shard and has producer ids to
        give, and when the story's group has one too.
        """
        self.transactional_id = transactional_id

        def errors() -> set[ErrorCode]:
            find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
            find_group = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["g"])
            describe = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            answers = (
                *self.ask(find, 4).coordinators,
                *self.ask(find_group, 4).coordinators,
                *self.ask(describe, 0).transaction_states,
                self.ask(InitProducerIdRequest(transactional_id=None), 4),
            )
            return {ErrorCode(each.error_code) for each in answers}

        eventually(errors, {ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})

    def settle(self) -> None:
        eventually(lambda: self._in_states("PrepareCommit", "PrepareAbort"), [])

    def run_into_timeout(self) -> None:
        eventually(lambda: self._in_states("Ongoing"), [])

    def _in_states(self, *states: str) -> list[str]:
        found = self.ask(ListTransactionsRequest(state_filters=list(states)), 0).transaction_states
        return [each.transactional_id for each in found if each.transactional_id == self.transactional_id]

    def raise_epoch(self, transactional_id: str, epoch: int) -> None:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        while (response := self.ask(request, 4)).producer_epoch < epoch:
            assert response.error_code == ErrorCode.NONE

    def log(self, transactional_id: str) -> list[TransactionLogValue | None]:
        for path in sorted(self.broker.data.glob("__transaction_state-*/*.log")):
            start = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                content = file.read()
            for position, header in batches(content):
                self._read[path] = start + position + header.size
                for _, _, key, value, _ in [] if header.is_control else read_rows(content, position, header):
                    record = decode(TRANSACTION_RECORDS, key or b"", value)
                    assert record is not None
                    assert isinstance(record.key, TransactionLogKey)
                    assert isinstance(record.value, TransactionLogValue | None)
                    self._values.setdefault(record.key.transactional_id, []).append(record.value)
        return self._values.get(transactional_id, [])
