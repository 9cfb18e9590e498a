"""Three nodes with the controller role: elections, commits, and what a killed leader leaves."""

from __future__ import annotations

import errno

import pytest

from harness.controllers import Controller, Controllers
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.image import Endpoint
from headrace.machines.metadata.snapshot import image_hash
from headrace.machines.metadata.versions import SUPPORTED_FEATURES
from headrace.node.metadata_files import METADATA_DIRECTORY
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    PartitionResult,
    TopicData,
)
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE
from headrace.storage.faulty_disk import OPENS, Fail, Fault, FaultyDisk


def register_broker(leader: Controller, cluster: Controllers) -> None:
    """One that nobody runs: topics need a broker to lie on."""
    registration = Registration(
        broker=9,
        incarnation_id=b"i" * 16,
        endpoints={"PLAINTEXT": Endpoint("127.0.0.1", 9009, 0)},
        features=SUPPORTED_FEATURES,
        rack=None,
        directories=[b"d" * 16],
    )
    decision = leader.up.controller.decisions.register_broker(
        registration, leader.metadata.end_offset, is_local=True
    )
    leader.metadata.propose(cluster.clock.now(), decision)
    leader.settle()


def create(cluster: Controllers, leader: Controller, name: str, seconds: float = 1.0) -> ErrorCode | None:
    """None: there was no answer."""
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=1000
    )
    response: CreateTopicsResponse | None = cluster.ask(leader, request, 7, seconds=seconds)
    return None if response is None else ErrorCode(response.topics[0].error_code)


def describe(cluster: Controllers, one: Controller) -> PartitionResult:
    topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    response = cluster.ask(one, DescribeQuorumRequest(topics=[topic]), 2)
    result: PartitionResult = response.topics[0].partitions[0]
    return result


def topics_everywhere(cluster: Controllers) -> list[list[str]]:
    return [sorted(one.metadata.image.topics) for one in cluster.nodes.values() if one.node is not None]


def check_equal_images(cluster: Controllers) -> None:
    hashes = {
        (one.metadata.committed_offset, image_hash(one.metadata.image))
        for one in cluster.nodes.values()
        if one.node is not None
    }
    assert len(hashes) == 1, hashes


def test_three_nodes_elect_a_leader_and_all_know_what_it_commits() -> None:
    cluster = Controllers().start()
    leader = cluster.elected(1.0)
    assert cluster.run(0.5, lambda: all(one.up.is_ready for one in cluster.nodes.values()))
    register_broker(leader, cluster)
    assert create(cluster, leader, "t") is ErrorCode.NONE
    cluster.run(0.1)
    assert topics_everywhere(cluster) == [["t"]] * 3
    check_equal_images(cluster)


def test_nothing_is_lost_when_the_leader_is_killed() -> None:
    cluster = Controllers().start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    assert create(cluster, leader, "before") is ErrorCode.NONE
    leader.kill()
    killed_at = cluster.clock.mono
    second = cluster.elected()
    assert second is not leader
    assert cluster.clock.mono - killed_at < 0.3, "noticed by the connection, not by a timeout"
    assert "before" in second.metadata.image.topics
    assert create(cluster, second, "between") is ErrorCode.NONE
    leader.start()
    cluster.run(1.0)
    assert topics_everywhere(cluster) == [["before", "between"]] * 3
    check_equal_images(cluster)
    second.kill(how="lost")
    third = cluster.elected()
    assert create(cluster, third, "after") is ErrorCode.NONE
    second.start()
    cluster.run(1.0)
    assert topics_everywhere(cluster) == [["after", "before", "between"]] * 3
    check_equal_images(cluster)


