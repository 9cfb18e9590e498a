"""A broker whose disk has lost a log does not lead at its start, also if its process is the controller."""

from __future__ import annotations

import pytest

from harness.controllers import Controller, Controllers
from harness.node_records import batch
from headrace.machines.metadata.image import PartitionState
from headrace.node.partition import Partition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.storage.checkpoints import LOG_STARTS
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.log import PartitionLog


def partition(one: Controller) -> PartitionState:
    state: PartitionState = one.metadata.image.topics["t"].partitions[0]
    return state


def with_one_record(flush_messages: str, min_insync_replicas: str = "2") -> tuple[Controllers, Controller]:
    """Three brokers that have it, and the one that leads."""
    cluster = Controllers(are_brokers=True).start()
    first = cluster.elected()
    brokers = first.metadata.image.brokers
    assert cluster.run(20, lambda: [broker.is_fenced for broker in brokers.values()] == [False] * 3)
    configs = {"flush.messages": flush_messages, "min.insync.replicas": min_insync_replicas}
    topic = CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=3,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    create = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    cluster.answer_on(cluster.send_request(first, create, 7, "PLAINTEXT"), create, 7)
    cluster.run(2)
    leader = cluster.nodes[partition(first).leader]
    write(cluster, leader)
    return cluster, leader


def write(cluster: Controllers, leader: Controller, seconds: int = 10) -> None:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"a"))])
    produce = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
    answer = cluster.answer_on(cluster.send_request(leader, produce, 9, "PLAINTEXT"), produce, 9, seconds=5)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    cluster.run(seconds)  # in ten, checkpoints are written


def with_two_segments(min_insync_replicas: str = "2") -> tuple[Controllers, Controller]:
    """Each has a record."""
    cluster, leader = with_one_record("1", min_insync_replicas)
    for one in cluster.nodes.values():
        opened(cluster, one).roll(cluster.clock.now().wall_ms)
    write(cluster, leader)
    return cluster, leader


def lose_log(disk: Disk, what: str) -> None:
    for name in disk.list("t-0"):
        if what != "segments" or name.partition(".")[0].isdigit():
            disk.remove(f"t-0/{name}")
    if what == "directory":
        disk.remove("t-0")


def leave_one(cluster: Controllers, last: Controller, *, stops: bool = False) -> Controller:
    """The leader is alone in sync when all are killed, or it stops. Returns the replica that is eligible
    beside it.
    """
    other, eligible = (one for one in cluster.nodes.values() if one is not last)
    other.kill()
    assert cluster.run(60, lambda: other.id not in partition(last).isr)
    eligible.kill()
    other.start()  # the quorum needs it
    assert cluster.run(60, lambda: partition(last).isr == (last.id,))
    assert partition(last).eligible_leader_replicas == (eligible.id,)
    if stops:
        last.call(lambda node: node.shutdown(cluster.clock.now()))
        assert cluster.run(60, lambda: last.up.is_stopped)
    last.kill()
    other.kill()
    return eligible


def come_back(cluster: Controllers, last: Controller, eligible: Controller) -> None:
    """Both start again, and the one that was in sync is the controller."""
    last.start()
    cluster.run(3)
    eligible.start()
    assert cluster.elected(30) is last
    cluster.run(30)


def opened(cluster: Controllers, one: Controller) -> PartitionLog:
    found = one.up.broker.partitions.at("t", 0)
    assert found is not None
    return found.opened(cluster.clock.now())


def log_of(cluster: Controllers, one: Controller) -> tuple[int, int]:
    log = opened(cluster, one)
    return log.log_start_offset, log.log_end_offset


@pytest.mark.parametrize("lost", ["segments", "files", "directory"])
@pytest.mark.parametrize("flush_messages", ["1", "1000"])
def test_what_others_have_is_not_lost(lost: str, flush_messages: str) -> None:
    cluster, last = with_one_record(flush_messages)
    eligible = leave_one(cluster, last)
    lose_log(last.disk, lost)
    come_back(cluster, last, eligible)
    assert partition(last).leader == eligible.id
    assert [log_of(cluster, one) for one in (eligible, last)] == [(0, 1), (0, 1)]
    last.kill()
    last.start()
    cluster.run(30)
    assert [log_of(cluster, one) for one in (eligible, last)] == [(0, 1), (0, 1)], "also after another start"


