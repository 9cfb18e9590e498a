"""Partitions as people write and read them."""

from __future__ import annotations

import click
import pytest

from headrace.cli.partitions import PARTITIONS, Chosen, partitions_text
from headrace.client.cluster import TopicPartition


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("orders", Chosen("orders", [])),
        ("orders:3", Chosen("orders", [3])),
        ("orders:0-2,7", Chosen("orders", [0, 1, 2, 7])),
        ("orders:7,0-2,1", Chosen("orders", [0, 1, 2, 7])),
        ("orders:5-5", Chosen("orders", [5])),
    ],
)
def test_read(text: str, chosen: Chosen) -> None:
    assert PARTITIONS.convert(text, None, None) == chosen


@pytest.mark.parametrize(
    "text", ["", ":1", "orders:", "orders:x", "orders:1-", "orders:3-1", "orders:0-999999999", "orders:1,,2"]
)
def test_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        PARTITIONS.convert(text, None, None)


def test_written_as_read() -> None:
    partitions = [TopicPartition("b", 1), *(TopicPartition("a", index) for index in (7, 2, 0, 1))]
    assert partitions_text(partitions) == "a:0-2,7 b:1"
    assert partitions_text([]) == ""
