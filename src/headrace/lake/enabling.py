"""Makes a lake table for a topic, or finds that there is one already."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.lake.dead_letters import name_dead_letters
from headrace.lake.errors import WrongTable
from headrace.lake.rows import RAW_SCHEMA
from headrace.lake.table import IS_UPSERT, LakeTable, Snapshot
from headrace.lake.topic import LakeTopic
from headrace.lake.values import REGISTRY, ValueDecoder, ValueFormat


def group_of(topic: str) -> str:
    """The group that shows a table's progress, unless the user names another."""
    return f"lake-{topic}"


def enable(
    lake: LakeTable,
    topic: LakeTopic,
    group: str | None = None,
    *,
    values: ValueFormat | None = None,
    dead_letters: Path | None = None,
    upsert: bool = False,
) -> Snapshot:
    """Return the topic's table; create it if it does not exist.

    `values` may be given again, with a schema that has more fields: the table gets columns for them. A new
    table with `upsert` has one row for each key.
    """
    topic_id = topic.topic_id()
    if not lake.exists():
        schema, properties = RAW_SCHEMA, dict[str, str]()
        if values is not None:
            schema, properties = _declared_columns(values), values.properties()
        if upsert:
            properties[IS_UPSERT] = "true"
        lake.create(topic.name, topic_id, group or group_of(topic.name), schema, properties)
    snapshot = lake.load()
    if snapshot.topic_id != topic_id:
        raise WrongTable(
            f"table {lake.path} is of topic {snapshot.topic!r} with id {snapshot.topic_id}; topic "
            f"{topic.name!r} has id {topic_id}: use another path"
        )
    if snapshot.is_dead_letters:
        raise WrongTable(f"table {lake.path} has the dead letters of another one: use another path")
    if upsert and not snapshot.is_upsert:
        raise WrongTable(
            f"table {lake.path} has a row for each record: make another table for the newest of each key"
        )
    if snapshot.is_upsert and dead_letters is not None:
        raise WrongTable(
            f"table {lake.path} has one row for each key, and no dead letters: a record that cannot be a row "
            "stops the copy"
        )
    if group is not None and group != snapshot.group:
        raise WrongTable(
            f"table {lake.path} commits to group {snapshot.group!r}, not {group!r}: leave the group out"
        )
    if values is not None and values != snapshot.values:
        snapshot = _change_values(lake, snapshot, values)
    if dead_letters is not None:
        if snapshot.values is None:
            raise WrongTable(
                f"table {lake.path} has the values' bytes, for which every record is good: only tables with "
                "typed columns have dead letters"
            )
        snapshot = name_dead_letters(lake, snapshot, dead_letters)
    return snapshot


def _declared_columns(values: ValueFormat) -> pa.Schema:
    return values.own_schema if values.format == REGISTRY else ValueDecoder(values).declared_columns()


def _change_values(lake: LakeTable, snapshot: Snapshot, values: ValueFormat) -> Snapshot:
    """Take a newer schema for records that are copied from now on."""
    held = snapshot.values
    if held is None or held._replace(schema=values.schema) != values:
        what = "the values' bytes" if held is None else f"values of format {held.format}"
        raise WrongTable(f"table {lake.path} was made for {what}: make another table for these options")
    raise_if_removed(snapshot, values)
    lake.add_columns(_declared_columns(values))
    return lake.set_properties(values.properties())


def raise_if_removed(snapshot: Snapshot, values: ValueFormat) -> None:
    """A schema with fewer fields would leave columns empty without a word."""
    assert snapshot.values is not None
    missing = set(_declared_columns(snapshot.values).names) - set(_declared_columns(values).names)
    if missing:
        raise WrongTable(
            f"the new schema lacks {', '.join(sorted(missing))}, which the table's has: keep the fields"
        )
