"""Checkpoint files, partition.metadata and meta.properties: text formats of Kafka, byte for byte.

    0                         version
    2                         number of lines that follow
    orders 0 5000             topic, partition, offset (or epoch and offset in leader-epoch-checkpoint)
    orders 1 4711

`partition.metadata` and `meta.properties` have formats of their own. A checkpoint that cannot be parsed
raises MalformedCheckpoint, and its reader continues as if the file were missing: recovery then reads more of
the log.
"""

from collections.abc import Mapping

from headrace.base.ids import TopicId, id_from_text, id_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

Partition = tuple[str, int]


class MalformedCheckpoint(ValueError):
    """The file is not what it should be."""


def render_lines(lines: list[str]) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def parse_lines(data: bytes) -> list[list[str]]:
    """The fields of each line; the last one ends in a newline, or it may be half of a number."""
    try:
        lines = data.decode().splitlines()
        if not data.endswith(b"\n"):
            raise MalformedCheckpoint("the checkpoint is cut off")
        if len(lines) < 2 or int(lines[0]) != 0 or int(lines[1]) != len(lines) - 2:
            raise MalformedCheckpoint(
                f"the checkpoint begins with {lines[:2]}, not with version 0 and the number of lines"
            )
        return [line.split() for line in lines[2:]]
    except (UnicodeDecodeError, ValueError) as error:
        raise MalformedCheckpoint(str(error)) from error


def render_offsets(offsets: Mapping[Partition, int]) -> bytes:
    return render_lines([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def parse_offsets(data: bytes) -> dict[Partition, int]:
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in parse_lines(data)}
    except ValueError as error:
        raise MalformedCheckpoint(str(error)) from error


def render_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {id_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> TopicId:
    try:
        version, topic_id = data.decode().splitlines()
        if version != "version: 0" or not topic_id.startswith("topic_id: "):
            raise MalformedCheckpoint(
                f"partition.metadata has {version!r} and {topic_id!r}, not version 0 and a topic id"
            )
        return TopicId(id_from_text(topic_id.removeprefix("topic_id: ")))
    except ValueError as error:
        raise MalformedCheckpoint(str(error)) from error


def render_properties(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def parse_properties(data: bytes) -> dict[str, str]:
    properties: dict[str, str] = {}
    for line in data.decode(errors="replace").splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.lstrip().startswith("#"):
            properties[key.strip()] = value.strip()
    return properties
