"""Where micro-batches end, with scripted answers of the brokers and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.client.admin.topics import TopicDescription
from headrace.client.cluster import TopicPartition
from headrace.client.errors import TimedOut
from headrace.client.threads.range_reader import DataLost, TopicRecreated
from headrace.spark.loss import Loss
from headrace.spark.options import Offsets, OffsetSpec, read_options
from headrace.spark.planning import Limit, StreamPlanner
from headrace.spark.ranges import Range

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = Limit(is_everything=True)


@dataclass
class Cluster:
    """The answers of `QueryTopics`."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=lambda: {"t": "id-1"})
    committed: list[dict[TopicPartition, int]] = field(default_factory=list)
    refuses_commits: bool = False
    open_count: int = 0  # records of open transactions behind each end
    answers_without_topics: int = 0  # as a broker gives them that has not heard of the topics yet

    def topics(self) -> dict[str, TopicDescription]:
        if self.answers_without_topics:
            self.answers_without_topics -= 1
            return {}
        return {name: TopicDescription(name, its_id, False, []) for name, its_id in self.ids.items()}

    required_topics = topics

    def partitions(self, topics: Mapping[str, Any]) -> list[TopicPartition]:
        return sorted(at for at in self.ends if at.topic in topics)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.starts.get(at, 0) for at in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.ends[at] for at in partitions}

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.ends[at] + self.open_count for at in partitions}

    def resolve(self, spec: OffsetSpec, topics: Mapping[str, Any]) -> Offsets:
        return Offsets(self.earliest(self.ends), dict(self.ids))

    def describe(self, losses: Iterable[Loss]) -> str:
        return "; ".join(f"{loss.partition} {loss.start} {loss.end}" for loss in losses)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self.refuses_commits:
            raise TimedOut("nobody there")
        self.committed.append(dict(offsets))


@dataclass
class Story:
    """A planner, what surrounds it, and the time."""

    cluster: Cluster
    options: dict[str, str] = field(default_factory=dict)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        given = {"kafka.bootstrap.servers": "here:1", "subscribe": "t", **self.options}
        options = read_options(given, is_stream=True)
        self.planner = StreamPlanner(options, self.cluster, lambda: self.now_s, self.sleep)  # type: ignore[arg-type]

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def latest(self, limit: Limit = ALL, **starts: int) -> dict[str, Any]:
        """Where the next batch ends, by partition."""
        found = self.planner.next_end(self.offsets(**starts), limit)
        return {name: end for name, end in found.get("t", {}).items() if name != "id"}

    def offsets(self, **starts: int) -> dict[str, Any]:
        return {"t": {**{name.removeprefix("p"): offset for name, offset in starts.items()}, "id": "id-1"}}


def test_a_batch_ends_where_the_logs_do():
    story = Story(Cluster(ends={A: 10, B: 20}))
    assert story.latest(p0=3, p1=0) == {"0": 10, "1": 20}
    assert story.planner.latest_offsets() == {"t": {"0": 10, "1": 20, "id": "id-1"}}


def test_nothing_new_is_the_same_text():
    story = Story(Cluster(ends={A: 10}))
    start = story.offsets(p0=10)
    assert story.planner.next_end(start, ALL) == start


def test_limits_hold_unless_everything_is_wanted():
    story = Story(Cluster(ends={A: 1000}))
    assert story.latest(Limit(rows=300), p0=0) == {"0": 300}
    assert story.latest(p0=0) == {"0": 1000}


def test_progress_is_committed_once_and_before_the_next_batch():
    story = Story(Cluster(ends={A: 10}))
    for start in (0, 0, 10):
        story.latest(p0=start)
    assert story.cluster.committed == [{A: 0}, {A: 10}]


def test_a_group_that_cannot_be_told_stops_nobody(caplog):
    story = Story(Cluster(ends={A: 10}, refuses_commits=True))
    assert story.latest(p0=0) == {"0": 10}
    story.latest(p0=5)
    assert len(caplog.records) == 1, "not with each micro-batch"
    story.cluster.refuses_commits = False
    story.latest(p0=0)
    assert story.cluster.committed == [{A: 0}], "it is tried again"
    story.cluster.refuses_commits = True
    story.latest(p0=5)
    assert len(caplog.records) == 2


