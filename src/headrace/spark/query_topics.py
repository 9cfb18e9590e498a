"""The topics of a query as the brokers describe them: partitions, offsets, sizes, group progress.

The planner asks, through one admin client; tasks never do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Self

from headrace.client.admin.configs import Resource
from headrace.client.admin.offsets import ListedOffset
from headrace.client.admin.topics import TopicDescription
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, KafkaError, PartlyFailed, UnsupportedByBroker
from headrace.client.threads.admin import Admin
from headrace.client.threads.range_reader import TopicRecreated, recreated_text
from headrace.spark.errors import InvalidOption
from headrace.spark.loss import Loss, describe_losses
from headrace.spark.options import EARLIEST, LATEST, Offsets, OffsetSpec, SourceOptions
from headrace.spark.ranges import Range, limit_ends, ranges_between, split_at, split_evenly
from headrace.spark.reading import ADVICE


class QueryTopics:
    """The admin client is created when it is first needed."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._made: Admin | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None

    @property
    def _admin(self) -> Admin:
        if self._made is None:
            self._made = Admin(self._options.admin_settings)
        return self._made

    # --- topics ------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicDescription]:
        """Return the existing topics that the query reads, by name."""
        options = self._options
        if options.pattern is not None:
            matches = re.compile(options.pattern).fullmatch
            found = self._admin.list_topics(internal=False)
            return {topic.name: topic for topic in found if matches(topic.name)}
        names = options.topics or sorted({at.topic for at in options.assigned})
        try:
            return self._admin.describe_topics(names)
        except ClientError as error:
            if not _is_unknown_topic(error):
                raise
        found = self._admin.list_topics(internal=True)
        return {topic.name: topic for topic in found if topic.name in names}

    def partitions(self, topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
        """Return the partitions of these topics that the query reads."""
        existing = {at for topic in topics.values() for at in topic.all_partitions()}
        return sorted(existing.intersection(self._options.assigned) if self._options.assigned else existing)

    def required_topics(self) -> dict[str, TopicDescription]:
        """As `topics`; raise InvalidOption if a topic or partition that the query names does not exist."""
        topics = self.topics()
        wanted = self._options.topics or sorted({at.topic for at in self._options.assigned})
        missing = [name for name in wanted if name not in topics]
        if missing:
            names = ", ".join(map(repr, missing))
            raise InvalidOption(f"topic {names} does not exist: check the name, or create it first")
        absent = set(self._options.assigned).difference(self.partitions(topics))
        if absent:
            raise InvalidOption(
                f"assign: partition {min(absent)} does not exist; the topic has fewer partitions"
            )
        return topics

    # --- offsets -----------------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the readable ends: with read_committed, where the first open transaction begins."""
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {at: found.offset or 0 for at, found in self.list_offsets(wanted).items()}

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log end offsets, including open transactions."""
        found = self.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level="read_uncommitted")
        return {at: listed.offset or 0 for at, listed in found.items()}

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: str | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        """`wanted` has EARLIEST, LATEST or a timestamp in milliseconds for each partition."""
        if not wanted:
            return {}
        level = isolation_level or self._options.isolation_level
        return self._admin.list_offsets(wanted, isolation_level=level)

    def resolve(self, spec: OffsetSpec, topics: Mapping[str, TopicDescription]) -> Offsets:
        """Return the offsets at which the query starts or ends."""
        partitions = self.partitions(topics)
        ids = {name: topic.topic_id for name, topic in topics.items()}
        if spec.each is None:
            assert spec.everywhere is not None
            wanted = dict.fromkeys(partitions, spec.everywhere)
        else:
            check_topic_ids(spec.each.topic_ids, ids)
            _check_same(spec.each.by_partition, partitions)
            wanted = spec.each.by_partition
        if spec.is_time:
            return Offsets(self._at_times(wanted, is_late_allowed=spec.is_late_allowed), ids)
        asked = {where: offset for where, offset in wanted.items() if offset < 0}
        return Offsets({**wanted, **self._offsets(asked)}, ids)

    def _at_times(
        self, times: Mapping[TopicPartition, int], *, is_late_allowed: bool
    ) -> dict[TopicPartition, int]:
        found = {at: listed.offset for at, listed in self.list_offsets(times).items()}
        late = [at for at, offset in found.items() if offset is None]
        if late and not is_late_allowed:
            raise InvalidOption(
                f"partition {late[0]} has no record with a timestamp of {times[late[0]]} ms or later; set "
                "startingOffsetsByTimestampStrategy to latest to start such partitions at their end"
            )
        ends = self.latest(late)
        return {at: ends[at] if offset is None else offset for at, offset in found.items()}

    # --- bytes -------------------------------------------------------------------------------------------

    def split_by_bytes(
        self, ranges: list[Range], bytes_max: int | Mapping[TopicPartition, int]
    ) -> list[Range]:
        """Split into parts of about `bytes_max` bytes each.

        Headrace's brokers say where bytes lie. Other brokers tell at most a partition's size; its records
        are then assumed to be of equal size.
        """
        try:
            found = self._admin.split_ranges(_spans(ranges), bytes_max)
            return [part for each in ranges for part in split_at(each, found[each.partition].offsets)]
        except UnsupportedByBroker:
            pass
        limit_of = bytes_max.__getitem__ if isinstance(bytes_max, Mapping) else lambda _: bytes_max
        sizes = self._record_sizes(ranges)
        return [
            part
            for each in ranges
            for part in split_evenly(
                each, -(-each.size * sizes.get(each.partition, 0) // limit_of(each.partition))
            )
        ]

    def _record_sizes(self, ranges: Iterable[Range]) -> dict[TopicPartition, int]:
        """Return the average bytes per offset of each partition whose size the brokers tell."""
        partitions = {each.partition for each in ranges}
        try:
            directories = self._admin.describe_log_dirs()
        except (KafkaError, UnsupportedByBroker):
            return {}  # not authorized, or not supported
        sizes = {at: size for one in directories for at, size in one.partition_bytes.items()}
        starts, ends = self.earliest(partitions), self.latest(partitions)
        return {
            at: -(-sizes[at] // (ends[at] - starts[at]))
            for at in partitions
            if at in sizes and ends[at] > starts[at]
        }

    def limit_by_bytes(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], bytes_max: int
    ) -> dict[TopicPartition, int]:
        """Lower the ends to a total of about `bytes_max`, in proportion to the partitions' backlogs.

        Every partition with a backlog advances.
        """
        ranges = ranges_between(starts, ends)
        sizes = self._range_sizes(ranges)
        total = sum(sizes.values())
        if total <= bytes_max:
            return dict(ends)
        count = sum(each.size for each in ranges)
        limited = limit_ends(starts, ends, max(1, count * bytes_max // total))
        shares = {at: max(1, bytes_max * size // total) for at, size in sizes.items()}
        firsts = {part.partition: part for part in reversed(self.split_by_bytes(ranges, shares))}
        # a range that could not be split keeps the limit by its number of offsets
        return limited | {
            each.partition: firsts[each.partition].end for each in ranges if firsts[each.partition] != each
        }

    def _range_sizes(self, ranges: list[Range]) -> dict[TopicPartition, int]:
        """Return the approximate bytes of each range; 0 where the brokers do not tell."""
        if not ranges:
            return {}
        try:
            found = self._admin.split_ranges(_spans(ranges), 1 << 62)
            return {at: one.total_bytes for at, one in found.items()}
        except UnsupportedByBroker:
            sizes = self._record_sizes(ranges)
            return {each.partition: each.size * sizes.get(each.partition, 0) for each in ranges}

    # --- losses ------------------------------------------------------------------------------------------

    def describe(self, losses: Iterable[Loss]) -> str:
        return describe_losses(losses, config_of=self._config_of, first_ms=self._first_ms)

    def _config_of(self, topic: str) -> dict[str, str | None]:
        try:
            described = self._admin.describe_config(Resource.topic(topic))
        except ClientError:
            return {}  # not authorized, or deleted
        return {name: entry.value for name, entry in described.items()}

    def _first_ms(self, at: TopicPartition) -> int | None:
        """Return the timestamp of the first record that has one."""
        return self.list_offsets({at: 0})[at].timestamp_ms

    # --- progress ----------------------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit a stream's progress as the offsets of a group without members."""
        if offsets:
            self._admin.alter_group_offsets(group, offsets)


def _is_unknown_topic(error: ClientError) -> bool:
    if isinstance(error, PartlyFailed):
        return all(_is_unknown_topic(each) for each in error.failures.values())
    return isinstance(error, KafkaError) and error.is_unknown_topic


def _spans(ranges: Iterable[Range]) -> dict[TopicPartition, tuple[int, int]]:
    return {each.partition: (each.start, each.end) for each in ranges}


def check_topic_ids(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise TopicRecreated for a topic whose id has changed."""
    for topic, topic_id in before.items():
        if topic in now and now[topic] != topic_id:
            raise TopicRecreated(recreated_text(topic, topic_id, now[topic], ADVICE))


def _check_same(given: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> None:
    missing, extra = set(partitions).difference(given), set(given).difference(partitions)
    if missing:
        raise InvalidOption(
            f"partition {min(missing)} has no offset: give offsets for all partitions of the query"
        )
    if extra:
        raise InvalidOption(
            f"an offset is given for partition {min(extra)}, which the query does not read: remove it"
        )
