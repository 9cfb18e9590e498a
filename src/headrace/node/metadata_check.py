"""Check of the metadata log up to its committed end, before a start changes anything on disk.

It reads the newest whole snapshot and then every batch in order, with its checksum. It ignores what a kill or
a power loss can have left at the end of the last segment. Everything else that is not an intact batch raises
`DamagedMetadata`: with a gap in the log, the node would believe in other topics than it has. After a clean
stop the log must end exactly where its checkpoint says.
"""

from dataclasses import dataclass
from typing import NamedTuple

from headrace.base.numbers import INT32_MAX
from headrace.machines.metadata.errors import BadMetadata
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.raft.quorum_state import FILE as QUORUM_STATE
from headrace.machines.raft.quorum_state import BadQuorumState, QuorumState
from headrace.machines.raft.voters import VoterKey
from headrace.node.metadata_files import (
    METADATA_DIRECTORY,
    SEGMENT,
    Loaded,
    SnapshotContent,
    SnapshotId,
    load_after,
    read_snapshot,
    snapshots,
    voters_of,
)
from headrace.records.errors import BadRecords
from headrace.storage.damage import intact_at, is_cut_short, is_lost_write
from headrace.storage.disk import Disk, read_whole
from headrace.storage.file_list import FileList, base_of, log_name
from headrace.storage.recovery import Trust

NOT_STARTED = "The node does not start, and nothing was changed on disk"
START_ANEW = (
    "empty the whole log directory, meta.properties too: the node then follows the other controllers, and "
    "does not vote"
)


class DamagedMetadata(BadMetadata):
    """The metadata log or its snapshot is damaged; the message says where, and what can be done."""


@dataclass(slots=True, frozen=True)
class LastStop:
    """What is known of the log besides its bytes."""

    trust: Trust
    recovery_point: int | None  # everything below was flushed; None when no checkpoint says
    epoch_max: int | None  # no batch can have a higher epoch; None when it is not known
    believes_list: bool = False  # of the log's files


class SoundLog(NamedTuple):
    loaded: Loaded
    log_end_offset: int = 0  # where its segments end; a lost host may keep a snapshot of more than those
    snapshot_end: int = 0  # where its newest whole snapshot ends, which was made of flushed batches

    @property
    def end_offset(self) -> int:
        return self.loaded.end_offset


def no_log() -> SoundLog:
    """There is nothing: a new node."""
    return SoundLog(Loaded(ClusterImage(), None, 0, 0, 0, frozenset()))


def check_metadata(disk: Disk, root: str, directory: str, stop: LastStop) -> SoundLog:
    """What the sound log says and where it ends; DamagedMetadata when that is before its committed end.

    `root` is the log directory's name, for messages.
    """
    try:
        return _Check(disk, directory, stop).run()
    except (BadMetadata, BadRecords) as error:
        raise DamagedMetadata(
            f"the metadata log is damaged: {root}/{directory}/{error}. The node does not start, and nothing "
            f"was changed on disk. `headrace dump --verify {root}/{directory}` shows the damage; restore "
            "that directory from a backup or from another copy, then start again"
        ) from error


def epoch_max(disk: Disk, root: str, directory: str) -> int | None:
    """The epoch in `quorum-state`, which is written before any batch of that epoch; None without the file."""
    path = f"{directory}/{QUORUM_STATE}"
    if not disk.exists(path):
        return None
    try:
        return QuorumState.from_bytes(read_whole(disk, path)).leader_epoch
    except BadQuorumState as error:
        raise DamagedMetadata(
            f"{root}/{path} is damaged: {error}. The node does not start, and nothing was changed on disk; "
            "restore this file from a backup, then start again"
        ) from error


def check_vote(sound: SoundLog, root: str, local: VoterKey, stop: LastStop) -> None:
    """DamagedMetadata if this node is one of several voters and has forgotten its vote: it might vote twice
    in an epoch, and have two leaders elected.
    """
    voters = voters_of(sound.loaded.voters[-1][1]) if sound.loaded.voters else None
    if stop.epoch_max is None and voters is not None and len(voters.keys) > 1 and voters.has(local):
        raise DamagedMetadata(
            f"{root}/{METADATA_DIRECTORY}/{QUORUM_STATE} is missing. {NOT_STARTED}; restore this file from a "
            f"backup, or {START_ANEW}"
        )


def lost_log(root: str, directory: str) -> DamagedMetadata:
    """The metadata log was there, and is not any more: with the id of this log directory the node would count
    as the voter that has it.
    """
    return DamagedMetadata(
        f"{root}/{directory} is missing, though checkpoints name the metadata log. {NOT_STARTED}; restore "
        f"that directory from a backup, or {START_ANEW}"
    )


