"""The cluster's topics as coordinators see them."""

from headrace.base.ids import TopicId
from headrace.machines.metadata.image import ClusterImage


class ImageTopics:
    """A view of the image; `version` rises with each committed change of a topic."""

    __slots__ = ("_image", "_names", "version")

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._names: list[str] | None = None
        self.version = 0

    def changed(self) -> None:
        self.version += 1
        self._names = None

    def partition_count(self, topic: str) -> int | None:
        state = self._image.topics.get(topic)
        return None if state is None else len(state.partitions)

    def id_of(self, topic: str) -> bytes | None:
        state = self._image.topics.get(topic)
        return None if state is None else state.id

    def name_of(self, topic_id: bytes) -> str | None:
        state = self._image.topics_by_id.get(TopicId(topic_id))
        return None if state is None else state.name

    def names(self) -> list[str]:
        if self._names is None:
            self._names = sorted(self._image.topics)
        return self._names
