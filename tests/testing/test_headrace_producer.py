"""headrace.Producer before a broker that misbehaves: it keeps what it promises, and tells what it cannot."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pyarrow
import pytest

import headrace
import headrace.aio
from harness.wait import WAIT_S
from headrace.client.producer.sender import Sender
from headrace.testing import Broker


def producer(broker: Broker, **settings: Any) -> headrace.Producer:
    return headrace.Producer(
        broker.bootstrap_servers, retry_backoff_ms=5, reconnect_backoff_max_ms=50, **settings
    )


def failure(delivery: headrace.Delivery) -> headrace.ClientError | None:
    try:
        delivery.get(WAIT_S)
    except headrace.ClientError as error:
        return error
    return None


def test_an_answer_that_is_lost_leaves_no_duplicate(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    with producer(headrace_broker, linger_ms=0) as sender:
        sender.send("orders", b"first").get(WAIT_S)
        headrace_broker.faults.drop_after_write(times=3)
        sent = [sender.send("orders", b"%d" % number) for number in range(5)]
        assert [delivery.get(WAIT_S).offset for delivery in sent] == [1, 2, 3, 4, 5]
        assert sender.metrics()["retries"] >= 1
    headrace_broker.assert_consumed("orders", ["first", "0", "1", "2", "3", "4"])


def test_keys_are_shared_among_the_partitions_of_the_topic_that_was_created_again(
    headrace_broker: Broker,
) -> None:
    headrace_broker.create_topic("orders", 5)
    with producer(headrace_broker, linger_ms=0) as sender:
        sender.send("orders", b"old").get(WAIT_S)
        headrace_broker.delete_topic("orders")
        headrace_broker.create_topic("orders", 2)
        sender.send("orders", b"new", partition=0).get(WAIT_S)  # by now it knows the new topic
        sent = [sender.send("orders", b"v", b"%d" % number) for number in range(20)]
        assert {delivery.get(WAIT_S).partition for delivery in sent} == {0, 1}


def test_a_table_that_the_partitioner_refuses_halfway_is_not_sent_twice(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders", 2)
    table = pyarrow.table({"value": ["a", "b", "bad", "c"]})

    def partitioner(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        return 9 if value == b"bad" else 0

    with (
        producer(headrace_broker, partitioner=partitioner) as sender,
        pytest.raises(headrace.InvalidInput, match="returned 9") as raised,
    ):
        sender.send_arrow("orders", table)
    assert raised.value.__notes__ == ["2 of 4 rows were accepted before this error"]
    headrace_broker.assert_consumed("orders", ["a", "b"])


def test_a_send_that_is_cancelled_sends_nothing(headrace_broker: Broker) -> None:
    """Whoever gives up on it, as with a timeout, may send the record again."""
    headrace_broker.create_topic("orders")

    async def story() -> None:
        async with headrace.aio.Producer(headrace_broker.bootstrap_servers, linger_ms=0) as sender:
            await sender.send_and_wait("orders", b"first")
            for _ in range(3):
                sending = asyncio.create_task(sender.send("orders", b"again"))
                await asyncio.sleep(0)
                sending.cancel()
                await asyncio.wait([sending])
                if not sending.cancelled():
                    await sending.result()
                    return

    asyncio.run(story())
    headrace_broker.assert_consumed("orders", ["first", "again"])


def test_deliveries_fail_with_their_producer_though_all_tasks_were_cancelled_once(
    headrace_broker: Broker,
) -> None:
    headrace_broker.create_topic("orders")

    async def story() -> None:
        sender = headrace.aio.Producer(headrace_broker.bootstrap_servers)
        await sender.send_and_wait("orders", b"first")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        delivery = await sender.send("orders", b"second")
        asyncio.get_running_loop().call_soon(sender._driver.broke, RuntimeError("a fault"))
        with pytest.raises(headrace.ClientError, match="a fault"):
            await asyncio.wait_for(delivery, WAIT_S)

    asyncio.run(story())


def test_a_forked_child_is_told_that_it_cannot_send(headrace_broker: Broker) -> None:
    """Its records would wait for a thread that only the parent has."""
    headrace_broker.create_topic("orders")
    program = """
        import os, sys, warnings
        import headrace

        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 has doubts about any such fork
        with headrace.Producer(sys.argv[1]) as sender:
            sender.send("orders", b"first").get(30)
            child = os.fork()
            if child == 0:
                try:
                    sender.send("orders", b"from the child")
                except headrace.ClientError as error:
                    os._exit("fork" in str(error))
                os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
            sender.send("orders", b"second")
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), headrace_broker.bootstrap_servers],
        check=True,
        timeout=WAIT_S,
    )
    headrace_broker.assert_consumed("orders", ["first", "second"])


