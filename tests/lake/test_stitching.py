"""The table up to its ledger and the topic from there: each record once."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.lake.errors import RecordsLost
from headrace.lake.stitching import read_stitched
from lake.tables import Fill, Lake, all_rows


def stitched(lake: Lake, **more: Any) -> list[tuple[int, int, bytes | None]]:
    snapshot = more.pop("snapshot", None) or lake.load()
    return [
        (row["_partition"], row["_offset"], row["_value"])
        for table in read_stitched(lake.path, snapshot, lake.topic, **more)
        for row in table.to_pylist()
    ]


def test_table_and_topic_are_one(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 6)
    lake.copy()
    fill(topic, 4, first=6)
    assert stitched(lake) == all_rows(10)
    assert stitched(lake, partitions=[1], start=4, end=8) == [
        row for row in all_rows(10)[10:] if 4 <= row[1] < 8
    ]


def test_the_table_has_what_the_topic_no_longer_has(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 6)
    lake.copy()
    lake.admin.delete_records({(topic, 0): 6, (topic, 1): 3})
    fill(topic, 2, first=6)
    assert stitched(lake) == all_rows(8)


def test_what_is_copied_meanwhile_is_not_there_twice(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 6)
    lake.copy()
    before = lake.load()
    fill(topic, 4, first=6)
    lake.copy()
    assert stitched(lake, snapshot=before) == all_rows(10)


def test_a_partition_of_which_the_table_has_nothing_comes_from_the_topic(
    lake: Lake, topic: str, fill: Fill
) -> None:
    fill(topic, 2)
    lake.copy()
    lake.admin.create_partitions({topic: 3})
    fill(topic, 3, 3, first=2)
    assert len(stitched(lake)) == 4 + 9


def test_a_hole_between_table_and_topic_is_an_error(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 6)
    lake.copy()
    fill(topic, 4, first=6)
    lake.admin.delete_records({(topic, 0): 8})
    with pytest.raises(RecordsLost, match="offsets 6 to 7 of partition 0"):
        stitched(lake)
