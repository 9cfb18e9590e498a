"""Random histories of a cluster of four brokers, as the active controller decides about them.

After each event the invariants of leaders and ISRs hold, and the records alone rebuild the same image. The
model knows which replicas have every acknowledged record: only one of those leads, unless the decision said
that it is unclean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.metadata.controller.alter_partition import IsrChange, IsrMember
from headrace.machines.metadata.controller.create_partitions import MorePartitions
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.controller.delete_topics import DoomedTopic
from headrace.machines.metadata.controller.elect_leaders import Election
from headrace.machines.metadata.image import NO_LEADER, ClusterImage, PartitionState
from headrace.machines.metadata.replica_index import PartitionKey, ReplicaIndex
from headrace.machines.metadata.snapshot import image_hash, snapshot_records
from headrace.machines.metadata.versions import FINALIZED_AT_FORMAT, encode
from headrace.protocol.metadata_records import decode_record
from unit.machines.metadata.cluster import Cluster, directory

BROKERS = (1, 2, 3, 4)
EVENTS = (
    "create",
    "grow",
    "delete",
    "crash",
    "silence",
    "start",
    "start_after_loss",
    "start_local",
    "beat",
    "stop",
    "directory_fails",
    "isr",
    "prefer",
    "unclean",
    "unregister",
    "producer_ids",
    "new_controller",
)


@dataclass
class Story:
    cluster: Cluster
    rng: Random
    tracks_eligible: bool
    complete: dict[PartitionKey, set[int]] = field(default_factory=dict)  # who has all that was acknowledged
    ids: set[int] = field(default_factory=set)  # first producer ids of the blocks given
    topics: int = 0

    def act(self, event: str) -> None:
        getattr(self, f"_{event}")()

    # --- events --------------------------------------------------------------------------------------------

    def _known(self) -> int:
        return self.rng.choice(sorted(self.cluster.image.brokers) or [1])

    def _create(self) -> None:
        self.topics += 1
        topic = NewTopic(
            f"t.{self.topics}",
            self.rng.randint(1, 3),
            self.rng.randint(1, 3),
            configs={
                "min.insync.replicas": str(self.rng.randint(1, 3)),
                "unclean.leader.election.enable": str(self.rng.random() < 0.2).lower(),
            },
        )
        self.cluster.apply(self.cluster.controller.create_topics([topic]))

    def _grow(self) -> None:
        for name, topic in list(self.cluster.image.topics.items())[:1]:
            more = MorePartitions(name, len(topic.partitions) + 1)
            self.cluster.apply(self.cluster.controller.create_partitions([more]))

    def _delete(self) -> None:
        if len(self.cluster.image.topics) > 3:
            name = self.rng.choice(sorted(self.cluster.image.topics))
            self.cluster.apply(self.cluster.controller.delete_topics([DoomedTopic(name)]))

    def _crash(self) -> None:
        self.cluster.fence(*self.rng.sample(BROKERS, self.rng.randint(1, 2)))

    def _silence(self) -> None:
        self.cluster.clock.advance(self.rng.randint(1, 9))
        self.cluster.fence(*self.cluster.sessions.take_ended(self.cluster.clock.now()))

    def _start(self) -> None:
        self.cluster.start(self.rng.choice(BROKERS))

    def _start_after_loss(self) -> None:
        broker = self.rng.choice(BROKERS)
        for held in self.complete.values():
            held.discard(broker)
        self.cluster.start(broker, is_clean=False)

    def _start_local(self) -> None:
        broker = self.rng.choice(BROKERS)
        is_clean = self.rng.random() < 0.5
        if not is_clean:
            for held in self.complete.values():
                held.discard(broker)
        registration = self.cluster.registration(broker, is_clean=is_clean)
        self.cluster.apply(
            self.cluster.controller.register_broker(registration, self.cluster.end_offset, is_local=True)
        )

    def _beat(self) -> None:
        if self.cluster.image.brokers:
            self.cluster.beat(self._known(), wants_fence=self.rng.random() < 0.1)

    def _stop(self) -> None:
        if self.cluster.image.brokers:
            self.cluster.beat(self._known(), wants_shutdown=True)

    def _directory_fails(self) -> None:
        if self.cluster.image.brokers:
            broker = self._known()
            self.cluster.beat(broker, offline=[directory(broker)])

    def _isr(self) -> None:
        led = [
            (topic, index, state)
            for topic, index, state in self.cluster.image.partitions()
            if state.leader != NO_LEADER
        ]
        if not led:
            return
        topic, index, state = self.rng.choice(led)
        others = [replica for replica in state.replicas if replica != state.leader]
        isr = [state.leader, *self.rng.sample(others, self.rng.randint(0, len(others)))]
        brokers = self.cluster.image.brokers
        change = IsrChange(
            topic.id,
            index,
            state.leader_epoch - (self.rng.random() < 0.1),
            state.partition_epoch,
            [IsrMember(id, brokers[id].epoch if id in brokers else -1) for id in isr],
        )
        epoch = brokers[state.leader].epoch
        decision = self.cluster.controller.alter_partitions(state.leader, epoch, [change])
        self.cluster.apply(decision)
        told = decision.reply[0].partition
        assert told is None or told == topic.partitions[index]

    def _prefer(self) -> None:
        self._elect(Election.PREFERRED)

    def _unclean(self) -> None:
        self._elect(Election.UNCLEAN)

    def _elect(self, election: Election) -> None:
        all_of_them = [(topic.name, index) for topic, index, _ in self.cluster.image.partitions()]
        chosen = self.rng.sample(all_of_them, min(2, len(all_of_them)))
        self.cluster.apply(self.cluster.controller.elect_leaders(election, chosen))

    def _unregister(self) -> None:
        if self.cluster.image.brokers and self.rng.random() < 0.3:
            broker = self._known()
            if self.tracks_eligible:
                # It may come back without its records. Without the feature nobody can tell, as after a
                # loss: the last member of an ISR stays in it, and leads again when it is back.
                for held in self.complete.values():
                    held.discard(broker)
            self.cluster.apply(self.cluster.controller.unregister_broker(broker))

    def _producer_ids(self) -> None:
        if self.cluster.image.brokers:
            broker = self._known()
            epoch = self.cluster.image.brokers[broker].epoch
            block = self.cluster.apply(self.cluster.controller.allocate_producer_ids(broker, epoch))
            assert block.start not in self.ids
            self.ids.add(block.start)

    def _new_controller(self) -> None:
        """Another node is elected, with an image from a snapshot."""
        self.cluster.image = rebuilt(list(snapshot_records(self.cluster.image)))
        self.cluster.take_over()

    # --- invariants ----------------------------------------------------------------------------------------

    def check(self, before: dict[PartitionKey, PartitionState]) -> None:
        image = self.cluster.image
        unclean = set(self.cluster.unclean)
        self.cluster.unclean.clear()
        active = {broker.id for broker in image.brokers.values() if broker.is_active}
        for topic, index, state in image.partitions():
            key = (topic.id, index)
            isr, elr, replicas = set(state.isr), set(state.eligible_leader_replicas), set(state.replicas)
            assert isr <= replicas
            assert elr <= replicas
            assert not isr & elr
            if state.leader == NO_LEADER:
                assert not self.tracks_eligible or not isr & active, "somebody could lead"
            else:
                assert state.leader in isr
                assert state.leader in active
            assert not self.tracks_eligible or isr <= active
            min_isr = min(int(image.topic_config(topic.name)["min.insync.replicas"]), len(replicas))
            assert not elr or len(isr) < min_isr
            self._check_complete(key, state, min_isr, is_unclean=f"{topic.name}-{index}" in unclean)
            if key in before:
                check_epochs(before[key], state)

    def _check_complete(
        self, key: PartitionKey, state: PartitionState, min_isr: int, *, is_unclean: bool
    ) -> None:
        complete = self.complete.setdefault(key, set(state.isr))
        if is_unclean or len(state.replicas) == 1:
            complete.clear()
            complete.update(state.isr)
        if state.leader == NO_LEADER:
            return
        assert state.leader in complete, "the leader lacks acknowledged records"
        complete.update(state.isr)
        if len(state.isr) >= min_isr:  # the next write is acknowledged by these alone
            complete.intersection_update(state.isr)


def check_epochs(before: PartitionState, after: PartitionState) -> None:
    assert after.leader_epoch >= before.leader_epoch
    assert after.partition_epoch >= before.partition_epoch
    if after.leader != before.leader:
        assert after.leader_epoch > before.leader_epoch
    if after != before:
        assert after.partition_epoch > before.partition_epoch


def rebuilt(records: list[object]) -> ClusterImage:
    image = ClusterImage()
    for record in records:
        image.replay(decode_record(encode(record)))  # type: ignore[arg-type]
    return image


def indexed(index: ReplicaIndex) -> tuple[object, ...]:
    return (
        {broker: set(index.in_sync(broker)) for broker in BROKERS},
        {broker: set(index.eligible(broker)) for broker in BROKERS},
        set(index.leaderless()),
        {broker: index.leads(broker) for broker in BROKERS},
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(EVENTS), min_size=5, max_size=60), st.booleans())
def test_histories(seed: int, events: list[str], tracks_eligible: bool) -> None:
    features = FINALIZED_AT_FORMAT if tracks_eligible else {}
    cluster = Cluster(3, features=features)
    story = Story(cluster, Random(seed), tracks_eligible)
    for _ in range(2):
        story.act("create")
    story.check({})
    for event in events:
        before = {(topic.id, index): state for topic, index, state in cluster.image.partitions()}
        try:
            story.act(event)
        except Refusal:
            assert before == {(topic.id, index): state for topic, index, state in cluster.image.partitions()}
        if tracks_eligible or not {"start_after_loss", "start_local"} & set(events):
            # without the feature nobody can tell that a broker lost records
            story.check(before)
        assert indexed(cluster.image.replica_index) == indexed(cluster.image.copy().replica_index)
    assert image_hash(rebuilt(list(cluster.log))) == image_hash(cluster.image)
    assert image_hash(rebuilt(list(snapshot_records(cluster.image)))) == image_hash(cluster.image)
    assert image_hash(cluster.image.copy()) == image_hash(cluster.image)