def test_one_that_broke_takes_no_records(headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    headrace_broker.create_topic("orders")
    sender = producer(headrace_broker)
    sender.send("orders", b"first").get(WAIT_S)
    monkeypatch.setattr(Sender, "requests", lambda *_: 1 // 0)
    lost = sender.send("orders", b"second")
    broken = pytest.raises(headrace.ClientError, match="ZeroDivisionError")
    with broken:
        lost.get(WAIT_S)
    with broken:
        sender.send("orders", b"third")
    with broken:
        sender.close()
    assert lost.error is not None


def test_a_transaction_that_cannot_be_aborted_does_not_keep_close_waiting_for_ever() -> None:
    with Broker(topics=["orders"]) as broker:
        sender = producer(broker, transactional_id="biller", max_block_ms=500)
        sender.begin_transaction()
        sender.send("orders", b"first").get(WAIT_S)
    closing = threading.Thread(target=sender.close, daemon=True)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive()


def test_a_batch_that_is_refused_names_its_bad_records(headrace_broker: Broker) -> None:
    """As Java's producer does (KIP-467): all fail, and the bad ones say why."""
    headrace_broker.create_topic("users", cleanup_policy="compact", message_timestamp_after_max_ms=3_600_000)
    future_ms = 4_000_000_000_000
    failed: dict[str, Exception] = {}
    with producer(headrace_broker, linger_ms=1000) as sender:
        sent = {
            "good": sender.send("users", b"v", b"k"),
            "keyless": sender.send("users", b"v"),
            "future": sender.send("users", b"v", b"k", timestamp_ms=future_ms),
        }
        for name, delivery in sent.items():
            delivery.add_errback(lambda error, name=name: failed.setdefault(name, error))
        errors = {name: failure(delivery) for name, delivery in sent.items()}
        assert failed == errors
        one = [sender.send("users", b"v", b"k"), sender.send("users", b"v")]
        assert isinstance(failure(one[0]), headrace.BatchRefused)
        error = failure(one[1])
        assert isinstance(error, headrace.KafkaError)
        assert error.name == "INVALID_RECORD"
        assert sender.send("users", b"v", b"k").get(WAIT_S).offset == 0
    assert isinstance(errors["good"], headrace.BatchRefused)
    assert "2 of the 3 records" in str(errors["good"])
    assert isinstance(errors["good"].__cause__, headrace.KafkaError)
    for name, text in (("keyless", "without key"), ("future", str(future_ms))):
        assert isinstance(errors[name], headrace.KafkaError)
        assert text in str(errors[name])


def test_a_table_fails_with_the_error_of_its_own_bad_row(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("users", cleanup_policy="compact")
    good = pyarrow.table({"value": ["a", "b"], "key": ["1", "2"]})
    bad = pyarrow.table({"value": ["c", "d"], "key": ["3", None]})
    with producer(headrace_broker, linger_ms=1000) as sender:
        first, second = (sender.send_arrow("users", table, key="key") for table in (good, bad))
        with pytest.raises(headrace.BatchRefused):
            first.get(WAIT_S)
        with pytest.raises(headrace.KafkaError, match="without key"):
            second.get(WAIT_S)


def test_it_survives_a_restart_of_the_broker(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    with producer(headrace_broker) as sender:
        for number in range(20):
            sender.send("orders", b"%d" % number)
            if number % 5 == 0:
                headrace_broker.faults.restart()
    headrace_broker.assert_consumed("orders", [str(number) for number in range(20)])


def test_what_the_broker_refuses_is_told_by_the_delivery(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    heard: list[headrace.KafkaError] = []
    with producer(headrace_broker) as sender:
        sender.send("orders", b"first").get(WAIT_S)
        headrace_broker.faults.error(api="Produce", code="TOPIC_AUTHORIZATION_FAILED", times=1)
        delivery = sender.send("orders", b"refused").add_errback(heard.append)
        with pytest.raises(headrace.KafkaError, match="TOPIC_AUTHORIZATION_FAILED") as refused:
            delivery.get(WAIT_S)
        assert "Ask for access" in refused.value.advice
        assert not refused.value.is_retriable
        assert sender.send("orders", b"second").get(WAIT_S).offset == 1
        assert sender.metrics()["errors"] == 1
    assert heard == [refused.value]


def test_records_that_find_no_broker_are_lost_in_time_and_in_words(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    quick = {"delivery_timeout_ms": 200, "request_timeout_ms": 100, "linger_ms": 0}
    with producer(headrace_broker, **quick) as sender:
        sender.send("orders", b"first").get(WAIT_S)
        with (
            headrace_broker.faults.refuse_connections(),
            pytest.raises(headrace.RecordLost, match="orders-0"),
        ):
            sender.send("orders", b"lost").get(WAIT_S)
        delivery = sender.send("orders", b"second")
        while isinstance(failure(delivery), headrace.RecordLost):  # until it has found the broker again
            delivery = sender.send("orders", b"second")
        assert delivery.get().offset == 1


def test_a_topic_that_nobody_knows_is_told_after_max_block_ms() -> None:
    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        producer(broker, max_block_ms=50) as sender,
    ):
        with pytest.raises(headrace.TopicUnknown, match="UNKNOWN_TOPIC_OR_PARTITION") as unknown:
            sender.send("nowhere", b"v")
        assert "create the topic" in unknown.value.advice


def test_a_broker_that_nobody_finds_is_told_after_max_block_ms(headrace_broker: Broker) -> None:
    said: Exception | None = None
    with headrace_broker.faults.refuse_connections(), producer(headrace_broker, max_block_ms=50) as sender:
        while not isinstance(said, headrace.Unreachable):  # the first attempt may take longer than that
            with pytest.raises((headrace.TopicUnknown, headrace.Unreachable)) as refused:
                sender.send("orders", b"v")
            said = refused.value
    assert "cannot connect to" in str(said)


def test_after_close_nothing_is_taken(headrace_broker: Broker) -> None:
    sender = producer(headrace_broker)
    delivery = sender.send("orders", b"v")
    sender.close()
    sender.close()
    assert delivery.get(0).offset == 0
    for call in (lambda: sender.send("orders", b"v"), lambda: sender.send("new", b"v")):
        with pytest.raises(headrace.ProducerClosed, match="closed"):
            call()


def test_close_gives_up_when_its_time_is_over(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    heard: list[object] = []
    sender = producer(headrace_broker)
    sender.send("orders", b"first").get(WAIT_S)
    with headrace_broker.faults.refuse_connections():
        delivery = sender.send("orders", b"lost").add_errback(heard.append)
        sender.close(timeout=0.05)
    with pytest.raises(headrace.RecordLost, match="closed before"):
        delivery.get(0)
    assert len(heard) == 1


class TestCallbacks:
    def test_they_run_on_one_thread_without_the_lock(self, headrace_broker: Broker) -> None:
        """A callback may send: nobody holds the lock that sending needs."""
        threads: set[int] = set()
        with producer(headrace_broker) as sender:
            done = threading.Event()

            def again(metadata: headrace.RecordMetadata) -> None:
                threads.add(threading.get_ident())
                if metadata.offset < 5:
                    sender.send("orders", b"next").add_callback(again)
                else:
                    done.set()

            sender.send("orders", b"first").add_callback(again)
            assert done.wait(WAIT_S)
        assert len(threads) == 1
        assert threading.get_ident() not in threads

    def test_one_that_raises_is_logged_and_harms_nobody(
        self, headrace_broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard: list[int] = []
        with producer(headrace_broker) as sender, caplog.at_level(logging.ERROR, "headrace.producer"):
            sender.send("orders", b"a").add_callback(lambda metadata: 1 / 0)
            sender.send("orders", b"b").add_callback(lambda metadata: heard.append(metadata.offset))
            sender.flush(WAIT_S)
            assert sender.send("orders", b"c").get(WAIT_S).offset == 2
        assert heard == [1]
        assert "ZeroDivisionError" in caplog.text

    def test_one_that_waits_is_told_that_it_cannot(self, headrace_broker: Broker) -> None:
        raised: list[str] = []
        with producer(headrace_broker) as sender:
            done = threading.Event()

            def wait(metadata: headrace.RecordMetadata) -> None:
                for call in (sender.send("orders", b"b").get, sender.flush, sender.close):
                    with pytest.raises(headrace.InvalidInput) as refused:
                        call()
                    raised.append(str(refused.value))
                done.set()

            sender.send("orders", b"a").add_callback(wait)
            assert done.wait(WAIT_S)
            sender.send("orders", b"c").get(WAIT_S)
        assert [text.split()[:4] for text in raised] == [["a", "delivery", "callback", "cannot"]] * 3


def test_metrics_count_what_was_done(headrace_broker: Broker) -> None:
    with producer(headrace_broker, compression_type="zstd", linger_ms=20) as sender:
        for _ in range(100):
            sender.send("orders", b"the same words again and again")
        sender.flush(WAIT_S)
        told = sender.metrics()
    assert (told["records"], told["errors"], told["retries"], told["buffer_bytes"]) == (100, 0, 0, 0)
    assert told["bytes"] == pytest.approx(100 * 38, rel=0.1)
    assert told["batches"] >= 1
    assert told["batch_size_avg"] == told["bytes"] / told["batches"]
    assert 0 < told["compression_ratio"] < 0.5
    assert 0 < told["request_latency_avg_ms"] <= told["request_latency_max_ms"]


def test_a_rate_is_kept(headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 10,000 records per second the first 1,000 are free, and 200 more are not."""
    with producer(headrace_broker, headrace_rate_records=10_000) as sender:
        begin = sender.send("orders", b"first").get(WAIT_S).timestamp_ms
        for _ in range(1200):
            last = sender.send("orders", b"v")
        assert last.get(WAIT_S).timestamp_ms - begin >= 10
    assert headrace_broker.consume_all("orders")[-1].offset == 1200


def test_a_producer_that_nobody_holds_ends_its_thread(headrace_broker: Broker) -> None:
    sender = producer(headrace_broker)
    sender.send("orders", b"v").get(WAIT_S)
    thread = sender._driver._thread
    del sender
    gc.collect()
    thread.join(WAIT_S)
    assert not thread.is_alive()


class TestOnALoop:
    def test_callbacks_and_errors(self, headrace_broker: Broker) -> None:
        headrace_broker.create_topic("orders")

        async def story() -> list[Any]:
            heard: list[Any] = []
            async with headrace.aio.Producer(headrace_broker.bootstrap_servers) as sender:
                (await sender.send("orders", b"a")).add_callback(
                    lambda metadata: heard.append(metadata.offset)
                )
                await sender.flush(WAIT_S)
                headrace_broker.faults.error(api="Produce", code="TOPIC_AUTHORIZATION_FAILED", times=1)
                with pytest.raises(headrace.KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                    await sender.send_and_wait("orders", b"b")
                delivery = await sender.send("orders", b"c")
                with pytest.raises(headrace.InvalidInput, match="use await"):
                    delivery.get()
                assert (await delivery).offset == 1
                assert sender.metrics()["records"] == 2
            with pytest.raises(headrace.ProducerClosed):
                await sender.send("orders", b"d")
            return heard

        assert asyncio.run(story()) == [0]

    def test_a_task_that_is_cancelled_harms_nobody(self, headrace_broker: Broker) -> None:
        headrace_broker.create_topic("orders")

        async def story() -> None:
            async with headrace.aio.Producer(headrace_broker.bootstrap_servers) as sender:
                await sender.send_and_wait("orders", b"a")
                with headrace_broker.faults.delay(api="Produce", ms=50, times=1):
                    waiting = asyncio.create_task(sender.send_and_wait("orders", b"b"))
                    await asyncio.sleep(0)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                assert (await sender.send_and_wait("orders", b"c")).offset == 2

        asyncio.run(story())

    def test_close_tells_who_still_waits(self, headrace_broker: Broker) -> None:
        headrace_broker.create_topic("orders")

        async def story() -> None:
            sender = headrace.aio.Producer(headrace_broker.bootstrap_servers)
            await sender.send_and_wait("orders", b"a")
            with headrace_broker.faults.refuse_connections():
                waiting = asyncio.create_task(sender.send_and_wait("orders", b"b"))
                await asyncio.sleep(0)
                await sender.close(timeout=0.05)
                with pytest.raises(headrace.RecordLost):
                    await waiting

        asyncio.run(story())


class Bug(Exception):
    pass


def test_a_bug_of_ours_is_told_instead_of_waited_for(
    headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(sending: Any, now: float) -> Any:
        raise Bug

    with producer(headrace_broker) as sender:
        sender.send("orders", b"a").get(WAIT_S)
        monkeypatch.setattr(Sender, "requests", broken)
        delivery = sender.send("orders", b"b")
        with pytest.raises(headrace.ClientBroken) as told:
            delivery.get(WAIT_S)
        assert isinstance(told.value.__cause__, Bug)
        with pytest.raises(headrace.ClientBroken):
            sender.close()
    with pytest.raises(headrace.RecordLost):
        delivery.get(0)


def test_a_bug_of_ours_is_told_to_every_task(
    headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(sending: Any, now: float) -> Any:
        raise Bug

    async def story() -> None:
        sender = headrace.aio.Producer(headrace_broker.bootstrap_servers)
        await sender.send_and_wait("orders", b"a")
        monkeypatch.setattr(Sender, "requests", broken)
        outcomes = await asyncio.gather(
            *(sender.send_and_wait("orders", b"b") for _ in range(5)), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {headrace.ClientBroken}
        with pytest.raises(headrace.ClientBroken):
            await sender.close()

    asyncio.run(story())


def test_who_forgets_to_flush_is_told(headrace_broker: Broker) -> None:
    program = (
        "import headrace, sys\n"
        "producer = headrace.Producer(sys.argv[1], linger_ms=60_000)\n"
        "producer.send('orders', b'forgotten')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, headrace_broker.bootstrap_servers], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "were not delivered" in done.stderr
    assert "flush() or close()" in done.stderr
