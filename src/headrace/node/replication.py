"""Replication among brokers: fetching for partitions that are followed, in-sync sets of those that are led.

This module builds the parts and connects them: fetchers (`node/replica_fetchers.py`), changes of in-sync sets
(`node/isr_changes.py`), and which brokers are alive according to the committed metadata.
"""

from collections.abc import Callable, Mapping
from typing import Any

from headrace.base.ids import BrokerId
from headrace.base.time import Now
from headrace.machines.metadata.controller.brokers import has_directory
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.replication.leader import IsrCounts, ProposeIsr, Woke
from headrace.node.isr_changes import Channel, IsrChanges
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.ports import Every, Ports
from headrace.node.replica_fetchers import ReplicaFetchers
from headrace.node.settings import LiveSettings
from headrace.node.vanished_brokers import VanishedBrokers
from headrace.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

BROKER_RECORDS = (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)


class BrokerReplication:
    def __init__(
        self,
        broker_id: int,
        metadata: MetadataLog,
        channel: Channel,
        settings: LiveSettings,
        directories: LogDirectories,
        vanished: VanishedBrokers,
        ports: Ports,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._settings = settings
        self._deadlines = ports.deadlines
        self._live: dict[BrokerId, int] = {}  # the leaders of all partitions look into it
        self._online: dict[BrokerId, tuple[bytes, ...]] = {}  # log directories of those
        self.isr_counts = IsrCounts()
        self._replicas: Callable[[], list[Partition]] = list
        self._fetchers = ReplicaFetchers(
            broker_id, self.broker_epoch, metadata, settings, directories, vanished, ports
        )
        self._isr_changes = IsrChanges(broker_id, self.broker_epoch, channel, ports)
        self._fetches_as = self.broker_epoch()
        self._look_at_brokers(metadata.image)

    def start(self, now: Now, replicas: Callable[[], list[Partition]]) -> None:
        """Watch the lag of followers. `replicas` are all partitions of this broker."""
        self._replicas = replicas
        lag_ms = self._settings.current.replica_lag_time_max_ms
        Every(self._deadlines, max(lag_ms // 2, 1), self._watch_lag).start(now)

    def broker_epoch(self) -> int:
        """Of this run, as the committed metadata have it."""
        own = self._metadata.image.brokers.get(self._broker_id)
        return own.epoch if own is not None else -1

    # --- what partitions ask -----------------------------------------------------------------------------

    @property
    def live(self) -> Mapping[BrokerId, int]:
        return self._live

    def has_directory(self, broker: BrokerId, directory: bytes) -> bool:
        state = self._metadata.image.brokers.get(broker)
        return state is not None and has_directory(state, directory)

    @property
    def lag_seconds(self) -> float:
        return self._settings.current.replica_lag_time_max_ms / 1000

    def follow(self, now: Now, partition: Partition) -> None:
        self._fetchers.follow(now, partition)

    def unfollow(self, now: Now, partition: Partition) -> None:
        self._fetchers.unfollow(now, partition)

    def propose(self, now: Now, partition: Partition, proposal: ProposeIsr) -> None:
        self._isr_changes.propose(now, partition, proposal)

    # --- brokers that come and go ------------------------------------------------------------------------

    def committed(self, now: Now, image: ClusterImage, records: list[Any]) -> None:
        """Before partitions take the same records: their leaders see who is alive."""
        if any(isinstance(record, BROKER_RECORDS) for record in records):
            before, online = dict(self._live), dict(self._online)
            self._look_at_brokers(image)
            if self.broker_epoch() != self._fetches_as:
                self._fetches_as = self.broker_epoch()
                self._fetchers.begin_again()
            if before != self._live or online != self._online:
                self._watch_lag(now)

    def _look_at_brokers(self, image: ClusterImage) -> None:
        self._live.clear()
        self._online.clear()
        for id, broker in image.brokers.items():
            if broker.is_active:
                self._live[BrokerId(id)] = broker.epoch
                self._online[BrokerId(id)] = broker.directories

    def _watch_lag(self, now: Now) -> None:
        """Followers that are behind for too long leave the in-sync set, and nobody waits for the dead."""
        for partition in self._replicas():
            leader = partition.leader
            if leader is not None and leader.followers:
                partition.carry_out(now, leader.step(now.mono, Woke()))
