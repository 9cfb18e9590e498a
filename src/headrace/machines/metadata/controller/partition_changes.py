"""Changes of partitions in one decision, one record for each partition however many steps change it."""

from collections.abc import Callable, Collection
from dataclasses import replace

from headrace.machines.metadata.controller.brokers import has_directory
from headrace.machines.metadata.controller.leadership import Preference, change_record, settled
from headrace.machines.metadata.controller.topic_rules import TopicRules
from headrace.machines.metadata.image import NO_LEADER, BrokerState, ClusterImage, PartitionState
from headrace.machines.metadata.replica_index import PartitionKey
from headrace.protocol.metadata_records import PartitionChangeRecord
from headrace.protocol.notation import Data


class PartitionChanges:
    """Begins with the image's partitions and active brokers. Brokers leave and return, ISRs change, and
    `records` tells what came of it.
    """

    __slots__ = (
        "_after",
        "_brokers",
        "_image",
        "_renewed",
        "_restarted",
        "_rules",
        "_rules_of",
        "unclean_elections",
    )

    def __init__(self, image: ClusterImage, rules_of: Callable[[str], TopicRules]) -> None:
        self._image = image
        self._rules_of = rules_of
        self._rules: dict[bytes, TopicRules] = {}
        self._brokers = {id: broker for id, broker in image.brokers.items() if broker.is_active}
        self._after: dict[PartitionKey, PartitionState] = {}
        self._restarted: list[PartitionChangeRecord] = []  # of partitions that nothing else changes
        self._renewed: dict[PartitionKey, None] = {}
        self.unclean_elections: list[str] = []  # partitions whose new leader may lack acknowledged records

    def __getitem__(self, key: PartitionKey) -> PartitionState:
        """The partition as it will be."""
        return self._after.get(key) or self._image.topics_by_id[key[0]].partitions[key[1]]

    def records(self) -> list[Data]:
        records: list[Data] = [*self._restarted]
        for (topic_id, index), after in self._after.items():
            before = self._image.topics_by_id[topic_id].partitions[index]
            if after != before:
                records.append(change_record(topic_id, index, before, after))
            elif (topic_id, index) in self._renewed:
                records.append(
                    PartitionChangeRecord(partition_id=index, topic_id=topic_id, isr=list(before.isr))
                )
        return records

    def renew(self, key: PartitionKey) -> None:
        """Raise the partition epoch even if nothing else changes."""
        self._renewed[key] = None

    # --- brokers that come and go ------------------------------------------------------------------------

    def leave(self, brokers: Collection[int]) -> None:
        """These brokers lead nothing from now on, and leave every ISR. They may come back with all records
        that they have.
        """
        for broker in brokers:
            self._brokers.pop(broker, None)
        index = self._image.replica_index
        for key in dict.fromkeys(key for broker in sorted(brokers) for key in index.in_sync(broker)):
            self._without(key, brokers)

    def lose(self, broker: int) -> None:
        """This broker may have lost records: it leaves every ISR and ELR. What only it has stays with it."""
        self._brokers.pop(broker, None)
        index = self._image.replica_index
        for key in dict.fromkeys((*index.in_sync(broker), *index.eligible(broker))):
            self._without(key, (broker,), lost=(broker,))

    def join(self, broker: BrokerState) -> None:
        """This broker may lead from now on: partitions without a leader, if it has all of their records."""
        self._brokers[broker.id] = broker
        added = [key for key, after in self._after.items() if after.leader == NO_LEADER]
        for key in dict.fromkeys((*self._image.replica_index.leaderless(), *added)):
            if self[key].leader == NO_LEADER and broker.id in self[key].replicas:
                self.settle(key, self[key].isr)

    def restart(self, broker: BrokerState, *, is_clean: bool) -> None:
        """This broker left and is back at once. What only it has begins a new epoch with it."""
        self._brokers.pop(broker.id, None)
        shared: list[PartitionKey] = []
        for topic in self._image.topics.values():  # once per start of a process: no index is needed
            for number, partition in topic.partitions.items():
                if broker.id not in partition.replicas:
                    continue
                if len(partition.replicas) == 1:
                    self._restarted.append(restart_record(topic.id, number, partition))
                else:
                    shared.append((topic.id, number))
        for key in shared:
            if broker.id in self[key].isr or (
                not is_clean and broker.id in self[key].eligible_leader_replicas
            ):
                self._without(key, (broker.id,), lost=() if is_clean else (broker.id,))
        self._brokers[broker.id] = broker
        for key in shared:
            if self[key].leader == NO_LEADER:
                self.settle(key, self[key].isr)

    def fail_directories(self, broker: BrokerState, offline: Collection[bytes]) -> None:
        """The broker cannot read these directories: it leaves the ISR of what they contain."""
        online = tuple(directory for directory in broker.directories if directory not in offline)
        if broker.id in self._brokers:
            self._brokers[broker.id] = replace(broker, directories=online)
        for key in self._image.replica_index.in_sync(broker.id):
            partition = self[key]
            directory = partition.directories[partition.replicas.index(broker.id)]
            if directory in offline and len(partition.replicas) > 1:
                self._without(key, (broker.id,))

    # --- one partition -----------------------------------------------------------------------------------

    def settle(
        self,
        key: PartitionKey,
        isr: tuple[int, ...],
        *,
        lost: Collection[int] = (),
        preference: Preference = Preference.PRESENT,
        allows_unclean: bool = False,
        recovery: int | None = None,
    ) -> PartitionState:
        """Give the partition this ISR and the leader that follows from it."""
        partition = self[key]
        topic = self._image.topics_by_id[key[0]]
        rules = self._rules.get(topic.id)
        if rules is None:
            rules = self._rules[topic.id] = self._rules_of(topic.name)
        if allows_unclean and not rules.allows_unclean:
            rules = rules.with_unclean()

        def can_lead(replica: int) -> bool:
            broker = self._brokers.get(replica)
            return broker is not None and is_online(partition, broker)

        after, is_unclean = settled(
            partition, isr, rules, can_lead, lost=lost, preference=preference, recovery=recovery
        )
        if is_unclean:
            self.unclean_elections.append(f"{topic.name}-{key[1]}")
        self._after[key] = after
        return after

    def assign(self, key: PartitionKey, broker: BrokerState, directory: bytes) -> None:
        """The broker's replica is in this directory. If that has failed since, it leaves the ISR: the failure
        was told when the replica did not count as one that is there. If nobody leads, the replica may have
        been the only one that could, in a directory that nobody knew.
        """
        partition = self[key]
        directories = tuple(
            directory if replica == broker.id else before
            for replica, before in zip(partition.replicas, partition.directories, strict=True)
        )
        after = self._after[key] = replace(partition, directories=directories)
        if broker.id in after.isr and not is_online(after, broker):
            self._without(key, (broker.id,))
        elif after.leader == NO_LEADER:
            self.settle(key, after.isr)

    def _without(self, key: PartitionKey, brokers: Collection[int], lost: Collection[int] = ()) -> None:
        partition = self[key]
        isr = tuple(replica for replica in partition.isr if replica not in brokers)
        self.settle(key, isr, lost=lost if len(partition.replicas) > 1 else ())


def restart_record(topic_id: bytes, index: int, partition: PartitionState) -> PartitionChangeRecord:
    """The only replica leads in a new epoch. No other replica could have more records."""
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=partition.replicas[0])
    if partition.isr != partition.replicas:
        record.isr = list(partition.replicas)
    if partition.eligible_leader_replicas:
        record.eligible_leader_replicas = []
    if partition.last_known_elr:
        record.last_known_elr = []
    return record


def is_online(partition: PartitionState, broker: BrokerState) -> bool:
    """Whether the broker can read its replica. What only one broker has stays with it."""
    if len(partition.replicas) == 1:
        return True
    return has_directory(broker, partition.directories[partition.replicas.index(broker.id)])
