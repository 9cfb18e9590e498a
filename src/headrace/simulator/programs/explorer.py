"""Program that reads a topic by assignment, in order or after random seeks."""

from headrace.client.cluster import NO_EPOCH
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import PartitionKey
from headrace.simulator.nodes import Nodes
from headrace.simulator.programs.reading import Reading
from headrace.simulator.programs.shell import Driven


class Explorer(Reading):
    def __init__(self, host: Nodes, name: str, topic: Topic, *, is_committed: bool) -> None:
        super().__init__(host, name, topic)
        self._isolation = "read_committed" if is_committed else "read_uncommitted"
        self._furthest: dict[PartitionKey, int] = {}
        self._epochs: dict[PartitionKey, int] = {}  # of the leaders that it read from
        self._furthest_before: dict[PartitionKey, int] = {}  # in its lives before

    def sessions(self) -> list[Driven]:
        consumer = self.new_consumer(**{"isolation.level": self._isolation})
        self._furthest_before = dict(self._furthest)
        for key in self.topic.keys:
            self.begin_stretch(key, 0)
        consumer.assign(self.now, {self.place_of(key): 0 for key in self.topic.keys})
        return [consumer]

    def has_read(self, ends: dict[PartitionKey, int]) -> bool:
        """Whether it stands at these ends or behind them."""
        positions = {key: self.consumer.position(self.place_of(key)) for key in self.topic.keys}
        return all((positions[key] or 0) >= ends.get(key, 0) for key in self.topic.keys)

    def step(self) -> None:
        rng = self.world.rng
        if not self.is_careful and self.world.chance(0.1):
            self._wander()
        for message in self.poll(rng.randint(1, 30)):
            key = self.topic.keys[message.partition]
            self._furthest[key] = max(self._furthest.get(key, 0), message.offset + 1)
        for at, position in self.consumer.positions().items():
            key = self.topic.keys[at.partition]
            self._epochs[key] = max(self._epochs.get(key, NO_EPOCH), position.leader_epoch)

    def rest(self) -> None:
        """From now on it only reads on."""
        self.is_careful = True
        self.consumer.resume(self.consumer.paused)

    def _wander(self) -> None:
        key = self.world.rng.choice(self.topic.keys)
        at = self.place_of(key)
        deed = self.world.rng.randrange(5)
        if deed <= 1:
            offset = self.world.rng.randint(0, self._furthest.get(key, 0))
            # A new client may know a leader that was replaced and has not heard of it. Without an epoch it
            # would ask there, be told that the offset is out of range, and begin again, as in Kafka.
            is_of_this_life = self._furthest.get(key, 0) > self._furthest_before.get(key, 0)
            epoch = NO_EPOCH if is_of_this_life else self._epochs.get(key, NO_EPOCH)
            self.consumer.seek(self.now, at, offset, epoch)
            self.begin_stretch(key, offset)
        elif deed == 2:
            self.consumer.seek_to_beginning(self.now, [at])
            self.begin_stretch(key, 0)
        elif deed == 3:
            self.pause(at)
        else:
            self.consumer.resume(self.consumer.paused)
