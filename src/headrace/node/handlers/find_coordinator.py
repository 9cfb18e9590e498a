"""FindCoordinator, key 10, versions 0–6: which broker leads the partition that a group, a transactional id or
a sink belongs to. The internal topic is made when it is first asked for; the answer waits until that is
durable.
"""

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.faults import FAULTS
from headrace.node.metadata_log import CommittedReply, MetadataLog
from headrace.node.producer_ids import ProducerIds
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP = 0
TRANSACTION = 1
SINK = 100  # Headrace's own
BATCHED_SINCE = 4
NO_NODE = -1


class FindCoordinator:
    def __init__(
        self,
        metadata: MetadataLog,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        sinks: SinkCoordinator,
        producer_ids: ProducerIds,
        access: Access,
    ) -> None:
        self._metadata = metadata
        self._groups = groups
        self._transactions = transactions
        self._sinks = sinks
        self._producer_ids = producer_ids
        self._access = access

    def handle(self, request: Request) -> FindCoordinatorResponse | CommittedReply:
        body: FindCoordinatorRequest = request.body
        is_batched = request.version >= BATCHED_SINCE
        keys = body.coordinator_keys if is_batched else [body.key]
        found = [self._coordinator(request, body.key_type, key) for key in keys]
        if is_batched:
            reply = FindCoordinatorResponse(coordinators=found)
        else:
            one = found[0]
            reply = FindCoordinatorResponse(
                error_code=one.error_code,
                error_message=one.error_message,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
            )
        return self._metadata.when_committed(request, self._metadata.end_offset, reply)

    def _coordinator(self, request: Request, key_type: int, key: str) -> Coordinator:
        if key_type == GROUP:
            operation, resource, denied = (
                Operation.DESCRIBE,
                Resource.GROUP,
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
            )
        elif key_type in (TRANSACTION, SINK):
            operation, resource = Operation.DESCRIBE, Resource.TRANSACTIONAL_ID
            denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            return missing(key, ErrorCode.INVALID_REQUEST, f"there is no coordinator of kind {key_type}")
        if not self._access.allows(request, operation, resource, key):
            return missing(key, denied)
        keeper = self._keeper_of(key_type)
        try:
            keeper.create_topic(request.now)
            if key_type != GROUP:
                self._producer_ids.prepare(request.now)  # whoever looks for this coordinator will want one
        except FAULTS as fault:
            return missing(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(fault))
        leader = keeper.leader_of(key)
        endpoint = (
            self._metadata.image.endpoint(leader, request.connection.listener) if leader is not None else None
        )
        if leader is None or endpoint is None:
            return missing(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(
            key=key, node_id=leader, host=endpoint.host, port=endpoint.port, error_message=None
        )

    def _keeper_of(self, key_type: int) -> GroupCoordinator | TransactionCoordinator | SinkCoordinator:
        if key_type == GROUP:
            return self._groups
        return self._transactions if key_type == TRANSACTION else self._sinks


def missing(key: str, code: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=message)
