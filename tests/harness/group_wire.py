"""A broker as the listener of group stories: a socket per client, and its log is read from its files."""

from __future__ import annotations

import selectors
import time
from typing import Any

from harness.broker import Broker
from harness.group_stories import STEP_MS, Answer
from harness.message_socket import MessageSocket
from harness.wait import eventually
from headrace.protocol.coordinator_records import GROUP_RECORDS, Record, decode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest
from headrace.protocol.notation import Request
from headrace.records.reader import batches, read_rows

SETTLED_S = STEP_MS / 1000
ANSWERED_S = 60.0
GROUP, TRANSACTION = 0, 1


class BrokerGroups:
    def __init__(self, broker: Broker, group_id: str) -> None:
        self.broker = broker
        self.group_id = group_id
        self.connections: dict[str, MessageSocket] = {}
        self.selector = selectors.DefaultSelector()
        self.admin = MessageSocket(broker.port)
        self.producers: dict[str, tuple[int, int]] = {}
        self._find(GROUP, group_id)

    def close(self) -> None:
        for connection in [self.admin, *self.connections.values()]:
            connection.socket.close()
        self.selector.close()

    def create_topics(self, *names: str) -> None:
        topics = [CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in names]
        self._admin(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)

    def ask(self, client: str, request: Request, version: int) -> list[Answer]:
        connection = self.connections.get(client)
        if connection is None:
            connection = self.connections[client] = MessageSocket(self.broker.port)
            self.selector.register(connection.socket, selectors.EVENT_READ, client)
        connection.send(client, request, version)
        may_wait = type(request) in (JoinGroupRequest, SyncGroupRequest)
        return self._answers(SETTLED_S, renews=True, until=None if may_wait else client)

    def wait(self, milliseconds: int) -> list[Answer]:
        return self._answers(milliseconds / 1000, renews=False)

    def _answers(self, seconds: float, *, renews: bool, until: str | None = None) -> list[Answer]:
        """Those that come in time; with `renews` each gives the next one as much time again. The answer to
        `until` comes in any case.
        """
        answers: list[Answer] = []
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 or until is not None:
            assert left > -ANSWERED_S, f"{until} got no answer"
            for key, _ in self.selector.select(max(left, 0.01)):
                answers.append((key.data, self.connections[key.data].receive()))
                if key.data == until:
                    until = None
                if renews:
                    end = time.monotonic() + seconds
        return answers

    def producer(self, client: str) -> tuple[int, int]:
        transactional_id = f"{self.group_id}-{client}"
        if client not in self.producers:
            self._find(TRANSACTION, transactional_id)
            init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            while (response := self._admin(init, 4)).error_code:
                time.sleep(SETTLED_S)  # the coordinator is loading, or waits for ids to give
            self.producers[client] = response.producer_id, response.producer_epoch
        producer_id, epoch = self.producers[client]
        add = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=self.group_id,
        )
        eventually(lambda: self._admin(add, 3).error_code, ErrorCode.NONE)
        return producer_id, epoch

    def end_transaction(self, client: str, is_commit: bool) -> None:
        producer_id, epoch = self.producers[client]
        end = EndTxnRequest(
            transactional_id=f"{self.group_id}-{client}",
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=is_commit,
        )
        eventually(lambda: self._admin(end, 3).error_code, ErrorCode.NONE)
        time.sleep(2 * SETTLED_S)  # the markers are written behind the answer

    def _admin(self, request: Request, version: int) -> Any:
        self.admin.send("admin", request, version)
        return self.admin.receive()

    def _find(self, kind: int, key: str) -> None:
        """Returns when the coordinator is there and has loaded its shard."""

        def error() -> int:
            find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            (found,) = self._admin(find, 4).coordinators
            if found.error_code or kind == TRANSACTION:
                return int(found.error_code)
            heartbeat = HeartbeatRequest(group_id=key, member_id="nobody")
            return int(self._admin(heartbeat, 4).error_code)

        eventually(error, ErrorCode.UNKNOWN_MEMBER_ID if kind == GROUP else ErrorCode.NONE)

    def log(self, group_id: str) -> list[Record]:
        records: list[Record] = []
        for path in sorted(self.broker.data.glob("__consumer_offsets-*/*.log")):
            content = path.read_bytes()
            for position, header in batches(content):
                for _, _, key, value, _ in [] if header.is_control else read_rows(content, position, header):
                    record = decode(GROUP_RECORDS, key or b"", value)
                    if record is not None and getattr(record.key, "group", None) == group_id:
                        records.append(record)
        return records
