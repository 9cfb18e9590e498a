"""The metadata log's files as values: its batches in order, and snapshots in Kafka's form.

A snapshot `<end offset>-<epoch>.checkpoint` holds what the log said below that offset, as batches of its own:
a header as control record, the voters as control records, records, a footer as control record. It gets its
name only when it is whole and synced. Making one needs nothing but the files (the last snapshot and the log
after it), so it is a job that another process can do.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.base.values import Value
from headrace.machines.metadata.errors import BadMetadata
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.snapshot import snapshot_records
from headrace.machines.metadata.versions import encode
from headrace.machines.raft.replica_log import LogPoint, ReplicaLog
from headrace.machines.raft.voters import VoterKey, Voters
from headrace.protocol.compiler import codec
from headrace.protocol.errors import ProtocolError
from headrace.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
)
from headrace.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveTopicRecord,
    decode_record,
)
from headrace.protocol.notation import Data
from headrace.records.builder import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    build_batch,
    control_batch,
    control_kind,
)
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, read_rows
from headrace.storage.disk import Disk, read_whole
from headrace.storage.jobs import JobKind

METADATA_TOPIC = "__cluster_metadata"
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"

CHECKPOINT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
SEGMENT = re.compile(r"([0-9]{20})\.log")
CHECKPOINT_SUFFIX = ".checkpoint"
UNFINISHED = ".part"

# The quorum keeps its voters in the log, with their directories (KIP-853).
VOTERS_IN_LOG = 1

# Records in one batch of a snapshot: some 100 KB, so that neither side holds the whole of it twice.
RECORDS_PER_BATCH = 1_000


class SnapshotId(NamedTuple):
    """The log below `end_offset` is in it; `epoch` is that of the last batch it covers."""

    end_offset: int
    epoch: int

    @property
    def file(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


class LoggedBatch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    records: list[Data]  # none in a control batch
    voters: tuple[tuple[int, VotersRecord], ...] = ()  # who votes, if the batch says so, with their offsets


class SnapshotContent(NamedTuple):
    image: ClusterImage
    voters: VotersRecord | None  # None: it does not say


class Loaded(NamedTuple):
    image: ClusterImage
    snapshot: SnapshotId | None
    end_offset: int
    epoch: int  # of the last batch; 0 when there is none
    replayed: int  # records read from the log, after the snapshot
    removed: frozenset[bytes]  # ids of topics that those records removed
    epochs: tuple[tuple[int, int], ...] = ()  # of the batches after the snapshot: each, and where it begins
    voters: tuple[tuple[int, VotersRecord], ...] = ()  # records that say who votes, with their offsets


def load(disk: Disk, directory: str, end_offset: int | None = None) -> Loaded:
    """Rebuild the image from the newest whole snapshot and the log after it, up to `end_offset`.

    The log is taken to be sound: `metadata_check` loads it when a node starts.
    """
    for snapshot in snapshots(disk, directory):
        if end_offset is not None and snapshot.end_offset > end_offset:
            continue
        content = read_snapshot(disk, directory, snapshot)
        if content is not None:
            return load_after(disk, directory, snapshot, content, end_offset)
    return load_after(disk, directory, None, SnapshotContent(ClusterImage(), None), end_offset)


def load_after(
    disk: Disk, directory: str, snapshot: SnapshotId | None, content: SnapshotContent, end_offset: int | None
) -> Loaded:
    """The same from a snapshot that was read already; its image is changed."""
    position, epoch = (snapshot.end_offset, snapshot.epoch) if snapshot else (0, 0)
    image = content.image
    epochs: list[tuple[int, int]] = []
    voters: list[tuple[int, VotersRecord]] = []
    if content.voters is not None:
        voters.append((position - 1, content.voters))
    replayed = 0
    transaction = Transaction(image)
    for batch in logged_batches(disk, directory, position, end_offset):
        if batch.base_offset > position:
            raise BadMetadata(
                f"the metadata log has no records between offsets {position} and {batch.base_offset}"
            )
        for record in batch.records:
            transaction.replay(record)
        replayed += len(batch.records)
        voters += batch.voters
        if not epochs or batch.epoch > epochs[-1][0]:
            epochs.append((batch.epoch, batch.base_offset))
        position, epoch = batch.next_offset, batch.epoch
    removed = frozenset(transaction.removed)
    return Loaded(image, snapshot, position, epoch, replayed, removed, tuple(epochs), tuple(voters))


def voters_of(record: VotersRecord) -> Voters:
    return Voters.of(VoterKey(one.voter_id, one.voter_directory_id) for one in record.voters)


def replica_log(loaded: Loaded) -> ReplicaLog:
    """What the machine has to know of the log that was found; all of it is flushed."""
    snapshot = (
        LogPoint(*loaded.snapshot) if loaded.snapshot is not None and loaded.snapshot.end_offset else None
    )
    epochs = list(loaded.epochs)
    if snapshot is not None and (not epochs or epochs[0][0] > snapshot.epoch):
        epochs.insert(0, (snapshot.epoch, snapshot.end_offset - 1))
    elif snapshot is not None:
        epochs[0] = (snapshot.epoch, snapshot.end_offset - 1)
    return ReplicaLog(
        start_offset=snapshot.end_offset if snapshot is not None else 0,
        end_offset=loaded.end_offset,
        epochs=epochs,
        snapshot=snapshot,
        voters=[(offset, voters_of(record)) for offset, record in loaded.voters],
    )


def split_at_snapshot(disk: Disk, loaded: Loaded) -> tuple[ClusterImage, Iterator[LoggedBatch]]:
    """The image of the snapshot, and the batches in the log after it."""
    image, start = ClusterImage(), 0
    if loaded.snapshot is not None:
        content = read_snapshot(disk, METADATA_DIRECTORY, loaded.snapshot)
        assert content is not None, "it was read a moment ago"
        image, start = content.image, loaded.snapshot.end_offset
    return image, logged_batches(disk, METADATA_DIRECTORY, start, loaded.end_offset)


class Transaction:
    """Records between a begin and an end count together, or not at all (KIP-868).

    Our own decisions are one batch each and need none; Kafka's controllers write them.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._held: list[Data] | None = None  # None outside of a transaction
        self.removed: set[bytes] = set()  # ids of the topics that were removed

    def replay(self, record: Data) -> None:
        kind = type(record)
        if kind is BeginTransactionRecord:
            self._held = []
        elif kind is AbortTransactionRecord:
            self._held = None
        elif kind is EndTransactionRecord:
            held, self._held = self._held or [], None
            for each in held:
                self._replay(each)
        elif self._held is not None:
            self._held.append(record)
        else:
            self._replay(record)

    def _replay(self, record: Data) -> None:
        if type(record) is RemoveTopicRecord:
            self.removed.add(record.topic_id)
        self._image.replay(record)