def test_users_survive_their_controller_and_reach_a_node_that_was_away() -> None:
    cluster = Controllers().start()
    leader = cluster.elected()

    def set_password(one: Controller, user: str) -> int:
        credential = ScramCredentialUpsertion(
            name=user, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        request = AlterUserScramCredentialsRequest(upsertions=[credential])
        (result,) = cluster.ask(one, request, 0).results
        return int(result.error_code)

    assert set_password(leader, "ada") == 0
    leader.kill()
    second = cluster.elected()
    assert set_password(second, "bob") == 0
    leader.start()
    cluster.run(1.0)
    known = [sorted(one.metadata.image.security.credentials) for one in cluster.nodes.values()]
    assert known == [[("ada", 1), ("bob", 1)]] * 3
    check_equal_images(cluster)


def test_a_leader_without_a_majority_answers_not_controller_and_what_it_decided_is_gone() -> None:
    cluster = Controllers().start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    assert create(cluster, leader, "kept") is ErrorCode.NONE
    others = [one for one in cluster.nodes.values() if one is not leader]
    cluster.cuts = {(leader.id, other.id) for other in others} | {(other.id, leader.id) for other in others}
    assert create(cluster, leader, "lost", seconds=8.0) is ErrorCode.NOT_CONTROLLER
    assert "lost" not in leader.metadata.image.topics
    assert create(cluster, leader, "refused") is ErrorCode.NOT_CONTROLLER
    second = cluster.elected()
    assert second is not leader
    assert create(cluster, second, "new") is ErrorCode.NONE
    cluster.cuts.clear()
    cluster.run(4.0)
    assert topics_everywhere(cluster) == [["kept", "new"]] * 3
    check_equal_images(cluster)


@pytest.mark.parametrize("is_full", [False, True], ids=["disk with space", "disk that is full at first"])
def test_a_checkpoint_that_was_ordered_before_a_truncation_promises_no_more_than_the_log_has(
    is_full: bool,
) -> None:
    cluster = Controllers().start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    assert create(cluster, leader, "kept") is ErrorCode.NONE
    cluster.run(6.0)  # its recovery point is written
    others = [one for one in cluster.nodes.values() if one is not leader]
    cluster.cuts = {(leader.id, other.id) for other in others} | {(other.id, leader.id) for other in others}
    leader.slow_queues.add(CHECKPOINT_QUEUE)
    assert create(cluster, leader, "lost", seconds=8.0) is ErrorCode.NOT_CONTROLLER
    assert cluster.run(8.0, lambda: bool(leader.held_jobs)), "a checkpoint that has the lost record"
    cluster.cuts.clear()
    cluster.run(4.0)
    if is_full:
        lower = leader.held_jobs.pop()
        refused = OSError(errno.ENOSPC, "No space left on device")
        leader.call(lambda node: node.completed(cluster.clock.now(), lower.ticket, refused))
    leader.run_jobs()
    cluster.run(2.0)
    leader.kill()
    leader.start()
    cluster.run(4.0)
    assert topics_everywhere(cluster) == [["kept"]] * 3
    check_equal_images(cluster)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_truncation_that_finds_no_descriptor_keeps_what_is_committed(suffix: str) -> None:
    """It was made again, did not find the place where it had cut before, and removed the whole log."""
    cluster = Controllers()
    for one in cluster.nodes.values():
        one.disk = FaultyDisk(one.disk)
    cluster.start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    assert create(cluster, leader, "kept") is ErrorCode.NONE
    others = [one for one in cluster.nodes.values() if one is not leader]
    cluster.cuts = {(leader.id, other.id) for other in others} | {(other.id, leader.id) for other in others}
    assert create(cluster, leader, "lost", seconds=8.0) is ErrorCode.NOT_CONTROLLER
    assert create(cluster, cluster.elected(), "new") is ErrorCode.NONE
    disk, files = leader.disk, leader.up.directories.files
    files.forget_directory(disk, METADATA_DIRECTORY)
    disk.faults.append(Fault(Fail(errno.EMFILE), "open", f"{METADATA_DIRECTORY}/{0:020d}{suffix}", times=2))
    cluster.cuts.clear()
    cluster.run(6.0)
    assert disk.faults[0].times < 2, "the truncation has met it"
    disk.faults.clear()
    cluster.run(4.0)
    leader.disk = disk.disk
    leader.kill()
    leader.start()
    assert leader.metadata._store._log.log_start_offset == 0
    cluster.run(4.0)
    assert topics_everywhere(cluster) == [["kept", "new"]] * 3
    check_equal_images(cluster)


@pytest.mark.parametrize("skip", [1, 2])
def test_who_lags_behind_a_log_that_begins_later_is_sent_to_the_snapshot(skip: int) -> None:
    """The leader found no descriptor to remove what its new snapshot replaces. Until the next snapshot it
    refused whoever asked for that.
    """
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "1500",
        "internal.metadata.log.segment.bytes": "600",
    }
    cluster = Controllers(settings=settings).start()
    register_broker(cluster.elected(), cluster)
    assert create(cluster, cluster.elected(), "before") is ErrorCode.NONE
    cluster.run(1.0)
    for one in cluster.nodes.values():  # so that what they have is not known to be sound and durable
        one.kill()
        one.disk = FaultyDisk(one.disk)
        one.start()
    leader = cluster.elected()
    late = next(one for one in cluster.nodes.values() if one is not leader)
    cluster.cuts = {(late.id, id) for id in cluster.nodes} | {(id, late.id) for id in cluster.nodes}
    leader.slow_queues.add("snapshot")
    for number in range(20):
        if not leader.held_jobs:
            assert create(cluster, leader, f"topic-{number}") is ErrorCode.NONE
    (run,) = leader.held_jobs
    leader.held_jobs.clear()
    snapshot = run.job.run(leader.disk)
    leader.up.directories.files.forget_directory(leader.disk, METADATA_DIRECTORY)
    leader.disk.faults.append(Fault(Fail(errno.EMFILE), OPENS, skip=skip))
    leader.call(lambda node: node.completed(cluster.clock.now(), run.ticket, snapshot))
    assert not leader.disk.faults[0].times
    assert leader.metadata._store._log.log_start_offset == snapshot.end_offset
    cluster.cuts.clear()
    cluster.run(3.0)
    check_equal_images(cluster)


