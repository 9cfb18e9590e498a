"""Client that moves replicas between the log directories of the broker to which it is connected."""

from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.nodes import Nodes

ALTER_REPLICA_LOG_DIRS = 34


class Mover(Script):
    def __init__(self, nodes: Nodes, name: str, topics: list[Topic], directories: list[str]) -> None:
        super().__init__(nodes, name)
        self._topics = topics
        self._directories = directories
        self.is_stopping = False

    def story(self) -> Story:
        """A replica that the broker does not have is refused; a second order calls the first one off."""
        rng = self.world.rng
        while not self.is_stopping:
            topic = rng.choice(self._topics)
            partitions = sorted(rng.sample(range(topic.partitions), rng.randint(1, topic.partitions)))
            wanted = AlterReplicaLogDirTopic(name=topic.name, partitions=partitions)
            target = AlterReplicaLogDir(path=rng.choice(self._directories), topics=[wanted])
            yield Ask(ALTER_REPLICA_LOG_DIRS, 2, AlterReplicaLogDirsRequest(dirs=[target]))
            yield Pause(self.world.between(0.01, 0.5))
            if self.world.chance(0.5):
                self.hang_up()  # the next connection is to another broker
                yield Pause(0.05)
