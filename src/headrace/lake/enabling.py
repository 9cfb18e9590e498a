"""Makes a lake table for a topic, or finds that there is one already."""

from __future__ import annotations

from headrace.lake.delta import DeltaLake, Snapshot
from headrace.lake.errors import WrongTable
from headrace.lake.rows import RAW_SCHEMA
from headrace.lake.topic import LakeTopic


def group_of(topic: str) -> str:
    """The group that shows a table's progress, unless the user names another."""
    return f"lake-{topic}"


def enable(lake: DeltaLake, topic: LakeTopic, group: str | None = None) -> Snapshot:
    """Return the topic's table; create it if it does not exist."""
    topic_id = topic.topic_id()
    if not lake.exists():
        lake.create(topic.name, topic_id, group or group_of(topic.name), RAW_SCHEMA)
    snapshot = lake.load()
    if snapshot.topic_id != topic_id:
        raise WrongTable(
            f"table {lake.path} is of topic {snapshot.topic!r} with id {snapshot.topic_id}; topic "
            f"{topic.name!r} has id {topic_id}: use another path"
        )
    if group is not None and group != snapshot.group:
        raise WrongTable(
            f"table {lake.path} commits to group {snapshot.group!r}, not {group!r}: leave the group out"
        )
    return snapshot