class _Check:
    def __init__(self, disk: Disk, directory: str, stop: LastStop) -> None:
        self._disk = disk
        self._directory = directory
        self._stop = stop
        names = disk.list(directory)
        self._bases = sorted(int(match[1]) for name in names if (match := SEGMENT.fullmatch(name)))
        self._epoch = 0
        self._epoch_after = INT32_MAX  # of the first record after the snapshot, if there is one

    def run(self) -> SoundLog:
        if self._stop.believes_list:
            self._check_files()
        snapshot, content = self._newest_snapshot()
        start = snapshot.end_offset if snapshot is not None else 0
        known = [base for base in self._bases if base <= start]
        first = known[-1] if known else None
        if first is None and self._bases:
            raise BadMetadata(f"{self._bases[0]:020d}.log: the records before this segment are missing")
        offset = start if first is None else first
        for base in self._bases:
            if first is None or base < first:
                continue
            if base != offset:
                raise BadMetadata(f"{base:020d}.log: the segment before it ends at offset {offset}")
            offset = self._walk(base, start)
        end = max(start, offset)
        is_fetched = content.voters is not None and len(content.voters.voters) > 1
        if is_fetched and snapshot is not None and (offset < start or self._epoch_after < snapshot.epoch):
            # the snapshot came from the leader, and a kill left the log that it replaces
            return SoundLog(load_after(self._disk, self._directory, snapshot, content, start), 0, start)
        self._check_end(start, offset, end)
        # records that do not fit each other raise here, before anything is changed
        loaded = load_after(self._disk, self._directory, snapshot, content, end)
        return SoundLog(loaded, offset if self._bases else 0, start)

    def _check_files(self) -> None:
        """Without its last segment the log would look shorter, and this voter forget what it has promised."""
        listed = {base_of(name) for name in FileList(self._disk, self._directory).read()}
        lost = sorted(listed.difference(self._bases))
        if lost:
            raise BadMetadata(f"{log_name(lost[0])}: this segment is missing")

    def _newest_snapshot(self) -> tuple[SnapshotId | None, SnapshotContent]:
        damaged = ""
        for snapshot in snapshots(self._disk, self._directory):
            content = read_snapshot(self._disk, self._directory, snapshot)
            if content is not None:
                return snapshot, content
            damaged = damaged or snapshot.file
        if damaged and (not self._bases or self._bases[0] > 0):
            raise BadMetadata(f"{damaged}: this snapshot is damaged, and there is no other")
        return None, SnapshotContent(ClusterImage(), None)

    def _walk(self, base: int, snapshot_end: int) -> int:
        """The offset after the last sound batch of a segment."""
        name = f"{base:020d}.log"
        data = read_whole(self._disk, f"{self._directory}/{name}")
        position, offset = 0, base
        while position < len(data):
            header = intact_at(data, position)
            if header is None:
                rest = memoryview(data)[position:]
                if not self._may_be_torn(base, rest, offset, snapshot_end):
                    raise BadMetadata(f"{name}: no intact batch at position {position}, offset {offset}")
                break
            if header.base_offset != offset:
                raise BadMetadata(
                    f"{name}: the batch at position {position} has offset {header.base_offset}, not {offset}"
                )
            if header.leader_epoch < self._epoch or not self._is_possible(header.leader_epoch):
                raise BadMetadata(
                    f"{name}: the batch at position {position}, offset {offset}, has epoch "
                    f"{header.leader_epoch} after epoch {self._epoch}"
                )
            self._epoch = header.leader_epoch
            if offset <= snapshot_end < header.next_offset:
                self._epoch_after = header.leader_epoch
            position += header.size
            offset = header.next_offset
        return offset

    def _is_possible(self, epoch: int) -> bool:
        return self._stop.epoch_max is None or epoch <= self._stop.epoch_max

    def _may_be_torn(self, base: int, rest: memoryview, offset: int, snapshot_end: int) -> bool:
        """Whether the last stop can have left these bytes behind the last sound batch."""
        stop = self._stop
        is_flushed = offset < max(stop.recovery_point or 0, snapshot_end)
        if stop.trust == "clean" or is_flushed or base != self._bases[-1]:
            return False
        return is_cut_short(rest, offset) if stop.trust == "killed" else is_lost_write(rest, offset)

    def _check_end(self, snapshot_end: int, log_end: int, end: int) -> None:
        stop = self._stop
        last = f"{self._bases[-1]:020d}.log" if self._bases else "no segment"
        if log_end < snapshot_end and stop.trust != "lost":
            raise BadMetadata(f"{last}: ends at offset {log_end}, but a snapshot ends at {snapshot_end}")
        flushed = stop.recovery_point
        if flushed is not None and end < flushed:
            raise BadMetadata(f"{last}: ends at offset {end}, but it was flushed up to {flushed}")
        if flushed is not None and stop.trust == "clean" and end != flushed:
            raise BadMetadata(f"{last}: ends at offset {end}, but the last run stopped at {flushed}")
