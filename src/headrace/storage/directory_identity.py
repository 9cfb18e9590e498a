"""Owner of a log directory: node, cluster and directory id, from its meta.properties."""

from collections.abc import Set
from contextlib import suppress
from typing import NamedTuple

from headrace.base.ids import DirectoryId, id_from_text, id_text
from headrace.storage import checkpoints
from headrace.storage.checkpoint_sums import SUMS, Sums, sum_of
from headrace.storage.disk import Disk, read_whole
from headrace.storage.errors import DamagedProperties, WrongDirectory
from headrace.storage.partition_directories import partitions_among


class Identity(NamedTuple):
    directory_id: DirectoryId
    new_properties: dict[str, str]  # to be written before the first log; empty: the file has all of it


def read_identity(
    disk: Disk,
    name: str,
    names: Set[str],
    sums: Sums,
    *,
    node_id: int,
    cluster_id: str,
    directory_id_if_new: bytes,
) -> Identity:
    """WrongDirectory when it belongs to another node, DamagedProperties when nobody can tell to whom. Who has
    no partitions yet is new. `names` are the entries of the directory.
    """
    path = f"{name}/{checkpoints.META_PROPERTIES}"
    new_id = DirectoryId(directory_id_if_new)
    if checkpoints.META_PROPERTIES not in names:
        new = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(node_id),
            "directory.id": id_text(new_id),
        }
        if _holds_partitions(disk, names):
            raise _without_properties(name, new)
        return Identity(new_id, new)
    data = read_whole(disk, checkpoints.META_PROPERTIES)
    known = sums.get(checkpoints.META_PROPERTIES)
    if known is not None and sum_of(checkpoints.META_PROPERTIES, data) not in known:
        raise DamagedProperties(
            f"{path} is damaged: its checksum is wrong. Restore the file from a backup; if it was changed on "
            f"purpose, remove {name}/{SUMS}"
        )
    properties = checkpoints.parse_properties(data)
    if properties.get("version") not in ("0", "1"):
        raise DamagedProperties(f"{path} says version {properties.get('version')!r}, not 1")
    for key, ours in (("node.id", str(node_id)), ("cluster.id", cluster_id)):
        if key not in properties:
            raise DamagedProperties(f"{path} has no {key}")
        if properties[key] != ours:
            raise WrongDirectory(f"{name} belongs to {key} {properties[key]!r}, not {ours!r}")
    if "directory.id" not in properties:  # written before directories had ids: it gets one, as in Kafka
        return Identity(new_id, {**properties, "directory.id": id_text(new_id)})
    try:
        return Identity(DirectoryId(id_from_text(properties["directory.id"])), {})
    except ValueError as error:
        raise DamagedProperties(f"{path} has no readable directory.id") from error


def _holds_partitions(disk: Disk, names: Set[str]) -> bool:
    """Whether there is anything of a log; of the metadata log, too. A node that was killed at its first start
    has come to the properties before that.
    """
    for topic, partition in partitions_among(names):
        with suppress(NotADirectoryError):  # somebody's file
            if disk.list(f"{topic}-{partition}"):
                return True
    return False


def _without_properties(name: str, new: dict[str, str]) -> DamagedProperties:
    """With another directory id a voter would vote no more, and the cluster would look for the partitions in
    a directory that is gone.
    """
    lines = ", ".join(f"{key}={value}" for key, value in new.items())
    return DamagedProperties(
        f"{name} has partitions, but no {checkpoints.META_PROPERTIES}, which says whose they are. The node "
        "does not start, and nothing was changed on disk. Restore this file from a backup, or write it again "
        "with the cluster.id of the other nodes and the directory.id that this node had: if it is a "
        "controller, `headrace cluster describe --json` shows it. A node that is its whole cluster may "
        f"have new ids, one line each: {lines}. To start as a new node, empty the whole directory"
    )
