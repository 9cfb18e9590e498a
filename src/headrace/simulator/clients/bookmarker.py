"""A client that commits offsets of a topic, deletes the topic, and creates another topic with the same name.

It reads nothing. It commits every offset once, so that the offset says to which of the topics it belongs. It
commits by the topic's id and asks by the topic's name, as older clients do.
"""

from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.simulator.clients.admin import create, list_topics
from headrace.simulator.clients.member import GROUP, OFFSET_FETCH, Step, found
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import (
    CommittedOffsetTold,
    OffsetCommitted,
    OffsetNoted,
    TopicCreationAsked,
    TopicDeleted,
    TopicDeletionAsked,
)
from headrace.simulator.host import Host

OFFSET_COMMIT, DELETE_TOPICS = 8, 20
TOPIC = "bookmarked"
TIMEOUT_MS = 5_000


class Bookmarker(Script):
    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        self._offset = 0
        self.is_stopping = False

    def story(self) -> Story:
        while not self.is_stopping:
            topic = Topic(TOPIC, 1, {}, has_namesakes=True)
            yield from self._create(topic)
            for _ in range(self.world.rng.randint(1, 3)):
                yield from found(GROUP, self.name)
                yield self._look(topic)
                yield self._note(topic)
                yield Pause(self.world.between(0.0, 0.4))
            yield self._look(topic)
            yield from self._delete(topic)

    def _create(self, topic: Topic) -> Step:
        while not topic.keys:
            self.history.add(TopicCreationAsked(topic.name))
            answer = yield create(self.history, topic)
            code = None if answer is None else answer.topics[0].error_code
            if code == ErrorCode.NONE:
                topic.created(answer.topics[0].topic_id)
            elif code == ErrorCode.TOPIC_ALREADY_EXISTS:  # an answer was lost
                listed = yield list_topics(self.history)
                for there in listed.topics if listed is not None else ():
                    if there.name == topic.name:
                        topic.created(there.topic_id)
            else:
                yield Pause(0.1)

    def _delete(self, topic: Topic) -> Step:
        """By its id: a request that comes late must not mean the next one."""
        state = DeleteTopicState(name=None, topic_id=topic.topic_id)
        body = DeleteTopicsRequest(topics=[state], topic_names=[], timeout_ms=TIMEOUT_MS)

        def promised(answer: Any) -> None:
            if answer.responses[0].error_code == ErrorCode.NONE:
                self.history.add(TopicDeleted(topic.name))

        while True:
            self.history.add(TopicDeletionAsked(topic.name))
            answer = yield Ask(DELETE_TOPICS, 6, body, promised)
            gone = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)
            if answer is not None and answer.responses[0].error_code in gone:
                return
            yield Pause(0.1)

    def _look(self, topic: Topic) -> Ask:
        asked = OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])
        body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.name, topics=[asked])])

        def promised(answer: Any) -> None:
            if answer.groups[0].error_code == ErrorCode.NONE:
                (told,) = answer.groups[0].topics[0].partitions
                if told.error_code == ErrorCode.NONE:
                    self.history.add(CommittedOffsetTold(self.name, topic.keys[0], told.committed_offset))

        return Ask(OFFSET_FETCH, 9, body, promised)

    def _note(self, topic: Topic) -> Ask:
        self._offset += 1
        offset, key = self._offset, topic.keys[0]
        self.history.add(OffsetNoted(self.name, key, offset))
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        noted = OffsetCommitRequestTopic(topic_id=topic.topic_id, partitions=[partition])
        body = OffsetCommitRequest(
            group_id=self.name, generation_id_or_member_epoch=-1, member_id="", topics=[noted]
        )

        def promised(answer: Any) -> None:
            if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                self.history.add(OffsetCommitted(self.name, key, offset))

        return Ask(OFFSET_COMMIT, 10, body, promised)