def test_a_leader_that_stops_hands_over() -> None:
    cluster = Controllers().start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    assert create(cluster, leader, "t") is ErrorCode.NONE
    stopped_at = cluster.clock.mono
    leader.call(lambda node: node.shutdown(cluster.clock.now()))
    assert cluster.run(1.0, lambda: leader.up.is_stopped)
    assert cluster.run(1.0, lambda: cluster.leader() not in (None, leader))
    assert cluster.clock.mono - stopped_at < 0.1
    leader.kill()
    leader.start()
    cluster.run(1.0)
    assert topics_everywhere(cluster) == [["t"]] * 3


def test_a_node_that_was_away_for_long_gets_a_snapshot() -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    cluster = Controllers(settings=settings).start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    away = next(one for one in cluster.nodes.values() if one is not leader)
    cluster.run(0.1)
    away.kill()
    for number in range(40):
        assert create(cluster, leader, f"topic-{number}") is ErrorCode.NONE
    cluster.run(0.2)
    assert any(report.event == "metadata_snapshot" for report in leader.reports)
    away.start()
    cluster.run(1.0)
    assert len(away.metadata.image.topics) == 40
    check_equal_images(cluster)
    away.kill()
    away.start()
    cluster.run(1.0)
    check_equal_images(cluster)


def test_no_snapshot_is_made_of_a_log_that_the_leaders_snapshot_is_about_to_replace() -> None:
    """It would be older, and the log would seem to begin where it ends."""
    cluster = Controllers(settings={"metadata.log.max.record.bytes.between.snapshots": "2000"}).start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    away = next(one for one in cluster.nodes.values() if one is not leader)
    cluster.run(10)  # checkpoints are written
    away.kill()
    for number in range(40):
        assert create(cluster, leader, f"topic-{number}") is ErrorCode.NONE
    cluster.run(0.2)
    away.start()
    away.slow_queues = {CHECKPOINT_QUEUE}
    assert cluster.run(1.0, lambda: any(job.queue == CHECKPOINT_QUEUE for job in away.held_jobs))
    store = away.metadata._store
    store._records_since_snapshot = 1_000_000  # it is due, and a flush ends just now
    store.snapshot_if_due(cluster.clock.now(), away.metadata.committed_offset)
    away.slow_queues.add("snapshot")  # as slow as its process
    away.settle()
    away.slow_queues.clear()
    for job in sorted(away.held_jobs, key=lambda job: job.queue != CHECKPOINT_QUEUE):
        away.held_jobs.remove(job)
        away.run_job(job)
        away.settle()
    cluster.run(1.0)
    check_equal_images(cluster)
    assert away.metadata.quorum.log.start_offset == store._log.log_start_offset
    assert not any(report.event == "metadata_snapshot_failed" for report in away.reports)


def test_a_voter_that_lost_its_disk_observes() -> None:
    cluster = Controllers().start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    away = next(one for one in cluster.nodes.values() if one is not leader)
    away.kill()
    away.disk = type(away.disk)()
    away.start()
    assert create(cluster, leader, "t") is ErrorCode.NONE
    cluster.run(3.0)
    assert away.metadata.quorum.role.name == "observer"
    check_equal_images(cluster)
    told = describe(cluster, leader)
    assert [voter.replica_id for voter in told.current_voters] == [1, 2, 3]
    assert [observer.replica_id for observer in told.observers] == [away.id]


def test_the_quorum_is_described_by_its_leader() -> None:
    cluster = Controllers().start()
    leader = cluster.elected()
    cluster.run(0.1)
    told = describe(cluster, leader)
    assert (told.leader_id, told.leader_epoch) == (leader.id, leader.metadata.leader_epoch)
    assert told.high_watermark == leader.metadata.committed_offset
    assert {voter.log_end_offset for voter in told.current_voters} == {leader.metadata.end_offset}
    assert len({voter.replica_directory_id for voter in told.current_voters}) == 3
    now_ms = cluster.clock.now().wall_ms
    assert all(now_ms - voter.last_fetch_timestamp < 1000 for voter in told.current_voters)
    assert all(now_ms - voter.last_caught_up_timestamp < 1000 for voter in told.current_voters)
    other = next(one for one in cluster.nodes.values() if one is not leader)
    refused = cluster.ask(other, DescribeQuorumRequest(topics=[]), 2)
    assert refused.error_code == ErrorCode.NOT_CONTROLLER


