"""A broker for users' tests: its life, its helpers, and what a reset or a snapshot leaves."""

from __future__ import annotations

import contextlib
import gc
import socket
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
from confluent_kafka import Consumer, Producer

from headrace.client.errors import ClientError
from headrace.server.lock import DirectoryInUse
from headrace.testing import Broker, BrokerDown, GroupHasMembers, HostFailed, Record
from testing.reaching import is_reachable

KINDS: dict[str, dict[str, Any]] = {
    "thread-memory": {},
    "thread-disk": {"storage": "disk"},
    "process-memory": {"process": True},
    "process-disk": {"process": True, "storage": "disk"},
}


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(**KINDS[request.param]) as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset(())
    return shared


def test_a_real_client_writes_and_the_test_reads(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
    producer.produce("orders", b"v", b"k", headers={"trace": b"1"})
    assert producer.flush(30) == 0
    (found,) = broker.consume_all("orders")
    assert (found.key, found.value, found.headers) == (b"k", b"v", (("trace", b"1"),))
    assert (found.topic, found.partition, found.offset) == ("orders", 0, 0)


def test_the_test_writes_and_a_real_client_reads(broker: Broker) -> None:
    broker.create_topic("orders")
    assert broker.produce_all("orders", ["text", b"bytes", {"id": 1}, ("key", None)]) == 4
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    consumer.subscribe(["orders"])
    messages = consumer.consume(4, timeout=30)
    consumer.close()
    assert [(message.key(), message.value()) for message in messages] == [
        (None, b"text"),
        (None, b"bytes"),
        (None, b'{"id":1}'),
        (b"key", None),
    ]


def test_a_reset_leaves_the_address_and_nothing_else(broker: Broker) -> None:
    address = broker.bootstrap_servers
    broker.create_topic("orders", 3)
    broker.produce_all("orders", ["old"])
    broker.consume_all("orders", group="readers")
    broker.clock.advance(days=1)
    before = broker.clock.now()
    broker.reset()
    assert broker.bootstrap_servers == address
    assert broker.topics() == []
    assert broker.clock.now() < before
    broker.produce_all("orders", ["new"])
    assert [one.text for one in broker.consume_all("orders", group="readers")] == ["new"]


def test_a_snapshot_is_restored_as_often_as_wanted(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.produce_all("orders", ["a", "b"])
    broker.consume_all("orders", group="readers")
    snapshot = broker.snapshot()
    for attempt in ("first", "second"):
        broker.produce_all("orders", [attempt])
        broker.create_topic("more")
        broker.restore(snapshot)
        assert broker.topics() == ["orders"]
        assert [one.text for one in broker.consume_all("orders")] == ["a", "b"]
    broker.produce_all("orders", ["c"])
    assert [one.text for one in broker.consume_all("orders", group="readers")] == ["c"]


def test_a_snapshot_from_before_a_reset_is_refused(broker: Broker) -> None:
    snapshot = broker.snapshot()
    broker.reset()
    with pytest.raises(ValueError, match="the broker was reset after it was taken"):
        broker.restore(snapshot)


def test_a_killed_broker_comes_back_with_what_it_had(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.produce_all("orders", ["a"])
    address = broker.bootstrap_servers
    with broker.faults.kill():
        assert not is_reachable(broker)
        with pytest.raises(BrokerDown, match="it was killed"):
            broker.clock.advance(days=1)
    assert broker.bootstrap_servers == address
    assert [one.text for one in broker.consume_all("orders")] == ["a"]


# --- where all kinds are the same ---------------------------------------------------------------------------


@pytest.fixture
def memory(headrace_broker: Broker) -> Broker:
    return headrace_broker


def test_a_group_reads_on_where_it_stopped(memory: Broker) -> None:
    memory.create_topic("orders", 2)
    memory.produce_all("orders", [("a", "1"), ("b", "2")])
    assert len(memory.consume_all("orders", group="readers")) == 2
    memory.produce_all("orders", [("a", "3")])
    assert [one.text for one in memory.consume_all("orders", group="readers")] == ["3"]
    assert len(memory.consume_all("orders")) == 3


def test_a_group_with_members_is_not_read_for(memory: Broker) -> None:
    memory.produce_all("orders", ["a"])
    consumer = Consumer(
        {
            "bootstrap.servers": memory.bootstrap_servers,
            "group.id": "busy",
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(30) is not None
    with pytest.raises(GroupHasMembers, match="busy"):
        memory.consume_all("orders", group="busy")
    consumer.close()


def test_aborted_records_are_not_found_unless_asked_for(memory: Broker) -> None:
    memory.create_topic("orders")
    producer = Producer(
        {"bootstrap.servers": memory.bootstrap_servers, "transactional.id": "t", "log_level": 2}
    )
    producer.init_transactions(30)
    for value, end in ((b"lost", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("orders", value)
        producer.flush(30)
        end(30)
    assert [one.text for one in memory.consume_all("orders")] == ["kept"]
    found = memory.consume_all("orders", isolation="read_uncommitted")
    assert [one.text for one in found] == ["lost", "kept"]


def test_topics_are_made_at_the_start_and_again_at_each_reset() -> None:
    with Broker(topics={"orders": 3}) as broker:
        assert broker.topics() == ["orders"]
        broker.delete_topic("orders")
        broker.reset()
        assert broker.topics() == ["orders"]
        broker.reset(["other"])
        assert broker.topics() == ["other"]


def test_settings_and_configs_have_kafkas_names() -> None:
    with Broker({"num.partitions": 4}) as broker:
        broker.create_topic("users", -1, cleanup_policy="compact")
        broker.produce_all("users", [Record.of("v", key="k", partition=3)])
        with pytest.raises(ClientError, match="INVALID_RECORD"):
            broker.produce_all("users", ["a compacted topic wants keys"])


def test_a_wrong_setting_is_told_before_anything_runs() -> None:
    with pytest.raises(ValueError, match=r"many for configuration num\.partitions"):
        Broker({"num.partitions": "many"})
    with pytest.raises(ValueError, match=r"did you mean 'num\.partitions'"):
        Broker({"num.partition": 3})
    with pytest.raises(ValueError, match="storage"):
        Broker(storage="tape")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="path needs storage='disk'"):
        Broker(path="somewhere")


def test_a_broker_that_does_not_run_says_so() -> None:
    broker = Broker()
    with pytest.raises(HostFailed, match="is not running"):
        broker.bootstrap_servers  # noqa: B018
    with broker, pytest.raises(HostFailed, match="is already running"):
        broker.start()
    with pytest.raises(HostFailed, match="is not running"):
        broker.produce_all("orders", ["x"])


def test_a_disk_of_ones_own_outlives_the_broker(tmp_path: Path) -> None:
    with Broker(storage="disk", path=tmp_path) as broker:
        broker.produce_all("orders", ["a"])
    with Broker(storage="disk", path=tmp_path) as broker:
        assert [one.text for one in broker.consume_all("orders")] == ["a"]


def test_a_disk_has_one_broker_at_a_time(tmp_path: Path) -> None:
    with Broker(storage="disk", path=tmp_path), pytest.raises(DirectoryInUse, match="in use by process"):
        Broker(storage="disk", path=tmp_path).start()


def test_a_broker_that_cannot_start_gives_its_port_back() -> None:
    """Twice the same port: the second listener is refused after the first has its own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = f"PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:{taken.getsockname()[1]}"
        settings = {
            "listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        }
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(Exception, match="in use"):
                Broker(settings).start()
            gc.collect()
        assert not [warning for warning in caught if issubclass(warning.category, ResourceWarning)]


def test_a_broker_that_nobody_stopped_ends_with_the_interpreter() -> None:
    script = """
        from headrace.testing import Broker
        here, beside = Broker().start(), Broker(process=True).start()
        here.produce_all("orders", ["x"])
        print(beside._host._process.pid)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stderr == ""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(ended.stdout)).wait(30)  # its stdin has ended, and so does it


def test_clients_that_come_back_in_the_middle_of_a_reset_harm_nobody(memory: Broker) -> None:
    is_over = threading.Event()

    def knock() -> None:
        while not is_over.is_set():
            assert is_reachable(memory)

    knocking = threading.Thread(target=knock)
    knocking.start()
    for _ in range(20):
        memory.reset()
    is_over.set()
    knocking.join()
    memory.produce_all("orders", ["x"])
    assert memory.log() == []


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_nothing_is_left_behind(storage: Literal["memory", "disk"]) -> None:
    process = psutil.Process()

    def live(broker: Broker) -> None:
        broker.produce_all("orders", ["x"])
        broker.faults.kill()
        broker.faults.restart()
        broker.reset()
        gc.collect()

    threads = threading.active_count()
    with Broker(storage=storage) as broker:
        live(broker)
        descriptors = process.num_fds()
        for _ in range(5):
            live(broker)
        assert process.num_fds() <= descriptors
    assert threading.active_count() == threads


def test_a_temporary_disk_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Broker(storage="disk") as broker:
        broker.produce_all("orders", ["a"])
        assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["headrace"]
    assert list(tmp_path.iterdir()) == []


def test_a_record_says_all_that_is_known_of_it(memory: Broker) -> None:
    memory.create_topic("orders", 3)
    given = Record.of({"id": 1}, key="k", headers={"a": "b"}, partition=2, timestamp_ms=1_700_000_000_000)
    memory.produce_all("orders", [given])
    (found,) = memory.consume_all("orders")
    assert found == Record(b'{"id":1}', b"k", (("a", b"b"),), 2, 1_700_000_000_000, topic="orders", offset=0)
    assert found.json == {"id": 1}
    assert str(found) == """key='k' value='{"id":1}' a:'b'"""