def logged_batches(disk: Disk, directory: str, start: int, end_offset: int | None) -> Iterator[LoggedBatch]:
    """The log's batches from `start` on; those that reach past `end_offset` are left out."""
    if start == end_offset:
        return  # the same, where a segment begins with half a batch
    bases = sorted(int(match[1]) for name in disk.list(directory) if (match := SEGMENT.fullmatch(name)))
    first = max((base for base in bases if base <= start), default=start)
    for base in bases:
        if base < first:
            continue
        data = read_whole(disk, f"{directory}/{base:020d}.log")
        for batch in decoded_batches(data):
            if end_offset is not None and batch.next_offset > end_offset:
                return
            if batch.base_offset >= start:
                yield batch
            if batch.next_offset == end_offset:
                return  # what lies behind it may be half a batch


def decoded_batches(data: bytes) -> Iterator[LoggedBatch]:
    """BadMetadata when something in it is not what controllers write."""
    try:
        for position, header in batches(data):
            records: list[Data] = []
            voters: tuple[tuple[int, VotersRecord], ...] = ()
            if header.is_control:
                voters = tuple(
                    (offset, codec(VotersRecord, 0).decode(value, 0))
                    for offset, _, key, value, _ in read_rows(data, position, header)
                    if control_kind(key) == KRAFT_VOTERS and value is not None
                )
            else:
                for _, _, _, value, _ in read_rows(data, position, header):
                    if value is None:
                        raise BadMetadata(
                            f"the metadata log has a record without a value at offset {header.base_offset}"
                        )
                    records.append(decode_record(value))
            yield LoggedBatch(header.base_offset, header.next_offset, header.leader_epoch, records, voters)
    except (BadRecords, ProtocolError) as error:
        raise BadMetadata(f"the metadata log cannot be read: {error}") from error


def remove_unfinished(disk: Disk, directory: str) -> None:
    """What a stop in the middle of a snapshot left behind."""
    for name in disk.list(directory):
        if name.endswith(CHECKPOINT_SUFFIX + UNFINISHED):
            disk.remove(f"{directory}/{name}")


def snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """Newest first."""
    matches = (CHECKPOINT.fullmatch(name) for name in disk.list(directory))
    found = (SnapshotId(int(match[1]), int(match[2])) for match in matches if match)
    return sorted(found, reverse=True)


def read_snapshot(disk: Disk, directory: str, snapshot: SnapshotId) -> SnapshotContent | None:
    """What it holds; None when it is not whole, so that an older one is tried."""
    data = read_whole(disk, f"{directory}/{snapshot.file}")
    image = ClusterImage()
    voters: VotersRecord | None = None
    is_whole = False
    try:
        for position, header in batches(data):
            for _, _, key, value, _ in read_rows(data, position, header):
                if header.is_control:
                    is_whole = control_kind(key) == SNAPSHOT_FOOTER
                    if control_kind(key) == KRAFT_VOTERS and value is not None:
                        voters = codec(VotersRecord, 0).decode(value, 0)
                elif value is not None:
                    image.replay(decode_record(value))
    except BadRecords:
        return None
    except ProtocolError as error:
        raise BadMetadata(f"snapshot {snapshot.file} cannot be read: {error}") from error
    return SnapshotContent(image, voters) if is_whole else None


