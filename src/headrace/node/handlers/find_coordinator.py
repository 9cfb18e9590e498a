"""FindCoordinator, key 10, versions 0–6: which broker leads the partition that a group, a transactional id or
a sink belongs to. The internal topic is made when it is first asked for; the answer waits until that is
durable. It also waits, for a moment, when it would name a broker whose process has just ended.
"""

from collections.abc import Iterator

from headrace.base.limits import COORDINATOR_NAME_CHARACTERS_MAX
from headrace.base.time import Instant, Now
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.metadata_log import MetadataLog
from headrace.node.producer_ids import ProducerIds
from headrace.node.routes import Request
from headrace.node.topic_creation import WAIT_MS_MAX, TopicCreation
from headrace.node.vanished_brokers import AwaitedLeaders, VanishedBrokers
from headrace.node.waiting import Parked, Waiting
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

# What a client must be allowed to describe, and what it is told otherwise.
KINDS = {
    GROUP: (Resource.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION: (Resource.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    SINK: (Resource.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


class FindCoordinator:
    def __init__(
        self,
        metadata: MetadataLog,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        sinks: SinkCoordinator,
        producer_ids: ProducerIds,
        access: Access,
        vanished: VanishedBrokers,
        waiting: Waiting,
    ) -> None:
        self._metadata = metadata
        self._groups = groups
        self._transactions = transactions
        self._sinks = sinks
        self._producer_ids = producer_ids
        self._access = access
        self._vanished = vanished
        self._waiting = waiting

    def handle(self, request: Request) -> FindCoordinatorResponse | Parked:
        body: FindCoordinatorRequest = request.body
        creations = self._created(request, body)
        if creations:
            return AwaitedCoordinators(self, self._metadata, self._waiting, request, creations)
        if body.key_type in KINDS and self._vanished.doubts(request.now, self._leaders(request)):
            return AwaitedLeaders(
                self._vanished, self._metadata, self._waiting, request, self._leaders, self.respond
            )
        return self._metadata.when_durable(request, self.respond(request))

    def _leaders(self, request: Request) -> Iterator[int]:
        keeper = self._keeper_of(request.body.key_type)
        for key in keys_of(request):
            if self._refusal(request, request.body.key_type, key) is None:
                leader = keeper.leader_of(key)
                if leader is not None:
                    yield leader

    def _created(self, request: Request, body: FindCoordinatorRequest) -> list[TopicCreation]:
        """Internal topics that are missing, and are being created from now on."""
        if body.key_type not in KINDS or not any(
            self._refusal(request, body.key_type, key) is None for key in keys_of(request)
        ):
            return []
        if body.key_type != GROUP:
            self._producer_ids.prepare(request.now)  # whoever looks for this coordinator will want one
        creation = self._keeper_of(body.key_type).create_topic(request.now)
        return [] if creation is None else [creation]

    def respond(self, request: Request, reason: str | None = None) -> FindCoordinatorResponse:
        """`reason` says why there is no coordinator."""
        body: FindCoordinatorRequest = request.body
        found = [self._coordinator(request, body.key_type, key, reason) for key in keys_of(request)]
        if request.version >= BATCHED_SINCE:
            return FindCoordinatorResponse(coordinators=found)
        (one,) = found
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def _refusal(self, request: Request, key_type: int, key: str) -> Coordinator | None:
        """What is refused before anybody looks for a coordinator."""
        if len(key) > COORDINATOR_NAME_CHARACTERS_MAX:
            return missing(key, ErrorCode.INVALID_REQUEST, "the key is too long")
        if key_type not in KINDS:
            return missing(key, ErrorCode.INVALID_REQUEST, f"there is no coordinator of kind {key_type}")
        resource, denied = KINDS[key_type]
        if not self._access.allows(request, Operation.DESCRIBE, resource, key):
            return missing(key, denied)
        return None

    def _coordinator(self, request: Request, key_type: int, key: str, reason: str | None) -> Coordinator:
        refusal = self._refusal(request, key_type, key)
        if refusal is not None:
            return refusal
        leader = self._keeper_of(key_type).leader_of(key)
        endpoint = (
            self._metadata.image.endpoint(leader, request.connection.listener) if leader is not None else None
        )
        if leader is None or endpoint is None:
            return missing(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return Coordinator(
            key=key, node_id=leader, host=endpoint.host, port=endpoint.port, error_message=None
        )

    def _keeper_of(self, key_type: int) -> GroupCoordinator | TransactionCoordinator | SinkCoordinator:
        if key_type == GROUP:
            return self._groups
        return self._transactions if key_type == TRANSACTION else self._sinks


class AwaitedCoordinators(Parked):
    """Waits until the internal topic is created and this broker knows it."""

    __slots__ = ("_creations", "_handler", "_metadata", "_offset", "_reply")

    def __init__(
        self,
        handler: FindCoordinator,
        metadata: MetadataLog,
        waiting: Waiting,
        request: Request,
        creations: list[TopicCreation],
    ) -> None:
        super().__init__(waiting, request)
        self._handler = handler
        self._metadata = metadata
        self._creations = creations
        self._reply: FindCoordinatorResponse | None = None
        self._offset = 0
        self.wait_for(metadata)
        for creation in creations:
            self.wait_for(creation)

    def deadline(self) -> Instant | None:
        return self.request.now.after_ms(WAIT_MS_MAX)

    def reply(self, now: Now, *, is_expired: bool) -> FindCoordinatorResponse | None:
        if self._reply is None:
            topics = self._metadata.image.topics
            are_settled = all(one.has_failed or one.is_there(topics) for one in self._creations)
            if not is_expired and not are_settled:
                return None
            reason = next((one.message for one in self._creations if one.has_failed), None)
            self._reply = self._handler.respond(self.request, reason)
            self._offset = self._metadata.image_offset
        is_durable = self._metadata.committed_offset >= self._offset
        return self._reply if is_expired or is_durable else None


def keys_of(request: Request) -> list[str]:
    body: FindCoordinatorRequest = request.body
    return body.coordinator_keys if request.version >= BATCHED_SINCE else [body.key]


def missing(key: str, code: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=message)
