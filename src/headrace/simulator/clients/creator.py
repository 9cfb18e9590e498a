"""Client that creates the topics of a cluster play, through whichever node answers."""

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.nodes import Nodes

METADATA, CREATE_TOPICS = 3, 19
TIMEOUT_MS = 3_000


class Creator(Script):
    def __init__(self, nodes: Nodes, name: str, topics: list[Topic], replicas: int) -> None:
        super().__init__(nodes, name)
        self._topics = topics
        self._replicas = replicas

    @property
    def has_created(self) -> bool:
        return all(topic.keys for topic in self._topics)

    def story(self) -> Story:
        for topic in self._topics:
            while not topic.keys:
                answer = yield self._create(topic)
                if answer is not None:
                    code = answer.topics[0].error_code
                    if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        self.hang_up()  # another node may know the controller
                yield Pause(0.1)
                yield from self._learn_id(topic)

    def _learn_id(self, topic: Topic) -> Story:
        listed = yield Ask(METADATA, 12, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        for found in listed.topics if listed is not None else ():
            if found.name == topic.name and found.error_code == ErrorCode.NONE:
                topic.created(found.topic_id)

    def _create(self, topic: Topic) -> Ask:
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()]
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=self._replicas,
            assignments=[],
            configs=configs,
        )
        body = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=False)
        return Ask(CREATE_TOPICS, 7, body)