def snapshot_batches(
    records: Iterable[Data], voters: VotersRecord | None, epoch: int, wall_ms: int
) -> Iterator[bytes]:
    """The bytes of a snapshot, batch by batch; offsets count within it."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=wall_ms)
    value = codec(SnapshotHeaderRecord, 0).encode(header)
    yield control_batch(SNAPSHOT_HEADER, value, timestamp=wall_ms, leader_epoch=epoch)
    offset = 1
    if voters is not None:
        for batch in voters_batches(voters, offset, epoch, wall_ms):
            yield batch
            offset += 1
    chunk: list[Data] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == RECORDS_PER_BATCH:
            yield metadata_batch(chunk, offset, epoch, wall_ms)
            offset += len(chunk)
            chunk = []
    if chunk:
        yield metadata_batch(chunk, offset, epoch, wall_ms)
        offset += len(chunk)
    footer = codec(SnapshotFooterRecord, 0).encode(SnapshotFooterRecord())
    yield control_batch(SNAPSHOT_FOOTER, footer, timestamp=wall_ms, base_offset=offset, leader_epoch=epoch)


def check_follows(batches: Iterable[LoggedBatch], end: LogPoint, epoch_max: int) -> None:
    """BadMetadata when these do not follow, without a gap, on a log that ends there."""
    offset, epoch = end
    for batch in batches:
        if batch.base_offset != offset or not epoch <= batch.epoch <= epoch_max:
            raise BadMetadata(
                f"a batch with offset {batch.base_offset} and epoch {batch.epoch} does not follow on a log "
                f"that ends at offset {offset} with epoch {epoch}, in epoch {epoch_max}"
            )
        offset, epoch = batch.next_offset, batch.epoch
    if offset == end.end_offset:
        raise BadMetadata("there is no whole batch")


def leader_change_batch(
    leader_id: int, voters: Voters, granting: Iterable[int], base_offset: int, epoch: int, wall_ms: int
) -> bytes:
    """The first batch of an epoch; it commits everything before it (Raft §5.4.2)."""
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[Voter(voter_id=id) for id in voters.ids],
        granting_voters=[Voter(voter_id=id) for id in granting],
    )
    value = codec(LeaderChangeMessage, 0).encode(message)  # Kafka's tools read no other version
    return control_batch(LEADER_CHANGE, value, timestamp=wall_ms, base_offset=base_offset, leader_epoch=epoch)


def voters_batches(voters: VotersRecord, base_offset: int, epoch: int, wall_ms: int) -> list[bytes]:
    """Two batches of one control record each: that voters are kept in the log, and who they are."""
    version = codec(KRaftVersionRecord, 0).encode(KRaftVersionRecord(kraft_version=VOTERS_IN_LOG))
    who = codec(VotersRecord, 0).encode(voters)
    return [
        control_batch(kind, value, timestamp=wall_ms, base_offset=base_offset + place, leader_epoch=epoch)
        for place, (kind, value) in enumerate(((KRAFT_VERSION, version), (KRAFT_VOTERS, who)))
    ]


def metadata_batch(records: Iterable[Data], base_offset: int, epoch: int, wall_ms: int) -> bytes:
    return build_batch(
        [(wall_ms, None, encode(record), ()) for record in records],
        base_offset=base_offset,
        leader_epoch=epoch,
    )


class SnapshotJob(Value):
    """Writes the snapshot of all below `end_offset` and removes the older ones; gives its id."""

    directory: str
    end_offset: int
    wall_ms: int
    kind: JobKind = JobKind.CPU

    def run(self, disk: Disk) -> SnapshotId:
        loaded = load(disk, self.directory, self.end_offset)
        assert loaded.end_offset == self.end_offset, "a snapshot ends where a batch ends"
        snapshot = SnapshotId(self.end_offset, loaded.epoch)
        path = f"{self.directory}/{snapshot.file}"
        file = disk.open(path + UNFINISHED, create=True)
        try:
            file.truncate(0)
            voters = loaded.voters[-1][1] if loaded.voters else None
            records = snapshot_records(loaded.image)
            for batch in snapshot_batches(records, voters, loaded.epoch, self.wall_ms):
                file.append(batch)
        finally:
            file.close()
        return name_snapshot(disk, self.directory, snapshot)


class NameSnapshotJob(Value):
    """Makes a snapshot that was fetched from the leader durable, and gives it its name; returns its id."""

    directory: str
    snapshot: SnapshotId
    kind: JobKind = JobKind.IO

    def run(self, disk: Disk) -> SnapshotId:
        return name_snapshot(disk, self.directory, self.snapshot)


def name_snapshot(disk: Disk, directory: str, snapshot: SnapshotId) -> SnapshotId:
    """The whole of it is written: sync it, give it its name, and remove the older ones."""
    path = f"{directory}/{snapshot.file}"
    file = disk.open(path + UNFINISHED)
    try:
        file.sync()
    finally:
        file.close()
    disk.rename(path + UNFINISHED, path)
    disk.sync_dir(directory)
    for older in snapshots(disk, directory):
        if older < snapshot:
            disk.remove(f"{directory}/{older.file}")
    return snapshot