@pytest.mark.parametrize("is_same_boot", [True, False])
@pytest.mark.parametrize("lost", ["segments", "files", "directory"])
def test_what_others_have_is_not_lost_after_a_clean_stop_either(lost: str, is_same_boot: bool) -> None:
    """Then no log is opened before the broker leads again: others keep what it lacks, though its log starts
    later than theirs.
    """
    cluster, last = with_one_record("1000")
    eligible = leave_one(cluster, last, stops=True)
    lose_log(last.disk, lost)
    last.boots += not is_same_boot
    come_back(cluster, last, eligible)
    assert partition(last).leader == eligible.id
    assert [log_of(cluster, one) for one in (eligible, last)] == [(0, 1), (0, 1)]


@pytest.mark.parametrize("lost", ["segments", "directory", "starts"])
def test_a_loss_is_not_forgotten_if_the_broker_stops_before_it_is_registered(lost: str) -> None:
    """It stops cleanly, with what is left of its log, and its computer is started again."""
    cluster, last = with_one_record("1")
    others = [one for one in cluster.nodes.values() if one is not last]
    last.kill()
    if lost == "starts":
        last.disk.remove(LOG_STARTS)
    else:
        lose_log(last.disk, lost)
    last.start()
    partitions = last.up.broker.partitions
    assert cluster.run(20, lambda: bool(partitions.damaged or partitions.lacking))
    for one in others:
        one.kill()
    cluster.run(8)
    last.call(lambda node: node.shutdown(cluster.clock.now()))
    assert cluster.run(60, lambda: last.up.is_stopped)
    last.kill()
    last.boots += 1
    last.start()
    for one in others:
        one.start()
    assert cluster.run(20, lambda: last.up.is_ready)
    assert last.up.broker.registration.previous_epoch == -1, "the controller had not heard of it"


def produce(cluster: Controllers, leader: Controller, value: bytes) -> None:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(value))])
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
    answer = cluster.answer_on(cluster.send_request(leader, request, 9, "PLAINTEXT"), request, 9, seconds=5)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("how", ["killed", "lost"])
def test_damage_costs_no_other_record_of_which_there_is_no_copy(how: str) -> None:
    """The only replica in sync does not cut its log before a damaged batch."""
    cluster = Controllers(are_brokers=True).start()
    first = cluster.elected()
    brokers = first.metadata.image.brokers
    assert cluster.run(20, lambda: [broker.is_fenced for broker in brokers.values()] == [False] * 3)
    flushed = CreatableTopicConfig(name="flush.messages", value="1")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2, configs=[flushed])
    create = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    cluster.answer_on(cluster.send_request(first, create, 7, "PLAINTEXT"), create, 7)
    cluster.run(2)
    last = cluster.nodes[partition(first).leader]
    (behind,) = (cluster.nodes[id] for id in partition(first).replicas if id != last.id)
    produce(cluster, last, b"0")
    cluster.run(10)
    behind.kill()
    assert cluster.run(60, lambda: partition(last).isr == (last.id,))
    position = last.up.broker.partitions.at("t", 0).log.size_bytes  # type: ignore[union-attr]
    for value in (b"1", b"2", b"3"):
        produce(cluster, last, value)
    cluster.run(12)  # checkpoints are written
    last.kill(how=how)
    last.disk.flip(f"t-0/{0:020}.log", position, 1)  # in the offset of the second record
    last.start()
    behind.start()
    cluster.run(60)
    assert partition(last).leader == last.id
    assert log_of(cluster, last) == (0, 4)


class KilledError(Exception):
    pass


def test_a_loss_is_not_forgotten_if_the_broker_is_killed_right_after_it_cut_its_log() -> None:
    """To the next start nothing is wrong with the log."""
    cluster, leader = with_one_record("1000")
    write(cluster, leader, seconds=1)
    one = next(each for each in cluster.nodes.values() if each is not leader)
    one.kill()
    [segment] = [name for name in one.disk.list("t-0") if name.endswith(".log")]
    data = bytearray(read_whole(one.disk, f"t-0/{segment}"))
    data[-1] ^= 1
    write_atomically(one.disk, f"t-0/{segment}", bytes(data))
    cut = Partition.cut_damage

    def cut_and_die(self: Partition) -> None:
        cut(self)
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "cut_damage", cut_and_die)
        one.start()
        with pytest.raises(KilledError):
            cluster.run(20)
    one.kill()
    one.start()
    assert cluster.run(20, lambda: one.up.is_ready)
    assert one.up.broker.registration.previous_epoch == -1


