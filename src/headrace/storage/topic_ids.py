"""Topic ids of partition directories, from their partition.metadata."""

from headrace.base.ids import TopicId
from headrace.storage import checkpoints
from headrace.storage.checkpoints import MalformedCheckpoint
from headrace.storage.disk import Disk, read_whole, write_atomically

# A partition.metadata that is cut short still tells whose it is, if it has four of the id's 22 characters.
_ID_CHARACTERS_MAX_LOST = 18


class TopicIds:
    __slots__ = ("_disk", "_known")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._known: dict[str, TopicId] = {}  # by directory, once read

    def read(self, directory: str) -> TopicId | None:
        """None when the file is missing or damaged."""
        known = self._known.get(directory)
        if known is not None:
            return known
        try:
            data = read_whole(self._disk, _path(directory))
            topic_id = checkpoints.parse_partition_metadata(data)
        except (FileNotFoundError, MalformedCheckpoint):
            return None
        self._known[directory] = topic_id
        return topic_id

    def known(self, directory: str) -> TopicId | None:
        """As read or set before; None when it was not."""
        return self._known.get(directory)

    def set(self, directory: str, topic_id: TopicId) -> None:
        self._known[directory] = topic_id

    def forget(self, directory: str) -> None:
        """The directory of that name is another one now, or gone."""
        self._known.pop(directory, None)

    def write(self, directory: str, topic_id: bytes) -> None:
        """Write the file of a new log; the first flush makes it durable."""
        file = self._disk.open(_path(directory), create=True)
        try:
            if file.size():
                file.truncate(0)
            file.append(checkpoints.render_partition_metadata(topic_id))
        finally:
            file.close()

    def correct(self, directory: str, topic_id: TopicId) -> None:
        """Replace a damaged file."""
        data = checkpoints.render_partition_metadata(topic_id)
        write_atomically(self._disk, _path(directory), data)
        self._known[directory] = topic_id

    def is_written_for(self, directory: str, topic_id: bytes) -> bool:
        """Whether enough of the file is there to say that it was written, and for that topic if it is cut
        short.
        """
        try:
            data = read_whole(self._disk, _path(directory))
        except FileNotFoundError:
            data = b""
        whole = checkpoints.render_partition_metadata(topic_id)
        if len(data) >= len(whole) and b"\0" not in data:
            return True
        begun = data.rstrip(b"\0")
        return whole.startswith(begun) and len(begun) >= len(whole) - _ID_CHARACTERS_MAX_LOST


def _path(directory: str) -> str:
    return f"{directory}/{checkpoints.PARTITION_METADATA}"
