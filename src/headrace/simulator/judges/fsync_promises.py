"""Which batches must be fsynced before they are acknowledged, while flush.messages changes.

With flush.messages=1 every batch must be. This holds for a batch that was sent after the setting had been
acknowledged, and that was acknowledged before a client asked for another value. Several judges use this
module.
"""

from headrace.simulator.history import (
    BatchAcked,
    BatchSent,
    ConfigAsked,
    ConfigChanged,
    Event,
    TopicCreated,
    TopicDeletionAsked,
)

KEY, EACH = "flush.messages", "1"


class FsyncPromises:
    def __init__(self) -> None:
        self._changes: dict[str, int] = {}  # topic: changes so far, asked for or acknowledged
        self._promising: set[str] = set()
        self._sent: dict[bytes, int] = {}  # first value of a batch: changes of its topic when it was sent

    def see(self, event: Event) -> None:
        match event:
            case TopicCreated(topic, _, _, configs):
                self._changed(topic, is_promising=configs.get(KEY) == EACH)
            case TopicDeletionAsked(topic) | ConfigAsked(topic, key="flush.messages"):
                self._changed(topic, is_promising=False)
            case ConfigChanged(topic, key="flush.messages", value=value):
                self._changed(topic, is_promising=value == EACH)
            case BatchSent(partition=partition, values=values):
                self._sent[values[0]] = self._changes.get(partition.topic, 0)
            case _:
                pass

    def _changed(self, topic: str, *, is_promising: bool) -> None:
        self._changes[topic] = self._changes.get(topic, 0) + 1
        if is_promising:
            self._promising.add(topic)
        else:
            self._promising.discard(topic)

    def covers(self, event: BatchAcked) -> bool:
        """Whether this answer may leave only after an fsync."""
        topic = event.partition.topic
        return topic in self._promising and self._sent.get(event.values[0]) == self._changes[topic]
