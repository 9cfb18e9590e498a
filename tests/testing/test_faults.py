"""Faults that a test scripts, as real clients meet them."""

from __future__ import annotations

import socket
import struct
import time
from typing import IO

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from headrace.client.errors import ClientError
from headrace.client.threads.admin import Admin
from headrace.protocol.api import request_codec
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.testing import Broker, BrokerDown
from testing.reaching import is_reachable

SOON_BACK = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 10}


def producer_of(broker: Broker, **options: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **options})


def delivery(producer: Producer, topic: str, value: bytes, timeout_s: float = 30) -> KafkaError | None:
    """How one record fared."""
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(timeout_s) == 0
    return outcomes[0]


def texts(broker: Broker, topic: str) -> list[str]:
    return [record.text for record in broker.consume_all(topic)]


def api_versions(number: int) -> bytes:
    """A whole request with that correlation id."""
    return struct.pack(">ihhih", 10, 18, 0, number, -1)


def answered(answers: IO[bytes]) -> int:
    """The correlation id of the next answer."""
    (size,) = struct.unpack(">i", answers.read(4))
    number: int = struct.unpack_from(">i", answers.read(size))[0]
    return number


def test_refused_connections(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    producer = producer_of(headrace_broker, **SOON_BACK)
    assert delivery(producer, "orders", b"before") is None
    with headrace_broker.faults.refuse_connections():
        assert not is_reachable(headrace_broker)
        producer.produce("orders", b"meanwhile")
        assert producer.flush(0.2) == 1
    assert producer.flush(30) == 0
    assert texts(headrace_broker, "orders") == ["before", "meanwhile"]


def test_cut_connections_come_back(headrace_broker: Broker) -> None:
    producer = producer_of(headrace_broker, **SOON_BACK)
    assert delivery(producer, "orders", b"before") is None
    assert headrace_broker.faults.cut_connections() >= 1
    assert delivery(producer, "orders", b"after") is None


def test_an_error_for_a_number_of_requests_is_retried_away(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    fault = headrace_broker.faults.error(api="Produce", code="NOT_ENOUGH_REPLICAS", times=3)
    assert fault.times_left == 3
    assert delivery(producer_of(headrace_broker, **{"retry.backoff.ms": 1}), "orders", b"x") is None
    assert fault.times_left == 0
    assert texts(headrace_broker, "orders") == ["x"]


def test_an_error_that_stays_reaches_the_application(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    with headrace_broker.faults.error(api="produce", code="MESSAGE_TOO_LARGE"):
        error = delivery(producer_of(headrace_broker), "orders", b"x")
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert texts(headrace_broker, "orders") == []


def test_faults_may_leave_the_first_requests_alone(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    headrace_broker.faults.error(api="Produce", code="TOPIC_AUTHORIZATION_FAILED", skip=2)
    producer = producer_of(headrace_broker)
    outcomes = [delivery(producer, "orders", str(number).encode()) for number in range(3)]
    assert [error is None for error in outcomes] == [True, True, False]
    assert texts(headrace_broker, "orders") == ["0", "1"]


def test_errors_of_metadata_leave_the_brokers_known(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    fault = headrace_broker.faults.error(api="Metadata", code="LEADER_NOT_AVAILABLE", times=1)
    producer = producer_of(headrace_broker, **{"topic.metadata.refresh.fast.interval.ms": 10})
    assert delivery(producer, "orders", b"x") is None
    assert fault.times_left == 0


def test_without_a_leader_clients_wait_for_one(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    producer = producer_of(headrace_broker, **{"retry.backoff.ms": 10})
    admin = AdminClient({"bootstrap.servers": headrace_broker.bootstrap_servers, "log_level": 0})
    with headrace_broker.faults.leader_gone():
        (partition,) = admin.list_topics("orders", timeout=30).topics["orders"].partitions.values()
        assert partition.error is not None
        assert (partition.leader, partition.error.code()) == (-1, KafkaError.LEADER_NOT_AVAILABLE)
        producer.produce("orders", b"patient")
        assert producer.flush(0.2) == 1
    assert producer.flush(30) == 0
    assert texts(headrace_broker, "orders") == ["patient"]


def test_a_request_that_cannot_be_read_is_the_nodes_affair(headrace_broker: Broker) -> None:
    host, _, port = headrace_broker.bootstrap_servers.rpartition(":")
    headrace_broker.faults.error(api="ApiVersions", code="INVALID_REQUEST")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(struct.pack(">ihhihb", 11, 18, 99, 7, -1, 0))
        answer = client.recv(10)
    assert struct.unpack(">ih", answer[4:]) == (7, 35)  # UNSUPPORTED_VERSION, not the test's error
    assert headrace_broker.log() == []


def test_a_write_whose_answer_is_lost_is_not_written_twice(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    fault = headrace_broker.faults.drop_after_write(2)
    producer = producer_of(headrace_broker, **{"enable.idempotence": True, "retry.backoff.ms": 1})
    assert delivery(producer, "orders", b"once") is None
    assert fault.times_left == 0
    assert texts(headrace_broker, "orders") == ["once"]


def test_a_write_whose_answer_is_lost_is_written_twice_without_idempotence(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    headrace_broker.faults.drop_after_write()
    producer = producer_of(headrace_broker, **{"enable.idempotence": False, "retry.backoff.ms": 1})
    assert delivery(producer, "orders", b"twice") is None
    assert texts(headrace_broker, "orders") == ["twice", "twice"]


def test_an_answer_that_waits_in_the_node_is_dropped_when_it_comes(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders", flush_messages=1)
    fault = headrace_broker.faults.drop_after_write()
    producer = producer_of(headrace_broker, **{"enable.idempotence": False, "retry.backoff.ms": 1})
    assert delivery(producer, "orders", b"twice") is None
    assert fault.times_left == 0
    assert texts(headrace_broker, "orders") == ["twice", "twice"]


def test_a_delayed_request_is_handled_late_and_in_order(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    producer = producer_of(headrace_broker)
    assert delivery(producer, "orders", b"1") is None
    headrace_broker.faults.delay(api="Produce", ms=150, times=1)
    began = time.monotonic()
    assert delivery(producer, "orders", b"2") is None
    assert time.monotonic() - began >= 0.15
    assert delivery(producer, "orders", b"3") is None
    assert texts(headrace_broker, "orders") == ["1", "2", "3"]


def test_what_comes_behind_a_delayed_request_waits_for_it(headrace_broker: Broker) -> None:
    host, _, port = headrace_broker.bootstrap_servers.rpartition(":")
    headrace_broker.faults.delay(api="ApiVersions", ms=20, times=1)
    with socket.create_connection((host, int(port)), timeout=30) as client, client.makefile("rb") as answers:
        client.sendall(api_versions(1) + api_versions(2))
        assert [answered(answers), answered(answers)] == [1, 2]


def test_an_error_behind_a_request_that_waits_is_told_after_it(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    host, _, port = headrace_broker.bootstrap_servers.rpartition(":")
    asked = FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
    body = request_codec(FetchRequest.KEY, 4).encode(
        FetchRequest(max_wait_ms=50, min_bytes=1, max_bytes=1000, topics=[asked])
    )
    fetch = struct.pack(">ihhih", 10 + len(body), FetchRequest.KEY, 4, 1, -1) + body
    headrace_broker.faults.error(api="ApiVersions", code="UNKNOWN_SERVER_ERROR")
    with socket.create_connection((host, int(port)), timeout=30) as client, client.makefile("rb") as answers:
        client.sendall(fetch + api_versions(2))
        assert [answered(answers), answered(answers)] == [1, 2]


def test_a_delay_and_an_error_meet_the_same_request(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    producer = producer_of(headrace_broker)
    headrace_broker.faults.delay(api="Produce", ms=20)
    headrace_broker.faults.error(api="Produce", code="INVALID_RECORD")
    assert delivery(producer, "orders", b"1") is not None


def test_a_delayed_request_of_a_client_that_left_harms_nobody(headrace_broker: Broker) -> None:
    host, _, port = headrace_broker.bootstrap_servers.rpartition(":")
    headrace_broker.faults.delay(api="ApiVersions", ms=20)
    with socket.create_connection((host, int(port)), timeout=30) as leaving:
        leaving.sendall(api_versions(7))
    with socket.create_connection((host, int(port)), timeout=30) as staying:
        staying.sendall(api_versions(8))
        with staying.makefile("rb") as answers:
            assert answered(answers) == 8  # its turn comes after the other's would have
    assert headrace_broker.log() == []


def test_a_full_disk_refuses_records_and_serves_what_it_has(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", ["before"])
    with headrace_broker.faults.disk_full():
        error = delivery(
            producer_of(headrace_broker, **{"message.timeout.ms": 300, "retry.backoff.ms": 10}),
            "orders",
            b"x",
        )
        assert error is not None
        assert texts(headrace_broker, "orders") == ["before"]
    headrace_broker.produce_all("orders", ["after"])
    assert texts(headrace_broker, "orders") == ["before", "after"]


def test_a_broken_disk_stays_offline_until_a_restart(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("orders", ["before"])
    impatient = {"message.timeout.ms": 300, "retry.backoff.ms": 10}
    with headrace_broker.faults.io_error():
        assert delivery(producer_of(headrace_broker, **impatient), "orders", b"x") is not None
    assert delivery(producer_of(headrace_broker, **impatient), "orders", b"y") is not None
    headrace_broker.faults.restart()
    headrace_broker.produce_all("orders", ["after"])
    assert texts(headrace_broker, "orders") == ["before", "after"]


def test_a_broker_whose_metadata_cannot_be_written_gives_up_without_the_test() -> None:
    with Broker({"metadata.log.dir": "topics"}) as broker:
        broker.create_topic("orders")
        broker.faults.io_error()
        with Admin(broker.bootstrap_servers) as admin, pytest.raises(ClientError):
            admin.within(0.2).create_topic("more")
        with pytest.raises(BrokerDown, match="stopped after an error"):
            broker.clock.advance(days=1)
        assert any("halted" in line for line in broker.log())
        broker.faults.clear()
        assert broker.topics() == ["orders"]


def test_a_power_cut_loses_what_was_not_flushed(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("safe", flush_messages=1)
    headrace_broker.create_topic("unsafe")
    headrace_broker.produce_all("safe", ["kept"])
    headrace_broker.produce_all("unsafe", [str(number) * 100 for number in range(50)])
    headrace_broker.faults.kill(lose_unsynced=True)
    headrace_broker.faults.restart()
    assert texts(headrace_broker, "safe") == ["kept"]
    survived = texts(headrace_broker, "unsafe")  # nothing, or all of the one batch they were written in
    assert len(survived) in (0, 50)


@pytest.mark.headrace(storage="disk")
def test_a_power_cut_of_a_real_disk_cannot_be_played(headrace_broker: Broker) -> None:
    with pytest.raises(ValueError, match="needs storage='memory'"):
        headrace_broker.faults.kill(lose_unsynced=True)


def test_a_reset_ends_all_faults(headrace_broker: Broker) -> None:
    headrace_broker.faults.refuse_connections()
    headrace_broker.faults.error(api="Produce", code="INVALID_RECORD")
    headrace_broker.faults.disk_full()
    headrace_broker.faults.kill()
    headrace_broker.reset()
    headrace_broker.produce_all("orders", ["x"])
    assert texts(headrace_broker, "orders") == ["x"]


def test_misspelt_names_are_told(headrace_broker: Broker) -> None:
    with pytest.raises(ValueError, match="'Prodcue'; did you mean 'Produce'"):
        headrace_broker.faults.error(api="Prodcue", code="INVALID_RECORD")
    with pytest.raises(ValueError, match="'NOT_ENOUGH_REPLICA'; did you mean 'NOT_ENOUGH_REPLICAS'"):
        headrace_broker.faults.error(api="Produce", code="NOT_ENOUGH_REPLICA")
    with pytest.raises(ValueError, match="an API with key 999"):
        headrace_broker.faults.delay(api=999, ms=1)
    with pytest.raises(ValueError, match="must be at least 1"):
        headrace_broker.faults.drop_after_write(0)
