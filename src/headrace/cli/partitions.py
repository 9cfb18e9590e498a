"""Partitions as people write and read them: `orders`, `orders:0`, `orders:0-3,7`."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

import click

from headrace.client.cluster import TopicPartition

_RANGES = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")
PARTITIONS_MAX = 1_000_000  # more than a topic has; 0-999999999 is a typing error


class Chosen(NamedTuple):
    topic: str
    partitions: list[int]  # empty: all of them


class Partitions(click.ParamType[Chosen]):
    name = "topic[:partitions]"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Chosen:
        if isinstance(value, Chosen):
            return value
        topic, colon, ranges = value.partition(":")
        if not topic or (colon and not _RANGES.fullmatch(ranges)):
            self.fail(
                f"{value!r} is not a topic, or a topic with partitions such as orders:0-3,7",
                parameter,
                context,
            )
        chosen: set[int] = set()
        for part in ranges.split(",") if ranges else ():
            first, _, last = part.partition("-")
            wanted = range(int(first), int(last or first) + 1)
            if not 0 < len(wanted) <= PARTITIONS_MAX:
                self.fail(f"{part!r} is not a range of partitions", parameter, context)
            chosen.update(wanted)
        return Chosen(topic, sorted(chosen))


PARTITIONS = Partitions()


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """orders:0-3,7 payments:1"""
    texts = []
    for topic, group in groupby(sorted(partitions), key=lambda at: at.topic):
        ranges: list[list[int]] = []
        for at in group:
            if ranges and at.partition == ranges[-1][1] + 1:
                ranges[-1][1] = at.partition
            else:
                ranges.append([at.partition, at.partition])
        texts.append(
            f"{topic}:" + ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)
        )
    return " ".join(texts)
