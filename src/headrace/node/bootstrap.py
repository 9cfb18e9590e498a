"""Bootstrap records: users and rules that exist from the first start on, in Kafka's `bootstrap.checkpoint`.

`headrace user add --data` and `kafka-storage format --add-scram` write the file, in the form of a snapshot,
into the directory of the metadata log. The first active controller of a cluster writes the records into the
metadata log, in one batch with the versions of its features: the log has all of them or none, and once the
versions are there, nobody looks at the file again.
"""

from collections.abc import Iterable
from typing import TypeAlias

from headrace.machines.metadata.errors import BadMetadata
from headrace.machines.metadata.versions import FINALIZED_AT_FORMAT
from headrace.machines.raft.quorum_state import FILE as QUORUM_STATE
from headrace.node.metadata_files import (
    METADATA_DIRECTORY,
    SEGMENT,
    decoded_batches,
    snapshot_batches,
    snapshots,
)
from headrace.protocol.metadata_records import (
    AccessControlEntryRecord,
    FeatureLevelRecord,
    UserScramCredentialRecord,
)
from headrace.protocol.notation import Data
from headrace.records.builder import SNAPSHOT_FOOTER, control_kind
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, read_rows
from headrace.storage.checkpoints import META_PROPERTIES
from headrace.storage.disk import Disk, read_whole, write_atomically

BootstrapRecord: TypeAlias = UserScramCredentialRecord | AccessControlEntryRecord

BOOTSTRAP_FILE = "bootstrap.checkpoint"
_EPOCH = 0


def read_bootstrap(disk: Disk) -> list[BootstrapRecord]:
    """The users and rules; none if there is no such file. BadMetadata: it is damaged, or has other records.

    The versions of features in it are not used: the controller knows which ones it can do.
    """
    try:
        data = read_whole(disk, BOOTSTRAP_FILE)
    except FileNotFoundError:
        return []
    try:
        if not _is_whole(data):
            raise BadMetadata("its end is missing")
        records = [record for batch in decoded_batches(data) for record in batch.records]
    except (BadMetadata, BadRecords) as error:
        raise BadMetadata(
            f"{BOOTSTRAP_FILE} cannot be read: {error}. Remove it, and add the users again with `headrace "
            "user add --data`"
        ) from error
    found: list[BootstrapRecord] = []
    for record in records:
        if isinstance(record, UserScramCredentialRecord | AccessControlEntryRecord):
            found.append(record)
        elif not isinstance(record, FeatureLevelRecord):
            raise BadMetadata(f"{BOOTSTRAP_FILE} has a {type(record).__name__}, which Headrace does not use")
    return found


def write_bootstrap(disk: Disk, first: Iterable[BootstrapRecord], wall_ms: int) -> None:
    """Replaces the file: a crash leaves the old one or the new one."""
    versions = [FeatureLevelRecord(name=name, feature_level=level) for name, level in _versions()]
    records: list[Data] = [*versions, *first]
    write_atomically(disk, BOOTSTRAP_FILE, b"".join(snapshot_batches(records, None, _EPOCH, wall_ms)))


def has_started(disk: Disk) -> bool:
    """Whether a node has used this directory: then nobody would look at the file."""
    if disk.exists(METADATA_DIRECTORY):
        names = disk.list(METADATA_DIRECTORY)
        if QUORUM_STATE in names or any(one.end_offset for one in snapshots(disk, METADATA_DIRECTORY)):
            return True
        if any(_size(disk, f"{METADATA_DIRECTORY}/{name}") for name in names if SEGMENT.fullmatch(name)):
            return True
    # our nodes write it at their first start, kafka-storage format together with the other file
    return disk.exists(META_PROPERTIES) and not disk.exists(BOOTSTRAP_FILE)


def _versions() -> list[tuple[str, int]]:
    """As Kafka has them: metadata.version is the first."""
    return sorted(FINALIZED_AT_FORMAT.items(), key=lambda item: (item[0] != "metadata.version", item[0]))


def _is_whole(data: bytes) -> bool:
    last = None
    for position, header in batches(data):
        if header.is_control:
            last = [control_kind(key) for _, _, key, _, _ in read_rows(data, position, header)][-1]
        else:
            last = None
    return last == SNAPSHOT_FOOTER


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()
