"""Offsets as users write them and as checkpoints keep them: JSON, by topic and partition.

    {"clicks": {"0": 120, "1": 87}}                         as Spark's Kafka connector has them
    {"clicks": {"0": 120, "1": 87, "id": "mGZc9w…"}}        with the topic's id: what checkpoints keep

The id tells a topic from another one that has its name later. Either form is understood everywhere.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.cluster import TopicPartition
from headrace.spark.errors import InvalidOption

ID = "id"  # no partition has such a number

LATEST, EARLIEST = -1, -2  # as Kafka and Spark write them in place of an offset


@dataclass(slots=True, frozen=True)
class Offsets:
    """Where each partition is, and which topics were meant."""

    at: dict[TopicPartition, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, dict[str, int | str]]:
        """In a fixed order: Spark compares the text to see whether anything is new."""
        found: dict[str, dict[str, int | str]] = {}
        for at in sorted(self.at):
            found.setdefault(at.topic, {})[str(at.partition)] = self.at[at]
        for topic, offsets in found.items():
            if topic in self.topic_ids:
                offsets[ID] = self.topic_ids[topic]
        return found


def from_json(value: Mapping[str, Any], name: str = "offsets") -> Offsets:
    """The other way round; `name` is whose value it is."""
    offsets = Offsets()
    for topic, partitions in value.items():
        if not isinstance(partitions, Mapping):
            raise InvalidOption(
                f'{name}: expected {{"topic": {{"0": 23}}}}, and {topic!r} has {partitions!r}'
            )
        for partition, offset in partitions.items():
            if partition == ID:
                offsets.topic_ids[topic] = str(offset)
            else:
                offsets.at[_partition(topic, partition, name)] = _number(offset, name)
    return offsets


def parse(text: str, name: str) -> Offsets:
    """From an option."""
    return from_json(json_object(text, name), name)


def json_object(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{name} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidOption(f'{name}: expected a JSON object such as {{"topic": …}}, got {text}')
    return value


def _partition(topic: str, text: str, name: str) -> TopicPartition:
    if not text.isascii() or not text.isdigit():
        raise InvalidOption(f"{name}: {text!r} of topic {topic!r} is no partition")
    return TopicPartition(topic, int(text))


def _number(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"{name}: {value!r} is no whole number")
    return value
