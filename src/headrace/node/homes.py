"""In which log directory each partition lies.

At the start this is found on disk. A directory that was renamed, copied, damaged, or left over from a move or
a removal is told apart here: no record is thrown away on a mere doubt. A new partition goes where the
controller placed it, or where the fewest are.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from headrace.base.ids import TopicId
from headrace.base.time import Now
from headrace.machines.metadata.image import ClusterImage, PartitionState
from headrace.node.log_directories import LogDirectories
from headrace.node.ports import Reports
from headrace.node.strays import Strays
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.directory_jobs import RemoveDirectoryJob
from headrace.storage.errors import DiskFull, StorageError
from headrace.storage.moving import Arrival, arrivals
from headrace.storage.partition_directories import DOOMED, doomed_name
from headrace.storage.strays import Why

# Directory ids up to this one have a meaning of their own: unassigned, lost, migrating (KIP-858).
RESERVED_ID_MAX = 100

# Ids are random: two that differ in so few of their 128 bits are one, which was damaged on disk.
DAMAGED_ID_BITS_MAX = 16


class Awaited(NamedTuple):
    """A whole log that has moved, under the second of its three names; there is no way back from here."""

    source: str  # the directory that it came from, where its name is gone and must be so for good
    name: str
    end_offset: int
    first_dirty_offset: int


class Looked(NamedTuple):
    """What a start found out about partitions, by topic id and partition."""

    lost: dict[tuple[bytes, int], str]  # whose log cannot be reached, with a directory that is offline
    unnamed: dict[tuple[bytes, int], Awaited]  # whose log has arrived and has no space for its name yet


class Homes:
    def __init__(
        self,
        broker_id: int,
        log_dirs: Sequence[str],
        directories: LogDirectories,
        strays: Strays,
        reports: Reports,
    ) -> None:
        self._broker_id = broker_id
        self._log_dirs = log_dirs
        self._directories = directories
        self._strays = strays
        self._reports = reports
        self._found = directories.found
        self._homes: dict[tuple[bytes, int], str] = {}
        self._crowds: dict[str, int] = dict.fromkeys(directories, 0)  # partitions per directory
        self._departed: set[str] = set()  # what moves to directories that are offline have left behind

    # --- what was found on disk ----------------------------------------------------------------------------

    def look(self, now: Now, image: ClusterImage, removed: frozenset[bytes]) -> Looked:
        """Where the partitions of the image lie; `removed` are topics that records of the metadata log
        removed.
        """
        self._settle(image)
        self._adopt_nameless(now, image, removed)
        unnamed = self._receive(now, image, removed)
        lost = self._unreachable(image)
        self._report_missing(image, lost)
        return Looked(lost, unnamed)

    def found_in(self, directory: str) -> set[tuple[bytes | None, int]]:
        """Topic id and partition of what lay in that directory at the start."""
        return {(topic_id, index) for home, _, index, topic_id in self._found if home == directory}

    def _settle(self, image: ClusterImage) -> None:
        """Where each partition lies; of two directories with the same one, where the metadata says."""
        for home, name, index, topic_id in self._found:
            if topic_id is None:
                continue
            topic = image.topics_by_id.get(TopicId(topic_id))
            if topic is not None and topic.name != name:
                continue  # somebody renamed the directory
            state = topic.partitions.get(index) if topic is not None else None
            placed = _placed(state, self._broker_id)
            if (topic_id, index) not in self._homes or self._directories[home].directory_id == placed:
                self._homes[(topic_id, index)] = home

    def _adopt_nameless(self, now: Now, image: ClusterImage, removed: frozenset[bytes]) -> None:
        """Directories whose partition.metadata is damaged: the name tells whose they are, and no record is
        thrown away on a mere doubt.

        After the loss of a machine one that was never written may be that of an earlier topic, whose removal
        did not last.
        """
        for number, (home, name, index, topic_id) in enumerate(self._found):
            directory = self._directories[home]
            topic = image.topics.get(name)
            if topic is None or topic_id == topic.id or index not in topic.partitions:
                continue
            if topic_id is None:
                if directory.trust == "lost" and directory.has_unflushed_name(name, index, topic.id):
                    continue
            elif topic_id in removed or _bits_apart(topic_id, topic.id) > DAMAGED_ID_BITS_MAX:
                continue
            if self._homes.setdefault((topic.id, index), home) != home:
                continue
            self._found[number] = (home, name, index, topic.id)
            self._reports.damage(f"{home}/{name}-{index}/{PARTITION_METADATA}", "the topic's id")
            try:
                directory.correct_topic_id(name, index, topic.id)
            except DiskFull:
                pass  # it is written when the log is opened
            except StorageError as fault:
                self._directories.go_offline(now, home, fault)

    def _receive(
        self, now: Now, image: ClusterImage, removed: frozenset[bytes]
    ) -> dict[tuple[bytes, int], Awaited]:
        """Logs on their way from one directory to another: one that had arrived replaces the old one where
        that is gone, and all others are removed. Returns those that have no space for their own name yet.
        """
        directories = self._directories
        unnamed: dict[tuple[bytes, int], Awaited] = {}
        for home, directory in directories.online():
            for arrival in arrivals(directory.names()):
                topic = image.topics_by_id.get(arrival.topic_id)
                place = (arrival.topic_id, arrival.partition)
                if arrival.is_whole and topic is not None and place not in self._homes:
                    self._homes[place] = home
                    self._found.append((home, topic.name, arrival.partition, arrival.topic_id))
                    try:
                        directory.adopt(topic.name, arrival.partition, arrival.name)
                    except DiskFull:
                        unnamed[place] = Awaited(home, arrival.name, end_offset=0, first_dirty_offset=0)
                    except StorageError as fault:
                        directories.go_offline(now, home, fault)
                elif arrival.is_whole and topic is None and arrival.topic_id not in removed:
                    directories.insist(now, home, partial(self._put_arrival_aside, home, arrival))
                else:
                    directories.insist(now, home, partial(self._discard, home, arrival))
                if directory.is_offline:
                    break
        return unnamed

    def _put_arrival_aside(self, home: str, arrival: Arrival, now: Now) -> None:
        name = self._directories[home].put_arrival_aside(arrival, now.wall_ms)
        if not self._found:  # the start is over: it has reported the others
            self._strays.add(now, home, name)

    def _discard(self, home: str, arrival: Arrival, now: Now) -> None:
        self._directories.remove(home, self._directories[home].discard(arrival))

    def _unreachable(self, image: ClusterImage) -> dict[tuple[bytes, int], str]:
        """Partitions whose log was not found, because the metadata places it in a directory that is offline
        or that this node was not given, or because it had just moved to one: to begin them again would give
        their offsets to other records.
        """
        online = {each.directory_id for _, each in self._directories.online()}
        broken = self._directories.offline()
        found: dict[tuple[bytes, int], str] = {}
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                placed = _placed(state, self._broker_id)
                if (topic.id, index) in self._homes or placed is None:
                    continue
                if placed in online:
                    # the log that a move leaves behind gets this name before the metadata tells of the move
                    departed = doomed_name(f"{topic.name}-{index}", int.from_bytes(topic.id))
                    if broken and any(self._has(home, departed) for home in self._directories):
                        self._departed.add(departed)
                        found[(topic.id, index)] = min(broken)
                elif int.from_bytes(placed) > RESERVED_ID_MAX:
                    found[(topic.id, index)] = min(broken or self._directories)
        return found

    def _report_missing(self, image: ClusterImage, lost: dict[tuple[bytes, int], str]) -> None:
        """Partitions that a checkpoint knows and whose directory is gone begin again with offset 0."""
        for home, directory in self._directories.items():
            for name, index in directory.missing():
                topic = image.topics.get(name)
                if topic is None or index not in topic.partitions:
                    continue
                place = (topic.id, index)
                if place not in self._homes and place not in lost:
                    self._reports.report(
                        "warning",
                        "partition_directory_missing",
                        directory=home,
                        partition=f"{name}-{index}",
                        log_end_offset=directory.recovery_point(name, index),
                        advice="the partition starts empty: to keep its records, stop the broker and restore "
                        "its directory from a backup",
                    )

    def _has(self, home: str, name: str) -> bool:
        try:
            return not self._directories[home].is_offline and self._directories.disks[home].exists(name)
        except OSError:
            return True  # nobody can tell

    def sweep(
        self, now: Now, removed: frozenset[bytes], name_of: Callable[[bytes], tuple[str, int] | None]
    ) -> None:
        """Finish removals that the metadata log tells of, and put aside what it does not know at all: absence
        from the metadata is no reason to delete anything. `name_of` tells a topic's name and its partitions.
        """
        for home, topic, index, topic_id in self._found:
            directory = self._directories[home]
            known = name_of(topic_id) if topic_id is not None else None
            is_renamed = known is not None and known[0] != topic
            is_known = known is not None and index < known[1] and not is_renamed
            if directory.is_offline or (is_known and self._homes[(topic_id or b"", index)] == home):
                continue
            if topic_id in removed:
                self._directories.insist(now, home, partial(self._remove, home, topic, index))
                continue
            why: Why = "unknown"
            if known is not None:
                why = "renamed" if is_renamed else "duplicate" if is_known else "partition"
            self._directories.insist(now, home, partial(self._put_aside, home, topic, index, why))
        self._found.clear()
        for home, directory in self._directories.online():
            try:
                for name in directory.names():
                    if name.endswith(DOOMED) and name not in self._departed:
                        self._directories.remove(home, RemoveDirectoryJob(name))
            except DiskFull as fault:  # no descriptor is left: the next start finds them
                self._directories.is_full(home, fault)
            except StorageError as fault:
                self._directories.go_offline(now, home, fault)

    def _remove(self, home: str, topic: str, index: int, now: Now) -> None:
        self._directories.remove(home, self._directories[home].doom(topic, index))

    def _put_aside(self, home: str, topic: str, index: int, why: Why, now: Now) -> None:
        name = self._directories[home].put_aside(topic, index, why, now.wall_ms)
        if not self._found:  # the start is over: it has reported the others
            self._strays.add(now, home, name)

    # --- while the node runs -------------------------------------------------------------------------------

    def give(self, topic_id: bytes, index: int, state: PartitionState) -> str:
        """Where it lies on disk; for a new one where the controller placed it, or where the fewest are."""
        home = self._homes.get((topic_id, index))
        if home is None:
            data = {name: each for name, each in self._directories.items() if name in self._log_dirs}
            placed = _placed(state, self._broker_id)
            online = [name for name, directory in data.items() if not directory.is_offline] or list(data)
            home = min(
                (name for name in online if data[name].directory_id == placed),
                default=min(online, key=self._crowds.__getitem__),
            )
            self._homes[(topic_id, index)] = home
        self._crowds[home] += 1
        return home

    def move(self, topic_id: bytes, index: int, directory: str) -> None:
        """The partition lies in another directory from now on."""
        self._crowds[self._homes[(topic_id, index)]] -= 1
        self._crowds[directory] += 1
        self._homes[(topic_id, index)] = directory

    def take(self, topic_id: bytes, index: int) -> str:
        """The partition is removed; where it lay."""
        home = self._homes.pop((topic_id, index))
        self._crowds[home] -= 1
        return home


def _placed(state: PartitionState | None, broker_id: int) -> bytes | None:
    """The directory that the metadata names for this broker's replica."""
    return None if state is None else dict(zip(state.replicas, state.directories)).get(broker_id)


def _bits_apart(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count()
