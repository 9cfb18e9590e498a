"""What the coordinators of groups and of transactions have in common: an internal topic, and a shard per
partition of it.

A key (a group's or a transactional id) belongs to the partition that Java's hash of it names, as every
Kafka broker computes it. The topic is made when a client first looks for a coordinator. After a start all
shards are loaded in the background, those that somebody asks for first.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Generic

from headrace.base.time import Now
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.node.coordinators.loader import Loader
from headrace.node.coordinators.shard import M, Shard
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Deadlines, Lifecycle, Ports
from headrace.node.settings import LiveSettings
from headrace.protocol.coordinator_records import Kinds
from headrace.protocol.errors import ErrorCode
from headrace.storage.log import PartitionLog

PAUSE_BETWEEN_LOADS_MS = 1
# After a start producers come first; whoever asks for a coordinator before makes it load at once.
FIRST_LOAD_AFTER_MS = 200


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
        decisions: ControllerDecisions,
        settings: LiveSettings,
        ports: Ports,
    ) -> None:
        self._partitions = partitions
        self._directories = directories
        self._metadata = metadata
        self._decisions = decisions
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

    # --- where a key lives ---------------------------------------------------------------------------------

    def shard_of(self, now: Now, key: str) -> Shard[M] | ErrorCode:
        """The loaded shard of the key, or why there is none."""
        partitions = self._partitions.of_name(self.topic)
        if partitions is None:
            return ErrorCode.NOT_COORDINATOR
        return self._loaded(now, partitions[self._place(key, len(partitions))])

    def _loaded(self, now: Now, partition: Partition) -> Shard[M] | ErrorCode:
        shard = self._shards.get(partition.index)
        if shard is None or shard.partition is not partition:
            if not partition.is_led_here:
                return ErrorCode.NOT_COORDINATOR
            shard = self._open(now, partition)
        if partition.is_offline:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE  # its memory may know what its disk has lost
        return shard if shard.current is not None else shard.refusal

    def partition_of(self, key: str) -> Partition | None:
        """Where the key's records are; None: the topic is not there yet."""
        partitions = self._partitions.of_name(self.topic)
        return None if partitions is None else partitions[self._place(key, len(partitions))]

    def leader_of(self, key: str) -> int | None:
        """The broker that coordinates the key, as far as the metadata tells, committed or about to be."""
        topic = self._metadata.image.topics.get(self.topic)
        return None if topic is None else topic.partitions[self._place(key, len(topic.partitions))].leader

    def _place(self, key: str, count: int) -> int:
        place = self._places.get(key)
        if place is None or place >= count:
            if len(self._places) > KEYS_REMEMBERED_MAX:
                self._places.clear()
            place = self._places[key] = java_hash(key) % count
        return place

    def _open(self, now: Now, partition: Partition) -> Shard[M]:
        shard = self._shards[partition.index] = Shard(
            partition, self._kinds, self._make, self._act, self._loader, self._directories, self._ports
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

    # --- all of them ------------------------------------------------------------------------------------

    def shards(self, now: Now) -> Iterator[Shard[M] | ErrorCode]:
        """Every shard of this node, loaded or with the reason why not."""
        for partition in self._partitions.of_name(self.topic) or ():
            if partition.is_led_here:
                yield self._loaded(now, partition)

    def loaded_shards(self) -> list[Shard[M]]:
        return [shard for shard in self._shards.values() if shard.current is not None]

    def at(self, index: int) -> Shard[M] | None:
        return self._shards.get(index)

    def load_all(self, now: Now) -> None:
        """After a start: what was under way is taken up again, without anybody asking."""
        partitions = self._partitions.of_name(self.topic)
        if partitions:
            OneByOne(self._deadlines, self._lifecycle, iter(list(partitions)), self._loaded).start(now)

    def log_not_opened(self, now: Now, partition: Partition, fault: Exception) -> None:
        """The partition moved, and its log could not be opened: a machine lives on an open log only."""
        shard = self._shards.get(partition.index) if partition.topic == self.topic else None
        if shard is not None and shard.machine is not None:
            shard.fail(now, fault)

    def topic_removed(self, now: Now) -> None:
        for shard in self._shards.values():
            shard.close(now)
        self._shards.clear()
        self._places.clear()

    # --- the topic --------------------------------------------------------------------------------------

    def ensure_topic(
        self, now: Now, partitions: int, replication_factor: int, configs: Mapping[str, str | None]
    ) -> None:
        """Make the internal topic if it is not there. FAULTS when the metadata log cannot take it.

        Where fewer brokers live than replicas are wished for, it gets as many as there are: a single node
        would never have a coordinator otherwise.
        """
        metadata = self._metadata
        if self.topic in metadata.image.topics:
            return
        factor = min(replication_factor, len(metadata.image.live_brokers()))
        decision = self._decisions.create_topics(
            [NewTopic(self.topic, partitions, factor, configs=dict(configs))]
        )
        (created,) = decision.reply
        if created.error is not ErrorCode.NONE:
            # nobody but the operator can help: clients only see that there is no coordinator
            self._reports.report("error", "internal_topic_refused", topic=self.topic, error=created.message)
        metadata.propose(now, decision)


class OneByOne:
    """Loads shards in the order of their partitions, a pause after each."""

    __slots__ = ("_deadlines", "_lifecycle", "_load", "_rest", "is_done")

    def __init__(
        self,
        deadlines: Deadlines,
        lifecycle: Lifecycle,
        partitions: Iterator[Partition],
        load: Callable[[Now, Partition], Any],
    ) -> None:
        self._deadlines = deadlines
        self._lifecycle = lifecycle
        self._rest = partitions
        self._load = load
        self.is_done = False

    def start(self, now: Now, delay_ms: int = FIRST_LOAD_AFTER_MS) -> None:
        self._deadlines.add(now.after_ms(delay_ms), self)

    def expired(self, now: Now) -> None:
        partition = next(self._rest, None)
        if partition is not None and not self._lifecycle.is_stopping:
            try:
                if not partition.is_deleted:
                    self._load(now, partition)
            finally:  # a mistake in one must not keep the others from being loaded
                self.start(now, PAUSE_BETWEEN_LOADS_MS)


def take_over(settings: Any, fresh: Any) -> None:
    """Give one settings object the values of another of its kind."""
    for one in fields(settings):
        setattr(settings, one.name, getattr(fresh, one.name))


# Groups and transactional ids whose place is remembered; Java's hash takes some 50 ns per character.
KEYS_REMEMBERED_MAX = 100_000

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