def test_a_small_batch_waits_but_not_for_ever():
    story = Story(Cluster(ends={A: 1}), {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"})
    few = Limit()
    assert story.latest(few, p0=0) == {"0": 1}, "the first one waits for nobody"
    story.cluster.ends[A] = 5
    story.now_s = 59
    assert story.latest(few, p0=1) == {"0": 1}
    story.now_s = 60
    assert story.latest(few, p0=1) == {"0": 5}
    story.cluster.ends[A] = 15
    assert story.latest(few, p0=5) == {"0": 15}, "ten are enough"
    story.cluster.ends[A] = 16
    assert story.latest(ALL, p0=15) == {"0": 16}, "everything is everything"


def test_available_now_ends_with_what_was_there():
    story = Story(Cluster(ends={A: 10}), {"minOffsetsPerTrigger": "1000"})
    story.planner.stop_at_current_ends()
    story.cluster.ends = {A: 50, B: 7}
    assert story.latest(Limit(rows=6), p0=0) == {"0": 6}
    assert story.latest(Limit(rows=6), p0=6) == {"0": 10}
    assert story.latest(Limit(rows=6), p0=10) == {"0": 10}, "it ends, though more came"


def test_available_now_ends_though_partitions_were_added_before_a_restart():
    story = Story(Cluster(ends={A: 10, B: 0}))
    story.planner.stop_at_current_ends()
    assert story.latest(p0=10) == {"0": 10, "1": 0}
    assert story.latest(p0=10, p1=0) == {"0": 10, "1": 0}


def test_new_partitions_begin_with_their_first_record():
    story = Story(Cluster(ends={A: 10, B: 4}))
    assert story.latest(p0=10) == {"0": 10, "1": 4}
    (task,) = story.planner.tasks(story.offsets(p0=10), story.offsets(p0=10, p1=4))
    assert task.range == Range(B, 0, 4)


def test_a_new_partition_that_lost_its_first_records_lost_them_to_this_query():
    story = Story(Cluster(starts={B: 2}, ends={A: 10, B: 4}))
    with pytest.raises(DataLost, match="t-1 0 2"):
        story.planner.tasks(story.offsets(p0=10), story.offsets(p0=10, p1=4))


def test_what_is_lost_is_left_out_where_that_is_allowed():
    story = Story(Cluster(starts={A: 4}, ends={A: 10}), {"failOnDataLoss": "false"})
    (task,) = story.planner.tasks(story.offsets(p0=0), story.offsets(p0=10))
    assert task.range == Range(A, 4, 10)


def test_a_topic_with_another_id_is_another_topic():
    story = Story(Cluster(ends={A: 10}, ids={"t": "id-2"}), {"failOnDataLoss": "false"})
    with pytest.raises(TopicRecreated, match="its id was id-1 and is now id-2"):
        story.latest(p0=0)
    with pytest.raises(TopicRecreated):
        story.planner.tasks(story.offsets(p0=0), story.offsets(p0=5))


@pytest.mark.parametrize("option", ["true", "false"])
def test_a_broker_that_does_not_know_a_topic_yet_has_not_deleted_it(option):
    """As one that was just started in a cluster. The stream forgot its place, and read everything again."""
    story = Story(Cluster(ends={A: 10}, answers_without_topics=1), {"failOnDataLoss": option})
    assert story.latest(p0=3) == {"0": 10}
    story.cluster.answers_without_topics = 1
    (task,) = story.planner.tasks(story.offsets(p0=3), story.offsets(p0=10))
    assert task.range == Range(A, 3, 10), "these records were left out"


def test_a_topic_that_is_gone_is_an_error_unless_that_is_allowed():
    gone = Cluster(ends={}, ids={})
    with pytest.raises(DataLost, match="t-0 3 None"):
        Story(gone).latest(p0=3)
    story = Story(gone, {"failOnDataLoss": "false"})
    assert story.planner.tasks(story.offsets(p0=3), story.offsets(p0=5)) == []
    assert 0 < story.now_s < 60, "it was asked more than once"


def test_a_stream_keeps_its_place_in_a_topic_that_is_gone(caplog):
    """It may come back: its brokers were slow, or it may be read again."""
    cluster = Cluster(ends={A: 10}, ids={})
    story = Story(cluster, {"failOnDataLoss": "false"})
    start = story.offsets(p0=3)
    without = story.planner.next_end(start, ALL)
    asked_s = story.now_s
    assert story.planner.tasks(start, without) == []
    assert story.planner.next_end(without, ALL) == without, "nothing new is the same text"
    assert story.planner.tasks(without, without) == []
    assert story.now_s == asked_s, "it is asked for once"
    assert len(caplog.records) == 1, "and told once"
    cluster.ids = {"t": "id-1"}
    end = story.planner.next_end(without, ALL)
    assert end == story.offsets(p0=10)
    (task,) = story.planner.tasks(without, end)
    assert task.range == Range(A, 3, 10)


def test_without_an_id_a_topic_that_comes_back_is_the_same():
    """As in checkpoints of Spark's own connector."""
    cluster = Cluster(ends={A: 10}, ids={})
    story = Story(cluster, {"failOnDataLoss": "false"})
    without = story.planner.next_end({"t": {"0": 3}}, ALL)
    assert story.planner.next_end(without, ALL) == without
    cluster.ids = {"t": "id-1"}
    assert story.planner.next_end(without, ALL) == story.offsets(p0=10)


def test_a_topic_that_was_seen_to_be_gone_may_be_followed_by_another():
    cluster = Cluster(ends={A: 10}, ids={})
    story = Story(cluster, {"failOnDataLoss": "false"})
    without = story.planner.next_end(story.offsets(p0=3), ALL)
    cluster.ids = {"t": "id-2"}
    cluster.ends = {A: 2}
    end = story.planner.next_end(without, ALL)
    assert end == {"t": {"0": 2, "id": "id-2"}}
    (task,) = story.planner.tasks(without, end)
    assert task.range == Range(A, 0, 2)
    with pytest.raises(TopicRecreated):
        Story(cluster).planner.next_end(without, ALL)


def test_a_partition_that_a_broker_does_not_know_keeps_its_place():
    story = Story(Cluster(ends={A: 10}), {"failOnDataLoss": "false"})
    assert story.latest(p0=3, p1=7) == {"0": 10, "1": 7}


def test_where_only_a_transaction_is_open_nothing_was_cut():
    """As after a run that read what was not committed, too."""
    story = Story(Cluster(ends={A: 5}, open_count=10))
    assert story.latest(p0=8) == {"0": 8}


def test_a_log_that_was_cut_goes_on_from_its_new_end():
    with pytest.raises(DataLost, match="t-0 5 8"):
        Story(Cluster(ends={A: 5})).latest(p0=8)
    story = Story(Cluster(ends={A: 5}), {"failOnDataLoss": "false"})
    assert story.latest(p0=8) == {"0": 5}
    assert story.planner.tasks(story.offsets(p0=8), story.offsets(p0=5)) == []


def test_who_names_the_group_has_its_progress_there():
    story = Story(Cluster(ends={A: 1}), {"kafka.group.id": "mine"})
    assert story.planner._group == "mine"
    assert Story(Cluster(), {"groupIdPrefix": "ours"}).planner._group.startswith("ours-")
