"""Metadata, key 3, versions 0–13: the brokers, and where each partition of the asked topics is led.

From version 1 null topics are all and an empty list is none; version 0 has an empty list for all. Topics can
be asked for by id from version 12 on. A missing topic is created when the client and the settings allow it;
then the answer waits until the topic is durable. It also waits, for a moment, when it would name a leader
whose process has just ended.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.base.ids import NO_TOPIC_ID, TopicId
from headrace.base.time import Instant, Now
from headrace.machines.metadata.controller.names import name_fault
from headrace.machines.metadata.image import NO_LEADER, ClusterImage, PartitionState, TopicState
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partitions import INTERNAL_TOPICS, Partitions
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.node.sliced_reply import Slicing
from headrace.node.topic_creation import WAIT_MS_MAX, TopicCreation, TopicCreations
from headrace.node.vanished_brokers import AwaitedLeaders, VanishedBrokers
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.chunked_message import encode_in_chunks
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

LISTENER_ERROR_SINCE = 6
BY_ID_SINCE = 12

# More are told in slices: one takes some five microseconds, with a few partitions.
TOPICS_AT_ONCE = 200
TOPICS_PER_UNIT = 50


class Metadata:
    def __init__(
        self,
        broker_id: int,
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        settings: LiveSettings,
        access: Access,
        slicing: Slicing,
        creations: TopicCreations,
        vanished: VanishedBrokers,
        waiting: Waiting,
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._directories = directories
        self._metadata = metadata
        self._settings = settings
        self._access = access
        self._slicing = slicing
        self._creations = creations
        self._vanished = vanished
        self._waiting = waiting

    def handle(self, request: Request) -> MetadataResponse | Parked:
        body: MetadataRequest = request.body
        if (
            body.topics is not None
            and request.version < BY_ID_SINCE
            and any(topic.topic_id != NO_TOPIC_ID for topic in body.topics)
        ):
            return MetadataResponse(
                topics=[refused(topic, ErrorCode.INVALID_REQUEST) for topic in body.topics]
            )
        codes: dict[str, ErrorCode] = {}
        if (
            body.topics
            and body.allow_auto_topic_creation
            and self._settings.current.auto_create_topics_enable
        ):
            missing = [topic.name for topic in body.topics if self._is_missing(request, topic)]
            wanted = [name for name in dict.fromkeys(missing) if name is not None]
            denied = [name for name in wanted if not may_create(self._access, request, name)]
            codes = dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            self._limit_creations(request, wanted, codes)
            if len(codes) < len(wanted):
                creations = self._creations.create_default(
                    request.now,
                    [name for name in wanted if name not in codes],
                    None if self._access.audit is None else self._access.audit.creation_of(request),
                )
                return AwaitedTopics(self, self._metadata, self._waiting, request, creations, codes)
        if self._vanished.doubts(request.now, self._leaders(request)):
            return AwaitedLeaders(
                self._vanished,
                self._metadata,
                self._waiting,
                request,
                self._leaders,
                lambda request: self.respond_now(request, codes),
            )
        return self._respond(request, codes)

    def _limit_creations(self, request: Request, wanted: list[str], codes: dict[str, ErrorCode]) -> None:
        """Topics that `controller_mutation_rate` does not allow now are just not there; clients ask again."""
        quota = self._waiting.quotas.mutation(request, strict_since=0)
        for name in wanted:
            if name not in codes and not quota.admits(self._settings.current.num_partitions):
                codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _leaders(self, request: Request) -> Iterator[int]:
        """Of all partitions that the answer is about, if they are few."""
        image = self._metadata.image
        asked: list[MetadataRequestTopic] | None = request.body.topics
        if asked is None:
            topics: Iterable[TopicState | None] = image.topics.values()
        else:
            topics = (
                image.topics.get(topic.name)
                if topic.name is not None
                else image.topics_by_id.get(TopicId(topic.topic_id))
                for topic in asked
            )
        if len(image.topics if asked is None else asked) <= TOPICS_AT_ONCE:
            for topic in topics:
                if topic is not None:
                    for state in topic.partitions.values():
                        yield state.leader

    def _is_missing(self, request: Request, topic: MetadataRequestTopic) -> bool:
        """Whether the topic could be created, if the client may."""
        name = topic.name
        return (
            topic.topic_id == NO_TOPIC_ID
            and name is not None
            and name not in self._metadata.image.topics
            and name_fault(name) is None
            and self._access.shows(request, Operation.DESCRIBE, Resource.TOPIC, name)
        )

    def _respond(self, request: Request, codes: Mapping[str, ErrorCode]) -> MetadataResponse | Parked:
        """`codes` say why topics that are not there were not created."""
        response, count, topics = self._parts(request, codes)
        if count > TOPICS_AT_ONCE:
            steps = encode_in_chunks(
                request.route.response, response, "topics", topics, together=TOPICS_PER_UNIT
            )
            return self._slicing.reply(request, steps, units=TOPICS_AT_ONCE // TOPICS_PER_UNIT)
        response.topics = list(topics)
        return self._metadata.when_durable(request, response)

    def respond_now(self, request: Request, codes: Mapping[str, ErrorCode]) -> MetadataResponse:
        response, _, topics = self._parts(request, codes)
        response.topics = list(topics)
        return response

    def _parts(
        self, request: Request, codes: Mapping[str, ErrorCode]
    ) -> tuple[MetadataResponse, int, Iterator[MetadataResponseTopic]]:
        """The response without its topics; how many they may be; the topics."""
        body: MetadataRequest = request.body
        asked = body.topics
        view = View(
            self._broker_id,
            self._partitions,
            self._directories,
            self._metadata.image,
            request,
            self._access if body.include_topic_authorized_operations else None,
        )
        response = MetadataResponse(
            brokers=self._brokers(request),
            cluster_id=self._directories.cluster_id,
            controller_id=controller_id(self._broker_id, self._metadata),
        )
        if body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = self._access.cluster_operations_bits(request)
        if asked is None or (not asked and request.version == 0):
            return response, len(self._metadata.image.topics), self._all_topics(request, view)
        return response, len(asked), self._asked_topics(request, view, asked, codes)

    def _brokers(self, request: Request) -> list[MetadataResponseBroker]:
        """The brokers that have the client's listener, with their advertised addresses."""
        listener = request.connection.listener
        return [
            MetadataResponseBroker(
                node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker in self._vanished.told(request.now, self._metadata.image)
            if (endpoint := broker.endpoints.get(listener)) is not None
        ]

    def _all_topics(self, request: Request, view: "View") -> Iterator[MetadataResponseTopic]:
        for topic in list(self._metadata.image.topics.values()):
            if self._access.shows(request, Operation.DESCRIBE, Resource.TOPIC, topic.name):
                yield described(view, topic)

    def _asked_topics(
        self,
        request: Request,
        view: "View",
        asked: Iterable[MetadataRequestTopic],
        codes: Mapping[str, ErrorCode],
    ) -> Iterator[MetadataResponseTopic]:
        """Each is told once, in the order asked."""
        seen: set[object] = set()
        for topic in asked:
            key = topic.name if topic.topic_id == NO_TOPIC_ID else topic.topic_id
            if key not in seen:
                seen.add(key)
                yield self._told(request, view, topic, codes)

    def _told(
        self,
        request: Request,
        view: "View",
        topic: MetadataRequestTopic,
        codes: Mapping[str, ErrorCode],
    ) -> MetadataResponseTopic:
        image = self._metadata.image
        if topic.topic_id != NO_TOPIC_ID:
            by_id = image.topics_by_id.get(TopicId(topic.topic_id))
            if by_id is not None and self._access.allows(
                request, Operation.DESCRIBE, Resource.TOPIC, by_id.name
            ):
                return described(view, by_id)
            # as in Kafka, an id is not secret; the name is
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(error_code=code, name=None, topic_id=topic.topic_id)
        name = topic.name
        if name is None:
            return refused(topic, ErrorCode.INVALID_REQUEST)
        if not self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, name):
            return refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name in image.topics:
            return described(view, image.topics[name])
        if name_fault(name) is not None:
            return refused(topic, ErrorCode.INVALID_TOPIC_EXCEPTION)
        return refused(topic, codes.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


class AwaitedTopics(Parked):
    """Waits until the missing topics of a request are created and this broker knows them."""

    __slots__ = ("_codes", "_creations", "_handler", "_metadata", "_offset", "_reply")

    def __init__(
        self,
        handler: Metadata,
        metadata: MetadataLog,
        waiting: Waiting,
        request: Request,
        creations: list[TopicCreation],
        codes: dict[str, ErrorCode],
    ) -> None:
        super().__init__(waiting, request)
        self._handler = handler
        self._metadata = metadata
        self._creations = creations
        self._codes = codes
        self._reply: MetadataResponse | None = None
        self._offset = 0
        self.wait_for(metadata)
        for creation in creations:
            self.wait_for(creation)

    def deadline(self) -> Instant | None:
        return self.request.now.after_ms(WAIT_MS_MAX)

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        if self._reply is None:
            if not is_expired and not self._are_settled():
                return None
            self._reply = self._handler.respond_now(self.request, self._codes)
            self._offset = self._metadata.image_offset
        is_durable = self._metadata.committed_offset >= self._offset
        return self._reply if is_expired or is_durable else None

    def _are_settled(self) -> bool:
        topics = self._metadata.image.topics
        for creation in self._creations:
            if creation.has_failed:
                # a name that collides, or too few brokers: to a consumer the topic is just not there
                self._codes[creation.name] = creation.error
            elif not creation.is_there(topics):
                return False
        return True


def controller_id(broker_id: int, metadata: MetadataLog) -> int:
    """A broker that clients may send requests for the controller to. All brokers forward them, so any live
    broker will do; the active controller's own saves a hop.
    """
    image = metadata.image
    leader = image.brokers.get(metadata.leader_id)
    return leader.id if leader is not None and not leader.is_fenced else broker_id


def may_create(access: Access, request: Request, name: str) -> bool:
    return access.shows(request, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME) or access.allows(
        request, Operation.CREATE, Resource.TOPIC, name
    )


def refused(topic: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)


def described(view: "View", topic: TopicState) -> MetadataResponseTopic:
    response = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[view.partition(topic, index, state) for index, state in topic.partitions.items()],
    )
    if view.tells_operations:
        response.topic_authorized_operations = view.operations(topic.name)
    return response


