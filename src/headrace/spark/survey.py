"""What the cluster says of the topics of a query: which partitions there are, and where their logs begin and
end. Asked from the planner, never from a task.
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
from headrace.spark.errors import InvalidOption, TopicRecreated
from headrace.spark.loss import Loss, told
from headrace.spark.offsets import EARLIEST, LATEST, Offsets
from headrace.spark.options import At, SourceOptions
from headrace.spark.planning import Range, cut, cut_evenly, limited, ranges_between
from headrace.spark.reading import recreated


class Survey:
    """Asks through one administrator, which is made with the first question."""

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
        """Those that the query means and that are there, by name."""
        options = self._options
        if options.pattern is not None:
            matches = re.compile(options.pattern).fullmatch
            found = self._admin.list_topics(internal=False)
            return {topic.name: topic for topic in found if matches(topic.name)}
        names = options.topics or sorted({at.topic for at in options.assigned})
        try:
            return self._admin.describe_topics(names)
        except ClientError as error:
            if not _is_about_missing(error):
                raise
        found = self._admin.list_topics(internal=True)
        return {topic.name: topic for topic in found if topic.name in names}

    def partitions(self, topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
        """Those that the query means, of these topics."""
        there = {at for topic in topics.values() for at in topic.all_partitions()}
        return sorted(there.intersection(self._options.assigned) if self._options.assigned else there)

    def required_topics(self) -> dict[str, TopicDescription]:
        """As `topics`, but those that the query names have to be there."""
        topics = self.topics()
        wanted = self._options.topics or sorted({at.topic for at in self._options.assigned})
        missing = [name for name in wanted if name not in topics]
        if missing:
            raise InvalidOption(f"there is no topic {', '.join(map(repr, missing))}")
        absent = set(self._options.assigned).difference(self.partitions(topics))
        if absent:
            raise InvalidOption(f"there is no partition {min(absent)}")
        return topics

    # --- offsets -----------------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of what may be read: with read_committed, where open transactions begin."""
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {at: found.offset or 0 for at, found in self.listed(wanted).items()}

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of the logs, open transactions included."""
        found = self.listed(dict.fromkeys(partitions, LATEST), isolation_level="read_uncommitted")
        return {at: listed.offset or 0 for at, listed in found.items()}

    def listed(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: str | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        """By EARLIEST, LATEST or times in milliseconds."""
        if not wanted:
            return {}
        level = isolation_level or self._options.isolation_level
        return self._admin.list_offsets(wanted, isolation_level=level)

    def resolve(self, at: At, topics: Mapping[str, TopicDescription]) -> Offsets:
        """Where a query begins or ends, as offsets."""
        partitions = self.partitions(topics)
        ids = {name: topic.topic_id for name, topic in topics.items()}
        if at.each is None:
            assert at.everywhere is not None
            wanted = dict.fromkeys(partitions, at.everywhere)
        else:
            check_identities(at.each.topic_ids, ids)
            _check_same(at.each.at, partitions)
            wanted = at.each.at
        if at.is_time:
            return Offsets(self._at_times(wanted, is_late_allowed=at.is_late_allowed), ids)
        asked = {where: offset for where, offset in wanted.items() if offset < 0}
        return Offsets({**wanted, **self._offsets(asked)}, ids)

    def _at_times(
        self, times: Mapping[TopicPartition, int], *, is_late_allowed: bool
    ) -> dict[TopicPartition, int]:
        found = {at: listed.offset for at, listed in self.listed(times).items()}
        late = [at for at, offset in found.items() if offset is None]
        if late and not is_late_allowed:
            raise InvalidOption(
                f"partition {late[0]} has no record as late as {times[late[0]]} ms; set "
                "startingOffsetsByTimestampStrategy to latest to begin at its end then"
            )
        ends = self.latest(late)
        return {at: ends[at] if offset is None else offset for at, offset in found.items()}

    # --- bytes -------------------------------------------------------------------------------------------

    def cut_by_bytes(self, ranges: list[Range], bytes_max: int | Mapping[TopicPartition, int]) -> list[Range]:
        """Parts of about so many bytes each, as far as somebody knows where bytes lie.

        Headrace's own brokers say where; of others a partition's size is known at best, and its records are
        taken to be equal.
        """
        try:
            found = self._admin.split_ranges({each.at: (each.start, each.end) for each in ranges}, bytes_max)
            return [part for each in ranges for part in cut(each, found[each.at].offsets)]
        except UnsupportedByBroker:
            pass
        limit_of = bytes_max.__getitem__ if isinstance(bytes_max, Mapping) else lambda _: bytes_max
        sizes = self._record_sizes(ranges)
        return [
            part
            for each in ranges
            for part in cut_evenly(each, -(-each.size * sizes.get(each.at, 0) // limit_of(each.at)))
        ]

    def _record_sizes(self, ranges: Iterable[Range]) -> dict[TopicPartition, int]:
        """Bytes per offset, on average over the whole log; without those that nobody tells."""
        partitions = {each.at for each in ranges}
        try:
            directories = self._admin.describe_log_dirs()
        except (KafkaError, UnsupportedByBroker):
            return {}  # not allowed, or not offered
        sizes = {at: size for one in directories for at, size in one.partition_bytes.items()}
        starts, ends = self.earliest(partitions), self.latest(partitions)
        return {
            at: -(-sizes[at] // (ends[at] - starts[at]))
            for at in partitions
            if at in sizes and ends[at] > starts[at]
        }

    def limited_by_bytes(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], bytes_max: int
    ) -> dict[TopicPartition, int]:
        """Ends that leave out what exceeds the limit, shared between partitions by what waits in each; as
        exact as brokers tell where bytes lie, and never so little that nothing is read.
        """
        ranges = ranges_between(starts, ends)
        sizes = self._range_sizes(ranges)
        waiting = sum(sizes.values())
        if waiting <= bytes_max:
            return dict(ends)
        count = sum(each.size for each in ranges)
        reached = limited(starts, ends, max(1, count * bytes_max // waiting))
        shares = {at: max(1, bytes_max * size // waiting) for at, size in sizes.items()}
        firsts = {part.at: part for part in reversed(self.cut_by_bytes(ranges, shares))}
        # one that could not be cut stays as it was limited by its count
        return reached | {each.at: firsts[each.at].end for each in ranges if firsts[each.at] != each}

    def _range_sizes(self, ranges: list[Range]) -> dict[TopicPartition, int]:
        """Bytes of each range, roughly; 0 where nobody tells."""
        if not ranges:
            return {}
        try:
            found = self._admin.split_ranges({each.at: (each.start, each.end) for each in ranges}, 1 << 62)
            return {at: one.total_bytes for at, one in found.items()}
        except UnsupportedByBroker:
            sizes = self._record_sizes(ranges)
            return {each.at: each.size * sizes.get(each.at, 0) for each in ranges}

    # --- losses ------------------------------------------------------------------------------------------

    def explain(self, losses: Iterable[Loss]) -> str:
        return told(losses, config_of=self._config_of, first_ms=self._first_ms)

    def _config_of(self, topic: str) -> dict[str, str | None]:
        try:
            described = self._admin.describe_config(Resource.topic(topic))
        except ClientError:
            return {}  # not allowed to know, or gone
        return {name: entry.value for name, entry in described.items()}

    def _first_ms(self, at: TopicPartition) -> int | None:
        """The time of the first record that has one."""
        return self.listed({at: 0})[at].timestamp_ms

    # --- progress ----------------------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Shows how far a stream is, as the progress of a group without members."""
        if offsets:
            self._admin.alter_group_offsets(group, offsets)


def _is_about_missing(error: ClientError) -> bool:
    """Whether topics are not there, which is for the caller to judge."""
    if isinstance(error, PartlyFailed):
        return all(_is_about_missing(each) for each in error.failures.values())
    return isinstance(error, KafkaError) and error.is_unknown_topic


def check_identities(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """A topic that has another id than it had is another topic."""
    for topic, topic_id in before.items():
        if topic in now and now[topic] != topic_id:
            raise TopicRecreated(recreated(topic, topic_id, now[topic]))


def _check_same(given: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> None:
    missing, extra = set(partitions).difference(given), set(given).difference(partitions)
    if missing:
        raise InvalidOption(f"offsets must be given for all partitions, and {min(missing)} has none")
    if extra:
        raise InvalidOption(f"an offset is given for {min(extra)}, which is not read")
