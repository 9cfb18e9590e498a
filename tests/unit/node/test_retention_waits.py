"""Retention that waits for groups, on one node and on the leader of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from harness.node_groups import commit, find
from harness.node_records import batch
from harness.single_partition import commit_of, deletion_before, setting
from harness.two_brokers import TwoBrokers, lead, question_in, register
from headrace.node.effects import Report
from headrace.node.peers import Unanswered
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest
from headrace.simulator.manual_host import ManualHost

CHECK_S = 10.0
SETTINGS = {
    "log.retention.check.interval.ms": str(int(CHECK_S * 1000)),
    "log.initial.task.delay.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
}
TOPIC = {
    "segment.ms": "1",  # each batch is a segment
    "retention.ms": "60000",
    "headrace.retention.waits.for": "lake",
    "headrace.retention.waits.max.ms": "600000",
}
MINUTE_S = 60.0


def write(host: ManualHost, count: int, topic: str = "t") -> None:
    for _ in range(count):
        host.advance(0.01)
        records = batch(b"a", b"b", timestamp=host.clock.now().wall_ms)
        answer = host.ask(host.produce_request(topic, bytearray(records)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def start_of(host: ManualHost, topic: str = "t") -> int:
    (partition,) = host.partitions(topic)
    assert partition.log is not None
    return partition.log.log_start_offset


def reported(host: ManualHost, event: str) -> list[dict[str, Any]]:
    return [one.facts for one in host.effects if isinstance(one, Report) and one.event == event]


def new_host(**changed: str) -> ManualHost:
    host = ManualHost(SETTINGS)
    host.create_topic("t", **TOPIC | {key.replace("_", "."): value for key, value in changed.items()})
    find(host, "lake")
    host.advance(0.3)
    write(host, 5)
    return host


class TestOneNode:
    def test_what_the_group_has_not_committed_stays(self) -> None:
        host = new_host()
        assert commit(host, "lake", "t", 4) == 0
        host.advance(5 * MINUTE_S)
        assert start_of(host) == 4
        assert commit(host, "lake", "t", 10) == 0
        host.advance(CHECK_S)
        assert start_of(host) == 10
        assert reported(host, "records_lost_to_group") == []

    def test_a_group_that_never_committed_is_waited_for(self) -> None:
        host = new_host()
        host.advance(5 * MINUTE_S)
        assert start_of(host) == 0
        (wait,) = reported(host, "retention_waits")
        assert wait["committed"] == {"lake": "nothing known"}
        assert (wait["partition"], wait["due_before"]) == ("t-0", 10)

    def test_past_the_cap_the_loss_is_told_exactly(self) -> None:
        host = new_host()
        assert commit(host, "lake", "t", 3) == 0
        host.advance(9 * MINUTE_S)
        assert start_of(host) == 2, "3 is in the middle of a segment"
        host.advance(2 * MINUTE_S)
        assert start_of(host) == 10
        (lost,) = reported(host, "records_lost_to_group")
        assert (lost["partition"], lost["group"]) == ("t-0", "lake")
        assert (lost["first_offset"], lost["last_offset"], lost["offsets"]) == (3, 9, 7)
        assert lost["committed"] == 3

    def test_the_size_has_a_cap_too(self) -> None:
        host = new_host(headrace_retention_waits_max_bytes="200", headrace_retention_waits_max_ms="-1")
        host.advance(5 * MINUTE_S)
        (partition,) = host.partitions("t")
        assert partition.log is not None
        size = partition.log.size_bytes
        assert 200 <= size < 300, "one segment less would be below the cap"
        (lost,) = reported(host, "records_lost_to_group")
        assert (lost["first_offset"], lost["last_offset"]) == (0, start_of(host) - 1)

    def test_retention_by_size_waits_too(self) -> None:
        host = new_host(retention_ms="-1", retention_bytes="100")
        assert commit(host, "lake", "t", 6) == 0
        host.advance(CHECK_S + 1)
        assert start_of(host) == 6

    def test_a_loss_that_waits_for_a_flush_is_told_after_it(self) -> None:
        host = new_host()
        host.runs_jobs = False
        write(host, 1)
        host.advance(11 * MINUTE_S)
        (partition,) = host.partitions("t")
        assert partition.log is not None
        assert (start_of(host), partition.log.retires_before) == (0, 12)
        assert reported(host, "records_lost_to_group") == []
        host.runs_jobs = True
        host.run_jobs()
        host.settle()
        assert start_of(host) == 12
        (lost,) = reported(host, "records_lost_to_group")
        assert (lost["first_offset"], lost["last_offset"]) == (0, 11)
        assert not partition.waiters

    def test_the_offset_does_not_expire_while_retention_waits(self) -> None:
        host = new_host(headrace_retention_waits_max_ms="-1")
        host.create_topic("free", **{"retention.ms": "-1"})
        assert commit(host, "lake", "t", 4) == 0
        assert commit(host, "lake", "free", 0) == 0
        host.advance(20 * MINUTE_S)
        (shard,) = host.node.broker.groups.loaded_shards()
        assert list(shard.machine.offsets.of_group("lake")) == ["t"]
        assert start_of(host) == 4

    def test_an_offset_beyond_the_end_says_nothing_about_these_records(self) -> None:
        """It is of a topic of the same name that was deleted, or of records that an unclean leader lost."""
        host = new_host()
        assert commit(host, "lake", "t", 1_000) == 0
        host.advance(5 * MINUTE_S)
        assert start_of(host) == 0
        assert commit(host, "lake", "t", 10) == 0
        host.advance(CHECK_S)
        assert start_of(host) == 10

    def test_a_new_topic_of_the_same_name_starts_without_an_offset(self) -> None:
        host = new_host()
        assert commit(host, "lake", "t", 4) == 0
        host.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        host.advance(1)
        host.create_topic("t", **TOPIC)
        write(host, 5)
        host.advance(5 * MINUTE_S)
        assert start_of(host) == 0
        assert reported(host, "retention_waits")[-1]["committed"] == {"lake": "nothing known"}

    def test_a_wait_that_begins_again_is_told_again(self) -> None:
        host = new_host()
        for _ in range(2):
            host.ask(setting("t", "headrace.retention.waits.for", "lake"), 1)
            host.advance(2 * MINUTE_S)
            host.ask(setting("t", "retention.ms", "-1"), 1)
            host.ask(setting("t", "headrace.retention.waits.for", ""), 1)
            host.advance(2 * CHECK_S)
            host.ask(setting("t", "retention.ms", "60000"), 1)
        assert len(reported(host, "retention_waits")) == 2

    def test_deletion_on_demand_does_not_wait(self) -> None:
        host = new_host()
        host.ask(deletion_before("t", 6, timeout_ms=1_000), 2)
        host.settle()
        assert start_of(host) == 6

    def test_without_the_setting_nothing_waits(self) -> None:
        host = new_host()
        host.advance(2 * MINUTE_S)
        host.ask(setting("t", "headrace.retention.waits.for", ""), 1)
        host.advance(CHECK_S)
        assert start_of(host) == 10


class Scene(TwoBrokers):
    """The first broker coordinates groups, the second leads the topic."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.create_topic("t", **TOPIC)
        for host in self.hosts.values():
            find(host, "lake")
        self.meet()
        self.lead("__consumer_offsets", 1)
        self.lead("t", 2)
        self.advance(0.3)
        write(self.second, 5)
        assert commit(self.first, "lake", "t", 4) == 0

    def asked(self) -> list[OffsetFetchRequest]:
        return [one for one in self.exchange() if isinstance(one, OffsetFetchRequest)]


