"""Admin client: creates, changes, describes and deletes topics; an unanswered request may have been
carried out.
"""

from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.simulator.clients.consumer import EARLIEST, LATEST, list_offset
from headrace.simulator.clients.deleter import delete_records
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import (
    ConfigAsked,
    ConfigChanged,
    ConfigTold,
    History,
    PartitionKey,
    TopicCreated,
    TopicCreationAsked,
    TopicDeleted,
    TopicDeletionAsked,
    TopicsListed,
)
from headrace.simulator.host import Host

METADATA, CREATE_TOPICS, DELETE_TOPICS = 3, 19, 20
DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 44
TOPIC_RESOURCE, SET = 2, 0
TIMEOUT_MS = 5_000
NAMESAKE_AFTER_S = 1.0  # when no request that means the old topic by its name is under way any more

# What the administrator plays with while the run goes on: keys whose value does not change what is promised.
# Each value is used once, so that it tells which change it comes from.
CHANGEABLE = (("max.message.bytes", 1_000_000), ("segment.bytes", 2_000_000), ("delete.retention.ms", 1_000))


class Admin(Script):
    def __init__(
        self,
        host: Host,
        name: str,
        topics: list[Topic],
        later: list[Topic],
        everything: list[Topic],
        *,
        deletions: int = 1,
    ) -> None:
        super().__init__(host, name)
        self._topics = topics
        self._later = later  # created, deleted and created again while the run goes on
        self._all = everything  # that clients know of
        self._deletions = deletions  # of each kind, to one of every other request
        self._changes = 0
        self.is_quiet = False  # asks, but changes nothing any more

    @property
    def has_created(self) -> bool:
        return all(topic.keys for topic in self._topics)

    def story(self) -> Story:
        for topic in self._topics:
            yield from self._create(topic)
        while True:
            yield Pause(self.world.between(0.05, 0.6))
            there = [topic for topic in [*self._topics, *self._later] if topic.is_there]
            topic = self.world.rng.choice(there)
            key = self.world.rng.choice(topic.keys)
            deed = self.world.rng.randrange(5 + 2 * self._deletions)
            if deed == 0:
                yield list_topics(self.history)
            elif deed == 1:
                yield list_offset(self.history, key, EARLIEST)
            elif deed == 2:
                yield list_offset(self.history, key, LATEST)
            elif deed == 3:
                yield self._describe(topic)
            elif self.is_quiet:
                continue
            elif deed == 4:
                yield self._alter(topic)
            elif deed % 2 and topic.configs.get("retention.ms") != "-1":
                yield from self._delete_records(key)
            elif deed % 2 == 0 and self._later:
                yield from self._create_or_delete(self.world.rng.choice(self._later))

    def _create_or_delete(self, topic: Topic) -> Story:
        if not topic.keys:
            yield from self._create(topic)
        elif not topic.is_doomed:
            yield self._delete(topic)
        elif topic.is_gone:
            yield Pause(NAMESAKE_AFTER_S)
            again = Topic(topic.name, topic.partitions, topic.configs, has_namesakes=True)
            self._later[self._later.index(topic)] = again
            self._all.append(again)
            yield from self._create(again)

    def _create(self, topic: Topic) -> Story:
        """Until it is there: an unanswered creation may have happened, and then its id is asked for."""
        while not topic.keys:
            self.history.add(TopicCreationAsked(topic.name))
            answer = yield create(self.history, topic)
            if answer is not None and answer.topics[0].error_code == ErrorCode.NONE:
                topic.created(answer.topics[0].topic_id)
            elif answer is not None and answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                listed = yield list_topics(self.history)
                for found in listed.topics if listed is not None else ():
                    if found.name == topic.name:
                        topic.created(found.topic_id)
            else:
                yield Pause(0.1)

    def _delete(self, topic: Topic) -> Ask:
        topic.is_doomed = True
        self.history.add(TopicDeletionAsked(topic.name))
        state = DeleteTopicState(name=topic.name)
        body = DeleteTopicsRequest(topics=[state], topic_names=[], timeout_ms=TIMEOUT_MS)

        def promised(answer: Any) -> None:
            if answer.responses[0].error_code == ErrorCode.NONE:
                topic.is_gone = True
                self.history.add(TopicDeleted(topic.name))

        return Ask(DELETE_TOPICS, 6, body, promised)

    def _alter(self, topic: Topic) -> Ask:
        rng = self.world.rng
        self._changes += 1
        key, least = rng.choice(CHANGEABLE)
        value = str(least + self._changes)
        self.history.add(ConfigAsked(topic.name, key, value))
        config = AlterableConfig(name=key, config_operation=SET, value=value)
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=[config]
        )
        body = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

        def promised(answer: Any) -> None:
            if answer.responses[0].error_code == ErrorCode.NONE:
                self.history.add(ConfigChanged(topic.name, key, value))

        return Ask(INCREMENTAL_ALTER_CONFIGS, 1, body, promised)

    def _describe(self, topic: Topic) -> Ask:
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic.name, configuration_keys=None
        )
        body = DescribeConfigsRequest(
            resources=[resource], include_synonyms=False, include_documentation=False
        )

        def promised(answer: Any) -> None:
            result = answer.results[0]
            if result.error_code == ErrorCode.NONE:
                configs = {config.name: config.value or "" for config in result.configs}
                self.history.add(ConfigTold(topic.name, configs))

        return Ask(DESCRIBE_CONFIGS, 4, body, promised)

    def _delete_records(self, key: PartitionKey) -> Story:
        latest = yield list_offset(self.history, key, LATEST)
        if latest is None or latest.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return
        offset = self.world.rng.randint(0, latest.topics[0].partitions[0].offset)
        yield delete_records(self.history, key, offset, TIMEOUT_MS)


def create(history: History, topic: Topic) -> Ask:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()]
    wanted = CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=1,
        assignments=[],
        configs=configs,
    )
    body = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=False)

    def promised(answer: Any) -> None:
        result = answer.topics[0]
        if result.error_code == ErrorCode.NONE and not topic.is_doomed:
            history.add(TopicCreated(topic.name, result.topic_id, topic.partitions, topic.configs))
            if topic.is_asked:
                topic.created(result.topic_id)

    return Ask(CREATE_TOPICS, 7, body, promised)


def list_topics(history: History) -> Ask:
    body = MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )

    def promised(answer: Any) -> None:
        topics = {found.name: (found.topic_id, len(found.partitions)) for found in answer.topics}
        history.add(TopicsListed(topics))

    return Ask(METADATA, 12, body, promised)