class View:
    """How one request sees the cluster: what is asked of every partition is found out once."""

    __slots__ = (
        "_access",
        "_broken",
        "_broker_id",
        "_live",
        "_partitions",
        "_reachable",
        "_request",
        "_unreachable_code",
    )

    def __init__(
        self,
        broker_id: int,
        partitions: Partitions,
        directories: LogDirectories,
        image: ClusterImage,
        request: Request,
        access: Access | None,
    ) -> None:
        """`access`: it also tells what the client may do to topics."""
        listener = request.connection.listener
        brokers = image.live_brokers()
        self._broker_id = broker_id
        self._partitions = partitions
        self._live = frozenset(broker.id for broker in brokers)
        self._reachable = frozenset(broker.id for broker in brokers if listener in broker.endpoints)
        self._broken = frozenset(directories.offline())
        self._unreachable_code = (
            ErrorCode.LISTENER_NOT_FOUND
            if request.version >= LISTENER_ERROR_SINCE or type(request.body) is not MetadataRequest
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
        self._request = request
        self._access = access

    @property
    def tells_operations(self) -> bool:
        return self._access is not None

    def operations(self, topic: str) -> int:
        assert self._access is not None
        return self._access.operations_bits(self._request, Resource.TOPIC, topic)

    def partition(self, topic: TopicState, index: int, state: PartitionState) -> MetadataResponsePartition:
        leader = state.leader
        offline: list[int] = []
        if self._broken or not self._live.issuperset(state.replicas):
            offline = self._offline(topic, index, state)
            if leader in offline:
                leader = NO_LEADER
        code = ErrorCode.NONE
        if leader not in self._reachable:
            code = ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else self._unreachable_code
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            offline_replicas=offline,
        )

    def _offline(self, topic: TopicState, index: int, state: PartitionState) -> list[int]:
        """Replicas on brokers that are not there, and our own when its log directory failed."""
        offline = [broker for broker in state.replicas if broker not in self._live]
        own = self._partitions.of_id(topic.id)
        replica = own.replicas.get(index) if own is not None else None
        if replica is not None and replica.is_offline:
            offline.append(self._broker_id)
        return offline