@pytest.mark.parametrize("loss", ["none", "missing", "damaged"])
def test_what_was_deleted_does_not_come_back(loss: str) -> None:
    """The checkpoint that says where its logs begin is lost: a broker that still knows it leads."""
    cluster, last = with_one_record("1")
    wanted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    delete = DeleteRecordsRequest(topics=[wanted], timeout_ms=5000)
    answer = cluster.answer_on(cluster.send_request(last, delete, 2, "PLAINTEXT"), delete, 2, seconds=5)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    eligible = leave_one(cluster, last)
    if loss == "missing":
        last.disk.remove(LOG_STARTS)
    elif loss == "damaged":
        content = read_whole(last.disk, LOG_STARTS)
        write_atomically(last.disk, LOG_STARTS, content.replace(b"t 0 1", b"t 0 0"))
    come_back(cluster, last, eligible)
    assert partition(last).leader == (last.id if loss == "none" else eligible.id)
    assert [log_of(cluster, one) for one in (eligible, last)] == [(1, 1), (1, 1)]


def lose_first_segment(disk: Disk) -> None:
    for name in disk.list("t-0"):
        if name.startswith("00000000000000000000."):
            disk.remove(f"t-0/{name}")


def test_a_log_without_its_first_segment_is_not_one_that_retention_has_cut() -> None:
    cluster, last = with_two_segments()
    eligible = leave_one(cluster, last)
    lose_first_segment(last.disk)
    come_back(cluster, last, eligible)
    assert partition(last).leader == eligible.id
    assert [log_of(cluster, one) for one in (eligible, last)] == [(0, 2), (0, 2)]
    last.kill()
    last.start()
    cluster.run(30)
    assert [log_of(cluster, one) for one in (eligible, last)] == [(0, 2), (0, 2)], "also after another start"


@pytest.mark.parametrize("is_alone", [False, True])
def test_what_is_left_is_not_removed_for_the_sake_of_the_first_segment(is_alone: bool) -> None:
    """As far as this broker knows, another was in sync, or none was. That other one has left the in-sync set
    when the controller hears of the loss: it was killed, too, and started first.
    """
    cluster, last = with_two_segments(min_insync_replicas="1")
    first, second = (one for one in cluster.nodes.values() if one is not last)
    first.kill()
    assert cluster.run(60, lambda: first.id not in partition(last).isr)
    if is_alone:
        second.kill()
        first.start()
        assert cluster.run(60, lambda: second.id not in partition(last).isr)
        first.kill()
    else:
        second.kill()
    last.kill()
    lose_first_segment(last.disk)
    for one in cluster.nodes.values():
        if one is not last:
            one.start()
    cluster.run(30)
    last.start()
    cluster.run(30)
    assert [log_of(cluster, one)[1] for one in cluster.nodes.values()] == [2, 2, 2]


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("lost", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
def test_a_log_without_some_of_its_segments_is_not_complete(lost: tuple[int, ...], stops: bool) -> None:
    """Also if no checkpoint has been written since they were made, and after an orderly reboot."""
    cluster, last = with_two_segments()
    for one in cluster.nodes.values():
        opened(cluster, one).roll(cluster.clock.now().wall_ms)
    write(cluster, last, seconds=1)
    eligible = leave_one(cluster, last, stops=stops)
    for name in last.disk.list("t-0"):
        if name.partition(".")[0].isdigit() and int(name.partition(".")[0]) in lost:
            last.disk.remove(f"t-0/{name}")
    last.boots += stops
    come_back(cluster, last, eligible)
    assert partition(last).leader == eligible.id
    assert [log_of(cluster, one) for one in (eligible, last)] == [(0, 3), (0, 3)]
    last.kill()
    last.start()
    cluster.run(30)
    assert [log_of(cluster, one) for one in (eligible, last)] == [(0, 3), (0, 3)], "also after another start"