def test_controllers_are_described_on_their_listeners() -> None:
    cluster = Controllers().start()
    leader = cluster.elected()
    cluster.run(0.1)
    for one in cluster.nodes.values():
        told = cluster.ask(one, DescribeClusterRequest(endpoint_type=2), 2)
        assert (told.error_code, told.controller_id) == (ErrorCode.NONE, leader.id)
        assert [(each.broker_id, each.port) for each in told.brokers] == [(1, 9501), (2, 9502), (3, 9503)]
    refused = cluster.ask(leader, DescribeClusterRequest(), 2)
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_a_node_of_another_cluster_is_refused() -> None:
    cluster = Controllers().start()
    leader = cluster.elected()
    stranger = next(one for one in cluster.nodes.values() if one is not leader)
    stranger.kill()
    stranger.disk = type(stranger.disk)()
    texts = stranger.settings.texts | {"headrace.cluster.id": "YW5vdGhlci1jbHVzdGVyLQ"}
    stranger.settings = type(stranger.settings).parse(texts)
    stranger.start()
    cluster.run(3.0)
    assert not stranger.up.is_ready
    assert any(report.event == "inconsistent_cluster_id" for report in stranger.reports)
    assert cluster.leader() is leader


@pytest.mark.parametrize("voters", [2, 4, 5])
def test_other_numbers_of_voters(voters: int) -> None:
    cluster = Controllers(voters).start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    assert create(cluster, leader, "t") is ErrorCode.NONE
    cluster.run(0.2)
    assert topics_everywhere(cluster) == [["t"]] * voters


def test_nodes_that_stop_together_do_not_wait_for_each_other() -> None:
    cluster = Controllers().start()
    leader = cluster.elected()
    register_broker(leader, cluster)
    for one in cluster.nodes.values():
        one.call(lambda node: node.shutdown(cluster.clock.now()))
    assert cluster.run(2.5, lambda: all(one.up.is_stopped for one in cluster.nodes.values()))


@pytest.mark.parametrize("others_end", [True, False])
def test_a_leader_that_stops_waits_for_a_commit_only_while_there_may_be_one(others_end: bool) -> None:
    """Its last decision is on its disk alone. Others that have ended will not get it; those that are only
    silent may.
    """
    cluster = Controllers().start()
    leader = cluster.elected()
    cluster.run(1.0)
    for other in cluster.nodes.values():
        if other is not leader and others_end:
            other.kill()
        elif other is not leader:
            other.runs_jobs = False  # its disk is slow: it cannot promise anything
    register_broker(leader, cluster)
    leader.call(lambda node: node.shutdown(cluster.clock.now()))
    assert cluster.run(0.3, lambda: leader.up.is_stopped) is others_end
    assert cluster.run(5.0, lambda: leader.up.is_stopped)


def test_new_nodes_with_the_same_voters_come_to_the_same_cluster_id() -> None:
    cluster = Controllers()
    for one in cluster.nodes.values():
        texts = {key: text for key, text in one.settings.texts.items() if key != "headrace.cluster.id"}
        one.settings = type(one.settings).parse(texts)
    cluster.start().elected()
    ids = {one.up.directories.cluster_id for one in cluster.nodes.values()}
    assert len(ids) == 1
    assert len(ids.pop()) == 22


def test_an_operator_is_told_who_is_missing() -> None:
    cluster = Controllers()
    cluster.nodes[1].start()
    cluster.nodes[2].start()
    cluster.run(12.0)
    (report, *_) = [one for one in cluster.nodes[1].reports if one.event == "no_quorum_leader"]
    assert report.facts["not_answering"] == [3]
    assert "the first election needs all of the controllers [1, 2, 3]" in report.facts["hint"]
    cluster.nodes[3].start()
    assert cluster.elected(1.0)


def test_an_operator_is_told_when_a_majority_is_lost() -> None:
    """The last one still knows the leader of its epoch, which does not answer."""
    cluster = Controllers().start()
    leader = cluster.elected()
    first, last = (one for one in cluster.nodes.values() if one is not leader)
    leader.kill()
    first.kill()
    cluster.run(12.0)
    (report, *_) = [one for one in last.reports if one.event == "no_quorum_leader"]
    dead = sorted(id for id, one in cluster.nodes.items() if one is not last)
    assert report.facts["not_answering"] == dead
    assert "an election needs a majority of the controllers [1, 2, 3]" in report.facts["hint"]
