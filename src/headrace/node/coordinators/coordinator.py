"""Base of the three coordinators: an internal topic, and a shard for each partition of it.

A key (a group id, a transactional id or a sink's name) belongs to the partition that Java's hash of it
selects, as on every Kafka broker. The topic is created when a client first looks for a coordinator. A shard
exists where its partition is led. After a start, and when a leader has changed, shards are loaded in the
background, those that clients ask for first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple

from headrace.base.limits import COORDINATOR_NAME_CHARACTERS_MAX
from headrace.base.time import Now
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.loader import Loader
from headrace.node.coordinators.shard import M, Shard
from headrace.node.coordinators.uncommitted import Touched
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Deadlines, Lifecycle, Ports
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.node.topic_creation import TopicCreation, TopicCreations
from headrace.protocol.coordinator_records import Kinds
from headrace.protocol.errors import ErrorCode
from headrace.storage.log import PartitionLog

NOWHERE = -1
PAUSE_BETWEEN_LOADS_MS = 1
# After a start producers come first; whoever asks for a coordinator before makes it load at once.
FIRST_LOAD_AFTER_MS = 200


class Keys(NamedTuple):
    """What the keys of a coordinator are to authorization, and the errors about them."""

    resource: Resource
    unauthorized: ErrorCode
    too_long: ErrorCode


# Sinks have transactional ids, too: their attempts are transactions.
TRANSACTIONAL_IDS = Keys(
    Resource.TRANSACTIONAL_ID,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,
)


class Coordinator(Generic[M]):
    def __init__(
        self,
        topic: str,
        kinds: Kinds,
        make: Callable[[Partition], M],
        act: Callable[[Now, Shard[M], Any], None],
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        creations: TopicCreations,
        settings: LiveSettings,
        ports: Ports,
        access: Access,
        keys: Keys,
        touched: Touched | None = None,
    ) -> None:
        self._touched = touched
        self._access = access
        self._keys = keys
        self._partitions = partitions
        self._directories = directories
        self._metadata = metadata
        self._creations = creations
        self._settings = settings
        self._ports = ports
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self.topic = topic
        self._kinds = kinds
        self._make = make
        self._act = act
        self._shards: dict[int, Shard[M]] = {}
        self._places: dict[str, int] = {}  # of keys, hashed once
        self._loads = Loads(self._deadlines, self._lifecycle, self._loaded)

    # --- where a key lives ---------------------------------------------------------------------------------

    def asked(
        self, request: Request, operation: Operation, key: str, names: Sequence[str] = ()
    ) -> Shard[M] | ErrorCode:
        """The loaded shard of the key, if the client is authorized for the operation; else the error. `names`
        are others that the shard would keep.
        """
        access = self._access
        if access.rights is not None and not access.allows(request, operation, self._keys.resource, key):
            return self._keys.unauthorized
        for name in names:
            if len(name) > COORDINATOR_NAME_CHARACTERS_MAX:
                return ErrorCode.INVALID_REQUEST
        return self.shard_of(request.now, key)

    def shard_of(self, now: Now, key: str) -> Shard[M] | ErrorCode:
        """The loaded shard of the key, or the error if there is none."""
        shard = self._shards.get(self._places.get(key, NOWHERE))
        if shard is not None and shard.current is not None:
            partition = shard.partition
            if (
                partition.is_led_here
                and partition.leader_epoch == shard.epoch
                and not partition.is_offline
                and not partition.is_deleted
            ):
                return shard
        if len(key) > COORDINATOR_NAME_CHARACTERS_MAX:
            return self._keys.too_long
        topic = self._partitions.of_name(self.topic)
        replica = topic.replicas.get(self._place(key, topic.count)) if topic is not None else None
        return ErrorCode.NOT_COORDINATOR if replica is None else self._loaded(now, replica)

    def _loaded(self, now: Now, partition: Partition) -> Shard[M] | ErrorCode:
        if not partition.is_led_here:
            return ErrorCode.NOT_COORDINATOR
        shard = self._shards.get(partition.index)
        if shard is None or shard.partition is not partition or not shard.is_led:
            shard = self._open(now, partition)
        if partition.is_offline:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE  # its memory may know what its disk has lost
        return shard if shard.current is not None else shard.refusal

    def place_of(self, key: str) -> tuple[str, int] | None:
        """The partition in which the key's records are, on whatever broker; None: the topic is not there
        yet.
        """
        topic = self._metadata.image.topics.get(self.topic)
        return None if topic is None else (self.topic, self._place(key, len(topic.partitions)))

    def leader_of(self, key: str) -> int | None:
        """The broker that coordinates the key according to the metadata, also if that is not committed
        yet.
        """
        topic = self._metadata.image.topics.get(self.topic)
        return None if topic is None else topic.partitions[self._place(key, len(topic.partitions))].leader

    def _place(self, key: str, count: int) -> int:
        place = self._places.get(key)
        if place is None or place >= count:
            place = java_hash(key) % count
            if len(key) <= KEY_REMEMBERED_CHARACTERS_MAX:
                if len(self._places) > KEYS_REMEMBERED_MAX:
                    self._places.clear()
                self._places[key] = place
        return place

    def _open(self, now: Now, partition: Partition) -> Shard[M]:
        self.no_longer_led(now, partition.index)  # of the epoch before, if there is one
        shard = self._shards[partition.index] = Shard(
            partition,
            self._kinds,
            self._make,
            self._act,
            self._loader,
            self.shard_loaded,
            self._directories,
            self._ports,
            self._settings.current.offsets_commit_timeout_ms,
            self._touched,
        )
        shard.load(now)
        return shard

    def _loader(self, shard: Shard[M], log: PartitionLog, machine: M) -> Loader:
        return Loader(
            shard,
            shard.partition,
            log,
            machine,
            self._directories,
            self._ports,
            chunk_bytes=self._settings.current.offsets_load_buffer_size,
        )

    def shard_loaded(self, now: Now, shard: Shard[M]) -> None:
        """The shard has a machine in which the whole log was replayed."""

    # --- leaders ----------------------------------------------------------------------------------------

    def leader_changed(self, now: Now, index: int) -> None:
        """Committed metadata has begun another leader epoch of a partition."""
        partition = self._partitions.at(self.topic, index)
        shard = self._shards.get(index)
        if shard is not None and shard.partition is partition and shard.is_led:
            return
        self.no_longer_led(now, index)
        if partition is not None and partition.is_led_here:
            self.led(now, partition)

    def led(self, now: Now, partition: Partition) -> None:
        """The broker leads the partition in a new epoch: what was under way there is taken up, without
        anybody asking.
        """
        self._loads.add(now, [partition])

    def no_longer_led(self, now: Now, index: int) -> None:
        """The leader epoch in which the shard lived is over: its machine, its timers and its orders end, and
        clients that wait look for the coordinator again.
        """
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.close(now)

    # --- all of them ------------------------------------------------------------------------------------

    def shards(self, now: Now) -> Iterator[Shard[M] | ErrorCode]:
        """Every shard of this node, loaded or with the reason why not."""
        for partition in self._replicas():
            if partition.is_led_here:
                yield self._loaded(now, partition)

    def _replicas(self) -> list[Partition]:
        """Partitions of the topic of which this broker has a replica."""
        topic = self._partitions.of_name(self.topic)
        return list(topic.replicas.values()) if topic is not None else []

    def loaded_shards(self) -> list[Shard[M]]:
        return [shard for shard in self._shards.values() if shard.current is not None]

    def at(self, index: int) -> Shard[M] | None:
        return self._shards.get(index)

    def load_all(self, now: Now) -> None:
        """After a start: what was under way is taken up again, without anybody asking."""
        self._loads.add(now, self._replicas(), FIRST_LOAD_AFTER_MS)

    def log_not_opened(self, now: Now, partition: Partition, fault: Exception) -> None:
        """The partition moved, and its log could not be opened: a machine lives on an open log only."""
        shard = self._shards.get(partition.index) if partition.topic == self.topic else None
        if shard is not None and shard.current is not None:  # one that is being loaded opens it itself
            shard.fail(now, fault)

    def topic_removed(self, now: Now) -> None:
        for shard in self._shards.values():
            shard.close(now)
        self._shards.clear()
        self._places.clear()

    # --- the topic --------------------------------------------------------------------------------------

    def ensure_topic(
        self, now: Now, partitions: int, replication_factor: int, configs: Mapping[str, str | None]
    ) -> TopicCreation | None:
        """Has the internal topic created if it does not exist.

        With fewer brokers than the configured replicas, the topic gets one replica per broker: otherwise a
        single node would never have a coordinator.
        """
        if self.topic in self._metadata.image.topics:
            return None
        from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

        topic = CreatableTopic(
            name=self.topic,
            num_partitions=partitions,
            replication_factor=min(replication_factor, self.brokers_expected()),
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        (creation,) = self._creations.create(now, [topic])
        return creation

    def brokers_expected(self) -> int:
        """All that are registered, also fenced ones, and those that will be: if this process is broker and
        controller, so are the other voters. A broker that is late does not cost the topic a replica.
        """
        settings = self._settings.current
        brokers = set(self._metadata.image.brokers)
        if "controller" in settings.process_roles:
            brokers.update(voter.id for voter in settings.quorum_voters)
        return len(brokers)


class Loads:
    """Loads shards in the background, one after the other, a pause after each."""

    __slots__ = ("_deadlines", "_is_pausing", "_lifecycle", "_load", "_rest", "is_done")

    def __init__(
        self, deadlines: Deadlines, lifecycle: Lifecycle, load: Callable[[Now, Partition], Any]
    ) -> None:
        self._deadlines = deadlines
        self._lifecycle = lifecycle
        self._load = load
        self._rest: dict[Partition, None] = {}
        self._is_pausing = False
        self.is_done = False  # as an entry of the deadlines

    def add(self, now: Now, partitions: Iterable[Partition], delay_ms: int = 0) -> None:
        self._rest.update(dict.fromkeys(partitions))
        self._pause(now, delay_ms)

    def _pause(self, now: Now, delay_ms: int) -> None:
        if self._rest and not self._is_pausing:
            self._is_pausing = True
            self._deadlines.add(now.after_ms(delay_ms), self)

    def expired(self, now: Now) -> None:
        self._is_pausing = False
        if self._lifecycle.is_stopping:
            return
        partition = next(iter(self._rest))
        del self._rest[partition]
        try:
            if not partition.is_deleted:
                self._load(now, partition)
        finally:  # a mistake in one must not keep the others from being loaded
            self._pause(now, PAUSE_BETWEEN_LOADS_MS)


def take_over(settings: Any, fresh: Any) -> None:
    """Give one settings object the values of another of its kind."""
    for name in settings.__dataclass_fields__:
        setattr(settings, name, getattr(fresh, name))


# Groups and transactional ids whose place is remembered; Java's hash takes some 50 ns per character.
KEYS_REMEMBERED_MAX = 100_000
KEY_REMEMBERED_CHARACTERS_MAX = 256

# The least that a topic may set as segment.bytes; the settings of internal topics may ask for less.
SEGMENT_BYTES_MIN = 1024 * 1024


def segment_bytes(setting: int) -> str:
    """What an internal topic gets as segment.bytes."""
    return str(max(setting, SEGMENT_BYTES_MIN))


def java_hash(text: str) -> int:
    """What Java's `String.hashCode` gives, without its sign: the place of a key is this modulo partitions.

    The smallest int has no positive counterpart and counts as 0, as in Kafka.
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFF_FFFF
    if value >= 0x8000_0000:
        value -= 0x1_0000_0000
    return 0 if value == -0x8000_0000 else abs(value)
