"""Metadata, key 3, versions 0–13: the brokers, and where each partition of the asked topics is led.

From version 1 null topics are all and an empty list is none; version 0 has an empty list for all. Topics can
be asked for by id from version 12 on. A missing topic is created when the client and the settings allow it;
then the answer waits until the topic is durable.
"""

from collections.abc import Iterable, Iterator

from headrace.base.ids import NO_TOPIC_ID, TopicId
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.controller.names import name_fault
from headrace.machines.metadata.image import NO_LEADER, ClusterImage, PartitionState, TopicState
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource, operations_bits
from headrace.node.faults import FAULTS, code_of
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partitions import INTERNAL_TOPICS, Partitions
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.node.sliced_reply import Slicing
from headrace.node.spliced import spliced
from headrace.node.waiting import Parked
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
        decisions: ControllerDecisions,
        settings: LiveSettings,
        access: Access,
        slicing: Slicing,
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._directories = directories
        self._metadata = metadata
        self._decisions = decisions
        self._settings = settings
        self._access = access
        self._slicing = slicing

    def handle(self, request: Request) -> MetadataResponse | Parked:
        body: MetadataRequest = request.body
        asked = body.topics
        view = View(
            self._broker_id,
            self._partitions,
            self._directories,
            self._metadata.image,
            request,
            tells_operations=body.include_topic_authorized_operations,
        )
        creates = body.allow_auto_topic_creation and self._settings.current.auto_create_topics_enable
        topics: Iterator[MetadataResponseTopic]
        if asked is None or (not asked and request.version == 0):
            count = len(self._metadata.image.topics)
            topics = self._all_topics(request, view)
        elif request.version < BY_ID_SINCE and any(topic.topic_id != NO_TOPIC_ID for topic in asked):
            return MetadataResponse(topics=[refused(topic, ErrorCode.INVALID_REQUEST) for topic in asked])
        elif creates:
            count = 0  # what is missing is created in one go, whatever that takes
            topics = iter(self._asked_or_created(request, view, asked))
        else:
            count = len(asked)
            topics = self._asked_topics(request, view, asked)
        response = MetadataResponse(
            brokers=self._brokers(request.connection.listener),
            cluster_id=self._directories.cluster_id,
            controller_id=self._broker_id,
        )
        if body.include_cluster_authorized_operations and self._access.allows(
            request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME
        ):
            response.cluster_authorized_operations = operations_bits(Resource.CLUSTER)
        if count > TOPICS_AT_ONCE:
            steps = spliced(request, response, "topics", topics, together=TOPICS_PER_UNIT)
            return self._slicing.reply(request, steps, units=TOPICS_AT_ONCE // TOPICS_PER_UNIT)
        response.topics = list(topics)
        # the image may be ahead of what is durable
        return self._metadata.when_committed(request, self._metadata.end_offset, response)

    def _brokers(self, listener: str) -> list[MetadataResponseBroker]:
        """Those that can be reached by the client's own listener, at the address it is told there."""
        return [
            MetadataResponseBroker(
                node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker in self._metadata.image.live_brokers()
            if (endpoint := broker.endpoints.get(listener)) is not None
        ]

    def _all_topics(self, request: Request, view: "View") -> Iterator[MetadataResponseTopic]:
        for topic in list(self._metadata.image.topics.values()):
            if self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, topic.name):
                yield described(view, topic)

    def _asked_topics(
        self, request: Request, view: "View", asked: Iterable[MetadataRequestTopic]
    ) -> Iterator[MetadataResponseTopic]:
        """Each is told once, in the order asked."""
        seen: set[object] = set()
        for topic in asked:
            key = topic.name if topic.topic_id == NO_TOPIC_ID else topic.topic_id
            if key not in seen:
                seen.add(key)
                yield self._told(request, view, topic)

    def _told(self, request: Request, view: "View", topic: MetadataRequestTopic) -> MetadataResponseTopic:
        image = self._metadata.image
        if topic.topic_id != NO_TOPIC_ID:
            by_id = image.topics_by_id.get(TopicId(topic.topic_id))
            if by_id is None or not self._access.allows(
                request, Operation.DESCRIBE, Resource.TOPIC, by_id.name
            ):
                code = ErrorCode.UNKNOWN_TOPIC_ID
                return MetadataResponseTopic(error_code=code, name=None, topic_id=topic.topic_id)
            return described(view, by_id)
        name = topic.name
        if name is None:
            return refused(topic, ErrorCode.INVALID_REQUEST)
        if not self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, name):
            return refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name in image.topics:
            return described(view, image.topics[name])
        if name_fault(name) is not None:
            return refused(topic, ErrorCode.INVALID_TOPIC_EXCEPTION)
        return refused(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _asked_or_created(
        self, request: Request, view: "View", asked: list[MetadataRequestTopic]
    ) -> list[MetadataResponseTopic]:
        """The same, and those that do not exist yet do so from now on."""
        topics = list(self._asked_topics(request, view, asked))
        missing = {
            topic.name: place
            for place, topic in enumerate(topics)
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        if missing:
            wanted = [topic for topic in asked if topic.topic_id == NO_TOPIC_ID and topic.name in missing]
            for name, created in self._auto_created(request, view, wanted).items():
                topics[missing[name]] = created
        return topics

    def _auto_created(
        self, request: Request, view: "View", missing: Iterable[MetadataRequestTopic]
    ) -> dict[str, MetadataResponseTopic]:
        """Create what is missing, with the broker's defaults."""
        results: dict[str, MetadataResponseTopic] = {}
        wanted: dict[str, NewTopic] = {}
        for topic in missing:
            name = topic.name
            assert name is not None
            if may_create(self._access, request, name):
                wanted[name] = NewTopic(name)
            else:
                results[name] = refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        decision = self._decisions.create_topics(list(wanted.values()))
        try:
            self._metadata.propose(request.now, decision)
        except FAULTS as fault:
            for name in wanted:
                results[name] = MetadataResponseTopic(error_code=code_of(fault), name=name)
            return results
        for created in decision.reply:
            if created.error is ErrorCode.NONE:
                results[created.name] = described(view, self._metadata.image.topics[created.name])
            else:
                # a name that collides, or too few brokers: to a consumer the topic is just not there
                results[created.name] = MetadataResponseTopic(error_code=created.error, name=created.name)
        return results


def may_create(access: Access, request: Request, name: str) -> bool:
    return access.allows(request, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME) or access.allows(
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
        response.topic_authorized_operations = operations_bits(Resource.TOPIC)
    return response


class View:
    """How one request sees the cluster: what is asked of every partition is found out once."""

    __slots__ = (
        "_broken",
        "_broker_id",
        "_live",
        "_partitions",
        "_reachable",
        "_unreachable_code",
        "tells_operations",
    )

    def __init__(
        self,
        broker_id: int,
        partitions: Partitions,
        directories: LogDirectories,
        image: ClusterImage,
        request: Request,
        *,
        tells_operations: bool = False,
    ) -> None:
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
        self.tells_operations = tells_operations

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
        if own is not None and index < len(own) and own[index].is_offline:
            offline.append(self._broker_id)
        return offline
