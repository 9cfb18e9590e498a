"""Acknowledged topics and settings are returned to every client that asks later, also after restarts."""

from headrace.simulator.history import (
    ConfigAsked,
    ConfigChanged,
    ConfigTold,
    Event,
    TopicCreated,
    TopicCreationAsked,
    TopicDeleted,
    TopicDeletionAsked,
    TopicsListed,
    Violation,
)


class MetadataRemembered:
    name = "metadata_remembered"

    def __init__(self) -> None:
        self._topics: dict[str, tuple[bytes, int]] = {}  # created for sure and not asked to go
        self._deleted: set[str] = set()
        self._settings: dict[tuple[str, str], str] = {}  # by topic and key: acknowledged last
        self._open: dict[tuple[str, str], list[str]] = {}  # asked for, and never answered

    def see(self, event: Event, /) -> None:
        match event:
            case TopicCreated(topic, topic_id, partitions, configs):
                self._topics[topic] = (topic_id, partitions)
                for key, value in configs.items():
                    if not key.startswith("internal."):  # which nobody is told
                        self._settings[topic, key] = value
            case TopicCreationAsked(topic):
                self._deleted.discard(topic)
            case TopicDeletionAsked(topic):
                self._topics.pop(topic, None)
                self._settings = {of: value for of, value in self._settings.items() if of[0] != topic}
            case TopicDeleted(topic):
                self._deleted.add(topic)
            case ConfigAsked(topic, key, value):
                self._open.setdefault((topic, key), []).append(value)
            case ConfigChanged(topic, key, value):
                self._open[topic, key].remove(value)
                self._settings[topic, key] = value
            case TopicsListed(topics):
                self._check_topics(topics)
            case ConfigTold(topic, configs):
                self._check_configs(topic, configs)
            case _:
                pass

    def _check_topics(self, topics: dict[str, tuple[bytes, int]]) -> None:
        for topic, facts in self._topics.items():
            if topics.get(topic) != facts:
                raise Violation(f"topic {topic} was created as {facts}, and is told as {topics.get(topic)}")
        for topic in sorted(self._deleted & topics.keys()):
            raise Violation(f"topic {topic} was deleted, and is told again")

    def _check_configs(self, topic: str, configs: dict[str, str]) -> None:
        for (owner, key), value in self._settings.items():
            told = configs.get(key)
            if owner == topic and told != value and told not in self._open.get((topic, key), ()):
                raise Violation(f"{topic}: {key} is told as {told}, it was set to {value}")