class TestALeaderElsewhere:
    def test_the_coordinator_is_asked_when_something_is_due(self) -> None:
        scene = Scene()
        scene.second.advance(MINUTE_S / 2)
        assert scene.asked() == []
        scene.second.advance(MINUTE_S / 2 + 5)
        (asked,) = scene.asked()
        (group,) = asked.groups
        assert group.group_id == "lake"
        assert [topic.partition_indexes for topic in group.topics or ()] == [[0]]
        assert start_of(scene.second) == 4

    @pytest.mark.parametrize("why", list(Unanswered))
    def test_without_an_answer_everything_waits_up_to_the_cap(self, why: Unanswered) -> None:
        scene = Scene()
        for _ in range(3):
            scene.second.advance(MINUTE_S)
            scene.lose(why)
            scene.second.settle()
            assert start_of(scene.second) == 0
        scene.second.advance(8 * MINUTE_S)
        scene.lose(why)
        scene.second.advance(CHECK_S)
        scene.lose(why)
        assert start_of(scene.second) == 10
        (lost,) = reported(scene.second, "records_lost_to_group")
        assert (lost["first_offset"], lost["last_offset"], lost["committed"]) == (0, 9, "nothing known")

    def test_a_coordinator_that_has_moved_is_no_answer(self) -> None:
        scene = Scene()
        lead(scene.first, "__consumer_offsets", 0, 2)
        scene.second.advance(MINUTE_S + CHECK_S)
        assert scene.asked()
        assert start_of(scene.second) == 0

    def test_one_round_without_an_answer_decides_nothing(self) -> None:
        """The cap is reached while the coordinator moves. The next round knows what is lost."""
        scene = Scene()
        for _ in range(59):
            scene.second.advance(CHECK_S)
            scene.asked()
        assert start_of(scene.second) == 4
        scene.second.advance(CHECK_S)
        assert scene.lose()
        assert start_of(scene.second) == 4
        for _ in range(2):
            scene.second.advance(CHECK_S)
            assert scene.asked() or start_of(scene.second) == 10
        lost = reported(scene.second, "records_lost_to_group")
        assert (lost[0]["first_offset"], lost[-1]["last_offset"]) == (4, 9)
        assert all(isinstance(one["committed"], int) for one in lost)

    def test_the_coordinator_may_be_the_broker_with_the_id_0(self) -> None:
        scene = Scene()
        register(scene.second, 0)
        lead(scene.second, "__consumer_offsets", 0, 0)
        scene.second.advance(MINUTE_S + 5)
        (sent,) = [sent for _, sent in scene.under_way()]
        assert sent.peer.id == 0
        assert isinstance(question_in(sent), OffsetFetchRequest)

    def test_an_answer_to_a_leader_of_before_is_void(self) -> None:
        scene = Scene()
        scene.second.advance(MINUTE_S + CHECK_S)
        lead(scene.second, "t", 0, 1)
        assert scene.asked()
        assert start_of(scene.second) == 0

    def test_a_follower_deletes_nothing_by_itself(self) -> None:
        scene = Scene()
        lead(scene.second, "t", 0, 1)
        scene.second.advance(20 * MINUTE_S)
        assert start_of(scene.second) == 0
        assert scene.asked() == []

    def test_an_offset_counts_when_it_is_committed(self) -> None:
        """The coordinator is here, and its replicas do not have the newest offset yet."""
        scene = Scene()
        scene.second.advance(MINUTE_S + 5)
        scene.lose()
        lead(scene.second, "__consumer_offsets", 0, 2, isr=(1, 2))
        scene.second.advance(0.3)
        scene.second.send(scene.second.connect(), commit_of("lake", "t", 4), 9)
        scene.second.advance(CHECK_S)
        assert start_of(scene.second) == 0
        lead(scene.second, "__consumer_offsets", 0, 2)
        scene.second.advance(2 * CHECK_S)
        assert start_of(scene.second) == 4


def test_an_unknown_setting_is_refused() -> None:
    host = new_host()
    (result,) = host.ask(setting("t", "headrace.retention.waits.max.ms", "-2"), 1).responses
    assert result.error_code == ErrorCode.INVALID_CONFIG
