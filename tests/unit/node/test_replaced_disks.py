"""Log directories of followers that fail, and brokers that come back with a new disk in the place of one."""

from __future__ import annotations

import pytest

from harness.replica_brokers import TOPIC_ID, Channel, ReplicaBrokers
from headrace.protocol.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk
from headrace.storage.memory_disk import MemoryDisk


class BrokersWithDisks(ReplicaBrokers):
    """Each has a disk for metadata, and one for records that can be replaced."""

    def __init__(self) -> None:
        self.pairs: dict[int, dict[str, Disk]] = {
            id: {"metadata": MemoryDisk(), "records": MemoryDisk()} for id in (1, 2)
        }
        super().__init__(2)

    def _start(self, id: int, boot: str = "boot-1") -> None:
        settings = self._settings | {
            "node.id": str(id),
            "listeners": f"PLAINTEXT://127.0.0.1:{9090 + id}",
            "log.dirs": "records",
            "metadata.log.dir": "metadata",
        }
        seed = 100 * len(self.hosts) + id
        host = ManualHost(settings, disks=self.pairs[id], clock=self.clock, boot_id=boot, seed=seed)
        channel = self.channels[id] = Channel()
        host.node.broker.replication._isr_changes._channel = channel
        self.hosts[id] = host

    def directory_id(self, id: int) -> bytes:
        return self.hosts[id].node.directories["records"].directory_id


@pytest.mark.parametrize("isr", [[1], [1, 2], [2]])
def test_its_replicas_are_made_again_unless_they_are_counted_on(isr: list[int]) -> None:
    """Others that are in sync have what is committed. The broker registers as one that has lost records."""
    is_counted_on = isr == [2]
    brokers = BrokersWithDisks()
    brokers.create_topic()
    brokers.exchange()
    places = [brokers.directory_id(1), brokers.directory_id(2)]
    brokers.tell(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, directories=places))
    brokers.produce(1, b"a")
    brokers.advance(2.0)
    assert brokers.values(2) == [b"a"]
    brokers.tell(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=isr))
    brokers.kill(2)
    brokers.pairs[2]["records"] = MemoryDisk()
    brokers.restart(2)
    brokers.advance(5.0)
    assert brokers.partition(2).is_offline == is_counted_on
    if not is_counted_on:
        assert brokers.values(2) == [b"a"]
        assert brokers.hosts[2].node.broker.registration.previous_epoch == -1


OTHER_DIRECTORY = b"a directory left"


@pytest.mark.parametrize("is_in_sync", [True, False])
def test_a_leader_does_not_wait_for_a_replica_whose_directory_has_failed(is_in_sync: bool) -> None:
    """The controller has taken it out of the ISR. Its broker is alive, and the replica had everything."""
    brokers = ReplicaBrokers(3, settings={"replica.lag.time.max.ms": "30000"})
    brokers.create_topic(min_insync_replicas="2")
    failing = b"one that fails!!"
    log_dirs = BrokerRegistrationChangeRecord(
        broker_id=3, broker_epoch=brokers.epoch_of(3), log_dirs=[failing, OTHER_DIRECTORY]
    )
    places = [bytes(16), bytes(16), failing]
    isr = [1, 2, 3] if is_in_sync else [1, 2]
    brokers.tell(
        log_dirs, PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, directories=places, isr=isr)
    )
    brokers.produce(1, b"a")
    brokers.exchange()
    assert brokers.values(3) == [b"a"]
    brokers.channels[1].questions.clear()  # to join, if it was not in sync
    brokers.partition(3).go_offline(brokers.clock.now())
    brokers.exchange()
    failure = BrokerRegistrationChangeRecord(
        broker_id=3, broker_epoch=brokers.epoch_of(3), log_dirs=[OTHER_DIRECTORY]
    )
    brokers.tell(failure, PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=[1, 2]))
    assert not brokers.channels[1].questions, "it does not ask to have it back"
    host, connection = brokers.produce(1, b"b")
    brokers.exchange()
    brokers.control()
    assert brokers.state().isr == (1, 2)
    assert host.answers[connection.id], "the others are in sync"
