"""Topics that this broker creates by itself: internal topics, and missing topics that clients name.

The active controller creates them. A request that needs such a topic waits for its `TopicCreation`, and then
until the committed metadata of this broker has the topic.
"""

from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.node.controller_channel import ControllerChannel
from headrace.node.partitions import INTERNAL_TOPICS
from headrace.node.ports import Reports
from headrace.node.waiting import Waitable, Waiting
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.protocol.messages.create_topics import CreatableTopic

WAIT_MS_MAX = 5_000  # for the topic: then the client is told that it is not there yet
CONTROLLER_DEFAULT = -1


class TopicCreation(Waitable):
    """One topic that is being created. Requests wait for it until the controller has answered."""

    __slots__ = ("error", "is_answered", "message", "name", "then")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.is_answered = False
        self.error = ErrorCode.NONE
        self.message: str | None = None
        self.then: Callable[[Now, TopicCreation], None] | None = None  # called with the controller's answer

    @property
    def has_failed(self) -> bool:
        return self.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    def is_there(self, topics: Container[str]) -> bool:
        """Whether it is created, and among the topics that this broker knows."""
        return self.is_answered and self.name in topics


class TopicCreations:
    __slots__ = ("_channel", "_reports", "_under_way", "_waiting")

    def __init__(self, channel: ControllerChannel, waiting: Waiting, reports: Reports) -> None:
        self._channel = channel
        self._waiting = waiting
        self._reports = reports
        self._under_way: dict[str, TopicCreation] = {}

    def create(
        self,
        now: Now,
        topics: "Iterable[CreatableTopic]",
        then: Callable[[Now, TopicCreation], None] | None = None,
    ) -> list[TopicCreation]:
        """Have these topics created; one that is being created already is not asked for again."""
        from headrace.protocol.messages.create_topics import CreateTopicsRequest

        creations = []
        asked = []
        for topic in topics:
            creation = self._under_way.get(topic.name)
            if creation is None:
                creation = self._under_way[topic.name] = TopicCreation(topic.name)
                creation.then = then
                asked.append(topic)
            creations.append(creation)
        if asked:
            self._channel.send(now, CreateTopicsRequest(topics=asked), self._created)
        return creations

    def create_default(
        self,
        now: Now,
        names: Iterable[str],
        then: Callable[[Now, TopicCreation], None] | None = None,
    ) -> list[TopicCreation]:
        """With the controller's defaults."""
        from headrace.protocol.messages.create_topics import CreatableTopic

        topics = [
            CreatableTopic(
                name=name, num_partitions=CONTROLLER_DEFAULT, replication_factor=CONTROLLER_DEFAULT
            )
            for name in names
        ]
        return self.create(now, topics, then)

    def _created(self, now: Now, response: Any) -> None:
        for result in response.topics:
            creation = self._under_way.pop(result.name)
            creation.is_answered = True
            creation.error = ErrorCode(result.error_code)
            creation.message = result.error_message
            self._waiting.wake(creation)
            if creation.then is not None:
                creation.then(now, creation)
            if creation.has_failed and creation.name in INTERNAL_TOPICS:
                # nobody but the operator can help: clients only see that there is no coordinator
                self._reports.report(
                    "error", "internal_topic_refused", topic=creation.name, error=creation.message
                )
