"""Locations of partitions: which log directory has which partition.

A start finds them on disk, and recognizes directories that were renamed, copied or damaged, or that remain
from a move or a removal: in doubt, no record is deleted. A new partition goes to the directory that the
controller chose, or to the one with the fewest partitions.
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
from headrace.storage.checkpoints import LOG_STARTS, PARTITION_METADATA
from headrace.storage.damage import Damage
from headrace.storage.directory_jobs import RemoveDirectoryJob
from headrace.storage.errors import DiskFull, StorageError
from headrace.storage.lost_segments import LostSegments
from headrace.storage.moving import Arrival, arrivals
from headrace.storage.partition_directories import DOOMED, doomed_name, has_segments
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
    damages: tuple[Damage, ...] = ()  # that were known before


class Looked(NamedTuple):
    """What a start found out about partitions, by topic id and partition."""

    lost: dict[tuple[bytes, int], str]  # whose log cannot be reached, with a directory that is offline
    # directories in which the log of a partition is missing, or its start, that other brokers have, too
    lacking: set[str]
    unnamed: dict[tuple[bytes, int], Awaited]  # whose log has arrived and has no space for its name yet
    # whose log lacks segments, and which other brokers have whole
    incomplete: dict[tuple[bytes, int], LostSegments]


class PartitionLocations:
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
        self._locations: dict[tuple[bytes, int], str] = {}
        self._crowds: dict[str, int] = dict.fromkeys(directories, 0)  # partitions per directory
        self.has_lost_logs = False  # of partitions that get their records from other replicas
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
        incomplete = self._report_incomplete(image, lost)
        lacking = self._report_missing(image, lost) | self._report_lost_starts(image)
        lacking |= {self._locations[place] for place in incomplete}
        for log_dir in sorted(lacking):
            self._directories.distrust(log_dir)  # before the log is made again: then nobody would notice
        return Looked(lost, lacking, unnamed, incomplete)

    def found_in(self, directory: str) -> set[tuple[bytes | None, int]]:
        """Topic id and partition of what lay in that directory at the start."""
        return {(topic_id, index) for log_dir, _, index, topic_id in self._found if log_dir == directory}

    def _settle(self, image: ClusterImage) -> None:
        """The log directory of each partition; if two directories have the same one, that of the metadata."""
        for log_dir, name, index, topic_id in self._found:
            if topic_id is None:
                continue
            topic = image.topics_by_id.get(TopicId(topic_id))
            if topic is not None and topic.name != name:
                continue  # somebody renamed the directory
            state = topic.partitions.get(index) if topic is not None else None
            placed = assigned_directory(state, self._broker_id)
            if (topic_id, index) not in self._locations or self._directories[log_dir].directory_id == placed:
                self._locations[(topic_id, index)] = log_dir

    def _adopt_nameless(self, now: Now, image: ClusterImage, removed: frozenset[bytes]) -> None:
        """Directories whose partition.metadata is damaged: their names say to which partition they belong,
        and in doubt no record is deleted.

        After the loss of a host one that was never written may be that of an earlier topic, whose removal
        did not last.
        """
        for number, (log_dir, name, index, topic_id) in enumerate(self._found):
            directory = self._directories[log_dir]
            topic = image.topics.get(name)
            if topic is None or topic_id == topic.id or index not in topic.partitions:
                continue
            if topic_id is None:
                if directory.trust == "lost" and directory.has_unflushed_name(name, index, topic.id):
                    continue
            elif topic_id in removed or _bits_apart(topic_id, topic.id) > DAMAGED_ID_BITS_MAX:
                continue
            if self._locations.setdefault((topic.id, index), log_dir) != log_dir:
                continue
            self._found[number] = (log_dir, name, index, topic.id)
            try:
                if topic_id is None and not self._has_segments(log_dir, f"{name}-{index}"):
                    continue  # a stop came while it was made: it is made when it is opened
                self._reports.damage(f"{log_dir}/{name}-{index}/{PARTITION_METADATA}", "the topic's id")
                directory.correct_topic_id(name, index, topic.id)
            except DiskFull:
                pass  # it is written when the log is opened
            except StorageError as fault:
                self._directories.go_offline(now, log_dir, fault)

    def _receive(
        self, now: Now, image: ClusterImage, removed: frozenset[bytes]
    ) -> dict[tuple[bytes, int], Awaited]:
        """Logs on their way from one directory to another: one that had arrived replaces the old one where
        that is gone, and all others are removed. Returns those that have no space for their own name yet.
        """
        directories = self._directories
        unnamed: dict[tuple[bytes, int], Awaited] = {}
        for log_dir, directory in directories.online():
            for arrival in arrivals(directory.names()):
                topic = image.topics_by_id.get(arrival.topic_id)
                place = (arrival.topic_id, arrival.partition)
                if arrival.is_whole and topic is not None and place not in self._locations:
                    self._locations[place] = log_dir
                    self._found.append((log_dir, topic.name, arrival.partition, arrival.topic_id))
                    try:
                        directory.adopt(topic.name, arrival.partition, arrival.name)
                    except DiskFull:
                        unnamed[place] = Awaited(log_dir, arrival.name, end_offset=0, first_dirty_offset=0)
                    except StorageError as fault:
                        directories.go_offline(now, log_dir, fault)
                elif arrival.is_whole and topic is None and arrival.topic_id not in removed:
                    directories.insist(now, log_dir, partial(self._put_arrival_aside, log_dir, arrival))
                else:
                    directories.insist(now, log_dir, partial(self._discard, log_dir, arrival))
                if directory.is_offline:
                    break
        return unnamed

    def _put_arrival_aside(self, log_dir: str, arrival: Arrival, now: Now) -> None:
        name = self._directories[log_dir].put_arrival_aside(arrival, now.wall_ms)
        if not self._found:  # the start is over: it has reported the others
            self._strays.add(now, log_dir, name)

    def _discard(self, log_dir: str, arrival: Arrival, now: Now) -> None:
        self._directories.remove(log_dir, self._directories[log_dir].discard(arrival))

    def _unreachable(self, image: ClusterImage) -> dict[tuple[bytes, int], str]:
        """Partitions whose log was not found, because the metadata places it in a directory that is offline
        or that this node was not given, or because it had just moved to one: to begin them again would give
        their offsets to other records. A replica without which the others are complete is made again, where
        all directories can be read: its disk was replaced.
        """
        online = {each.directory_id for _, each in self._directories.online()}
        broken = self._directories.offline()
        found: dict[tuple[bytes, int], str] = {}
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                placed = assigned_directory(state, self._broker_id)
                if (topic.id, index) in self._locations or placed is None:
                    continue
                if placed in online:
                    # the log that a move leaves behind gets this name before the metadata has the move
                    departed = doomed_name(f"{topic.name}-{index}", int.from_bytes(topic.id))
                    if broken and any(self._has(log_dir, departed) for log_dir in self._directories):
                        self._departed.add(departed)
                        found[(topic.id, index)] = min(broken)
                elif int.from_bytes(placed) > RESERVED_ID_MAX:
                    if not broken and not self.is_counted_on(state):
                        self.has_lost_logs = True
                        continue
                    found[(topic.id, index)] = min(broken or self._directories)
        return found

    def is_counted_on(self, state: PartitionState) -> bool:
        """Whether this broker's replica may have what no other has: others that are in sync, or eligible,
        have everything that is committed.
        """
        electable = {*state.isr, *state.eligible_leader_replicas}
        if electable - {self._broker_id}:
            return False
        return self._broker_id in (*electable, *state.last_known_elr)

    def _report_missing(self, image: ClusterImage, lost: dict[tuple[bytes, int], str]) -> set[str]:
        """Reports partitions that are in a checkpoint but have no directory, or an empty one: they start
        again at offset 0. In which log directories this makes an incomplete replica of one that may be taken
        for complete.
        """
        lacking: set[str] = set()
        for log_dir, directory in self._directories.items():
            for name, index in directory.missing():
                topic = image.topics.get(name)
                state = topic.partitions.get(index) if topic is not None else None
                if topic is None or state is None or self._broker_id not in state.replicas:
                    continue
                place = (topic.id, index)
                if self._locations.get(place, log_dir) == log_dir and place not in lost:
                    if len(state.replicas) > 1:
                        lacking.add(log_dir)
                    self._reports.report(
                        "warning",
                        "partition_directory_missing",
                        directory=log_dir,
                        partition=f"{name}-{index}",
                        log_end_offset=directory.recovery_point(name, index),
                        advice="the partition starts empty: to keep its records, stop the broker and restore "
                        "its directory from a backup",
                    )
        return lacking

    def _report_incomplete(
        self, image: ClusterImage, lost: dict[tuple[bytes, int], str]
    ) -> dict[tuple[bytes, int], LostSegments]:
        """Reports logs that lack segments. Of those that are returned other replicas have
        everything; where nobody else has the rest of a log, it stays as it is.
        """
        incomplete: dict[tuple[bytes, int], LostSegments] = {}
        for place, log_dir in self._locations.items():
            topic = image.topics_by_id.get(TopicId(place[0]))
            state = topic.partitions.get(place[1]) if topic is not None else None
            if topic is None or state is None or len(state.replicas) < 2 or place in lost:
                continue
            found = self._directories[log_dir].lost_segments(topic.name, place[1])
            if found is None:
                continue
            others = {*state.isr, *state.eligible_leader_replicas} - {self._broker_id}
            if others:
                incomplete[place] = found
                advice = "the log is read again from its leader, and this broker does not lead before"
            else:
                advice = (
                    "no other replica is in sync, so this one keeps what is left. To keep the rest, stop the "
                    "broker and restore the segments from a backup"
                )
            self._reports.report(
                "warning",
                "segments_missing",
                directory=log_dir,
                partition=f"{topic.name}-{place[1]}",
                first_offset=found.offset,
                next_offset=-1 if found.is_end else found.next_offset,
                advice=advice,
            )
        return incomplete

    def _report_lost_starts(self, image: ClusterImage) -> set[str]:
        """Reports directories whose logs may begin with records that were deleted, and returns those that
        have logs of partitions of which others know where they start.
        """
        lacking = {
            log_dir
            for (topic_id, index), log_dir in self._locations.items()
            if self._directories[log_dir].has_lost_starts
            and (topic := image.topics_by_id.get(TopicId(topic_id))) is not None
            and (state := topic.partitions.get(index)) is not None
            and len(state.replicas) > 1
        }
        for log_dir in sorted(lacking):
            self._reports.report(
                "warning",
                "log_starts_lost",
                directory=log_dir,
                advice=f"{LOG_STARTS} is missing or damaged: other replicas lead until this broker has "
                "learned from them which records were deleted",
            )
        return lacking

    def _has_segments(self, log_dir: str, name: str) -> bool:
        try:
            return has_segments(self._directories.disks[log_dir], name)
        except OSError:
            return True  # nobody can tell: what follows meets the error

    def _has(self, log_dir: str, name: str) -> bool:
        try:
            return not self._directories[log_dir].is_offline and self._directories.disks[log_dir].exists(name)
        except OSError:
            return True  # nobody can tell

    def sweep(
        self, now: Now, removed: frozenset[bytes], name_of: Callable[[bytes], tuple[str, int] | None]
    ) -> None:
        """Finish removals that the metadata log contains, and put aside what it does not know at all: absence
        from the metadata justifies no deletion. `name_of` gives a topic's name and its partitions.
        """
        for log_dir, topic, index, topic_id in self._found:
            directory = self._directories[log_dir]
            known = name_of(topic_id) if topic_id is not None else None
            is_renamed = known is not None and known[0] != topic
            is_known = known is not None and index < known[1] and not is_renamed
            if directory.is_offline or (is_known and self._locations[(topic_id or b"", index)] == log_dir):
                continue
            if topic_id in removed:
                self._directories.insist(now, log_dir, partial(self._remove, log_dir, topic, index))
                continue
            why: Why = "unknown"
            if known is not None:
                why = "renamed" if is_renamed else "duplicate" if is_known else "partition"
            self._directories.insist(now, log_dir, partial(self._put_aside, log_dir, topic, index, why))
        self._found.clear()
        for log_dir, directory in self._directories.online():
            try:
                for name in directory.names():
                    if name.endswith(DOOMED) and name not in self._departed:
                        self._directories.remove(log_dir, RemoveDirectoryJob(name))
            except DiskFull as fault:  # no descriptor is left: the next start finds them
                self._directories.is_full(log_dir, fault)
            except StorageError as fault:
                self._directories.go_offline(now, log_dir, fault)

    def _remove(self, log_dir: str, topic: str, index: int, now: Now) -> None:
        self._directories.remove(log_dir, self._directories[log_dir].doom(topic, index))

    def _put_aside(self, log_dir: str, topic: str, index: int, why: Why, now: Now) -> None:
        name = self._directories[log_dir].put_aside(topic, index, why, now.wall_ms)
        if not self._found:  # the start is over: it has reported the others
            self._strays.add(now, log_dir, name)

    # --- while the node runs -------------------------------------------------------------------------------

    def give(self, topic_id: bytes, index: int, state: PartitionState) -> str:
        """Where it lies on disk; for a new one where the controller placed it, or where the fewest are."""
        log_dir = self._locations.get((topic_id, index))
        if log_dir is None:
            data = {name: each for name, each in self._directories.items() if name in self._log_dirs}
            placed = assigned_directory(state, self._broker_id)
            online = [name for name, directory in data.items() if not directory.is_offline] or list(data)
            log_dir = min(
                (name for name in online if data[name].directory_id == placed),
                default=min(online, key=self._crowds.__getitem__),
            )
            self._locations[(topic_id, index)] = log_dir
        self._crowds[log_dir] += 1
        return log_dir

    def move(self, topic_id: bytes, index: int, directory: str) -> None:
        """The partition lies in another directory from now on."""
        self._crowds[self._locations[(topic_id, index)]] -= 1
        self._crowds[directory] += 1
        self._locations[(topic_id, index)] = directory

    def take(self, topic_id: bytes, index: int) -> str:
        """The partition is removed; where it lay."""
        log_dir = self._locations.pop((topic_id, index))
        self._crowds[log_dir] -= 1
        return log_dir


def assigned_directory(state: PartitionState | None, broker_id: int) -> bytes | None:
    """The directory that the metadata names for this broker's replica."""
    return None if state is None else dict(zip(state.replicas, state.directories)).get(broker_id)


def _bits_apart(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count()
