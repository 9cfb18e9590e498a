"""The accumulator, compiled and interpreted: what it writes, where it puts it, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from harness.accumulating import first_candidate, put, rows_of
from headrace.client.producer.partitioner import Strategy
from headrace.client.producer.rejections import (
    BufferFull,
    MetadataMissing,
    NotOpen,
    RecordTooLarge,
    UnknownPartition,
    Unwritable,
)
from headrace.records.batch import check_crc
from headrace.records.reader import read_rows


class TestRecords:
    def test_what_goes_in_comes_out_of_the_batch(self, make: Any) -> None:
        accumulator = make(1)
        headers = (("trace", b"1"), ("none", None), ("ü", b""))
        put(accumulator, b"a", key=b"k", headers=headers, timestamp=5)
        put(accumulator, None, key=b"", timestamp=3)
        put(accumulator, b"", timestamp=10**12)
        put(accumulator, b"x" * 70_000, timestamp=10**12 + 1)
        (queue,) = accumulator.busy
        found = [row for batch in queue.waiting for row in rows_of(batch)]
        assert [row[1:] for row in found] == [
            (5, b"k", b"a", headers),
            (3, b"", None, ()),
            (10**12, None, b"", ()),
            (10**12 + 1, None, b"x" * 70_000, ()),
        ]
        assert [row[0] for row in found] == [0, 1, 2, 0]

    def test_a_batch_says_its_timestamps_and_its_producer(self, make: Any) -> None:
        accumulator = make(1)
        for timestamp in (7, 9, 8):
            put(accumulator, b"a", timestamp=timestamp)
        (queue,) = accumulator.busy
        batch = accumulator.take(queue)
        batch.identify(77, 3, 12)
        header = check_crc(bytes(batch.seal(0, None, True)))
        assert (header.base_timestamp, header.max_timestamp) == (7, 9)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
        assert header.record_count == 3
        assert header.is_transactional

    @pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
    def test_a_sealed_batch_is_sealed_again_with_other_numbers(self, make: Any, codec: int) -> None:
        accumulator = make(1)
        for number in range(50):
            put(accumulator, b"value %d" % number)
        (queue,) = accumulator.busy
        batch = accumulator.take(queue)
        batch.identify(1, 0, 0)
        first = bytes(batch.seal(codec, None, False))
        batch.identify(1, 1, 5)
        again = bytes(batch.seal(codec, None, False))
        assert read_rows(first, 0, check_crc(first)) == read_rows(again, 0, check_crc(again))
        assert check_crc(again).base_sequence == 5
        assert check_crc(again).codec == codec

    def test_bytes_like_values_are_taken(self, make: Any) -> None:
        accumulator = make(1)
        put(accumulator, bytearray(b"ab"), key=memoryview(b"k"))
        (queue,) = accumulator.busy
        assert rows_of(queue.waiting[0])[0][2:4] == (b"k", b"ab")


class TestRoom:
    def test_a_batch_is_closed_when_the_next_record_does_not_fit(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=1000)
        for _ in range(30):
            put(accumulator, b"x" * 100)
        (queue,) = accumulator.busy
        assert [batch.is_closed for batch in queue.waiting] == [True] * (len(queue.waiting) - 1) + [False]
        assert sum(batch.count for batch in queue.waiting) == 30
        assert all(batch.used <= 1000 for batch in queue.waiting)

    def test_a_record_larger_than_a_batch_travels_alone(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=1000)
        for size in (10, 5000, 10):
            put(accumulator, b"x" * size)
        (queue,) = accumulator.busy
        assert [batch.count for batch in queue.waiting] == [1, 1, 1]

    def test_without_room_nothing_is_taken_until_something_is_delivered(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=500, buffer_bytes=1000)
        while accumulator.buffered_bytes <= 850:
            put(accumulator, b"x" * 100)
        with pytest.raises(BufferFull):
            put(accumulator, b"x" * 100)
        assert accumulator.buffered_bytes <= 1000
        (queue,) = accumulator.busy
        batch = accumulator.take(queue)
        with pytest.raises(BufferFull):  # what is under way still counts
            put(accumulator, b"x" * 100)
        batch.settle(0)
        accumulator.release(batch)
        put(accumulator, b"x" * 100)

    def test_a_record_that_no_request_can_carry_is_refused_for_good(self, make: Any) -> None:
        accumulator = make(1, request_bytes_max=2000)
        with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
            put(accumulator, b"x" * 2000)
        with pytest.raises(RecordTooLarge, match=r"buffer\.memory"):
            put(make(1, buffer_bytes=500), b"x" * 600)
        assert accumulator.buffered_bytes == 0
        assert not accumulator.busy

    def test_wrong_timestamps_are_refused(self, make: Any) -> None:
        for timestamp in (-1, (1 << 63) - 1):
            with pytest.raises(ValueError, match="timestamp"):
                put(make(1), b"a", timestamp=timestamp)


class TestPartitions:
    def test_a_key_goes_where_its_hash_says(self, make: Any, module: Any) -> None:
        accumulator = make(7)
        for number in range(200):
            key = b"key-%d" % number
            chosen = put(accumulator, b"v", key=key).batch.queue.partition
            assert chosen == (module.murmur2(key) & 0x7FFFFFFF) % 7

    def test_records_without_key_stay_until_a_batch_is_full(self, make: Any) -> None:
        accumulator = make(3, batch_bytes=1000)
        partitions = [put(accumulator, b"x" * 100).batch.queue.partition for _ in range(60)]
        turns = [partitions[0]]
        for partition in partitions:
            if partition != turns[-1]:
                turns.append(partition)
        assert turns[:4] == [0, 1, 2, 0]
        for queue in accumulator.busy:
            assert all(batch.used > 800 for batch in list(queue.waiting)[:-1]), "a batch was left half full"

    def test_round_robin_gives_each_its_turn_and_ignores_keys(self, make: Any) -> None:
        accumulator = make(3, strategy=Strategy.ROUND_ROBIN)
        partitions = [put(accumulator, b"v", key=b"same").batch.queue.partition for _ in range(7)]
        assert partitions == [0, 1, 2, 0, 1, 2, 0]

    def test_those_without_leader_are_left_out(self, make: Any) -> None:
        accumulator = make(3, strategy=Strategy.ROUND_ROBIN)
        accumulator.learn("t", [True, False, True])
        assert {put(accumulator, b"v").batch.queue.partition for _ in range(6)} == {0, 2}
        accumulator.learn("t", [False, False, False])
        assert {put(accumulator, b"v").batch.queue.partition for _ in range(6)} == {0, 1, 2}

    def test_a_sticky_partition_that_loses_its_leader_is_left(self, make: Any) -> None:
        accumulator = make(3)
        stuck = put(accumulator, b"v").batch.queue.partition
        accumulator.learn("t", [partition != stuck for partition in range(3)])
        assert put(accumulator, b"v").batch.queue.partition != stuck

    def test_a_function_of_the_users_chooses(self, make: Any) -> None:
        seen: list[Any] = []

        def choose(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
            seen.append((topic, key, value, partitions))
            return 2

        accumulator = make(3, strategy=Strategy.CUSTOM, partitioner=choose)
        assert put(accumulator, b"v", key=b"k").batch.queue.partition == 2
        assert seen == [("t", b"k", b"v", 3)]
        wrong = make(3, strategy=Strategy.CUSTOM, partitioner=lambda *asked: 3)
        with pytest.raises(UnknownPartition, match="returned 3"):
            put(wrong, b"v")

    def test_a_named_partition_is_taken_or_refused(self, make: Any) -> None:
        accumulator = make(3)
        assert put(accumulator, b"v", key=b"k", partition=1).batch.queue.partition == 1
        with pytest.raises(UnknownPartition):
            put(accumulator, b"v", partition=3)

    def test_what_grows_is_told(self, make: Any) -> None:
        accumulator = make(2)
        delivery = put(accumulator, b"v", partition=1)
        assert accumulator.learn("t", [True] * 4) == 2
        assert put(accumulator, b"v", partition=3).batch.queue.partition == 3
        assert put(accumulator, b"v", partition=1).batch is delivery.batch

    def test_only_a_topic_that_was_created_again_has_fewer_partitions(self, make: Any) -> None:
        accumulator = make(3, strategy=Strategy.ROUND_ROBIN)
        old = put(accumulator, b"v", partition=2)
        accumulator.learn("t", [True])  # from a broker that has not heard of the newest partitions
        put(accumulator, b"v", partition=1)
        accumulator.learn("t", [True], is_recreated=True)
        assert {put(accumulator, b"v").batch.queue.partition for _ in range(4)} == {0}
        with pytest.raises(UnknownPartition):
            put(accumulator, b"v", partition=1)
        assert old.batch.queue in accumulator.busy, "its batch must still be settled"

    def test_a_topic_without_partitions_is_not_known(self, make: Any) -> None:
        """No broker has one, but one may say so: there would be nothing to choose from."""
        accumulator = make(0)
        for key in (None, b"k"):
            with pytest.raises(MetadataMissing):
                put(accumulator, b"v", key=key)


class TestDeliveries:
    def test_a_delivery_tells_where_its_record_lies(self, make: Any, module: Any) -> None:
        accumulator = make(1)
        deliveries = [put(accumulator, b"v", timestamp=100 + number) for number in range(3)]
        assert not deliveries[1].is_done
        with pytest.raises(RuntimeError):
            deliveries[1].result()
        deliveries[1].batch.settle(40)
        assert deliveries[1].get() == module.RecordMetadata("t", 0, 41, 101)

    def test_the_brokers_clock_counts_where_it_stamps(self, make: Any) -> None:
        delivery = put(make(1), b"v", timestamp=100)
        delivery.batch.settle(40, 555)
        assert delivery.get().timestamp_ms == 555

    def test_without_acknowledgement_no_offset_is_known(self, make: Any) -> None:
        accumulator = make(1)
        put(accumulator, b"v")
        delivery = put(accumulator, b"v")
        delivery.batch.settle(-1)
        assert delivery.get().offset == -1

    def test_an_error_is_raised_from_every_delivery_of_the_batch(self, make: Any) -> None:
        accumulator = make(1)
        deliveries = [put(accumulator, b"v") for _ in range(2)]
        error = RuntimeError("no")
        deliveries[0].batch.settle(error=error)
        for delivery in deliveries:
            assert delivery.error is error
            with pytest.raises(RuntimeError, match="no"):
                delivery.get()

    def test_callbacks_hear_of_success_and_errbacks_of_failure(self, make: Any) -> None:
        accumulator = make(1)
        heard: list[Any] = []
        first = put(accumulator, b"v", timestamp=1)
        first.add_callback(lambda *told: heard.append(told), "extra").add_errback(heard.append)
        first.batch.settle(7)
        assert heard == []
        assert first.batch.call_listeners() == []
        assert [(told[0], told[1].offset) for told in heard] == [("extra", 7)]

        failed = put(make(1), b"v")
        error = RuntimeError("no")
        failed.add_callback(heard.append)
        failed.add_errback(heard.append)
        failed.batch.settle(error=error)
        failed.batch.call_listeners()
        assert heard[1:] == [error]

    def test_a_callback_that_comes_late_is_called_at_once_and_once(self, make: Any) -> None:
        delivery = put(make(1), b"v")
        heard: list[Any] = []
        delivery.batch.settle(7)
        delivery.add_callback(heard.append)
        delivery.batch.call_listeners()
        assert [told.offset for told in heard] == [7]

    def test_a_callback_that_raises_does_not_keep_others_from_theirs(self, make: Any) -> None:
        accumulator = make(1)
        heard: list[Any] = []

        def fail(told: Any) -> None:
            raise ZeroDivisionError

        first, second = put(accumulator, b"v"), put(accumulator, b"v")
        first.add_callback(fail)
        second.add_callback(heard.append)
        first.batch.settle(0)
        raised = first.batch.call_listeners()
        assert [type(error) for error in raised] == [ZeroDivisionError]
        assert [told.offset for told in heard] == [1]

    def test_deliveries_follow_a_batch_that_is_split(self, make: Any, module: Any) -> None:
        accumulator = make(1)
        deliveries = [put(accumulator, b"%d" % number) for number in range(5)]
        heard: list[int] = []
        deliveries[4].add_callback(lambda told: heard.append(told.offset))
        (queue,) = accumulator.busy
        whole = accumulator.take(queue)
        rows = [row[1:] for row in rows_of(whole)]
        parts = [module.rebatch(queue, 0.0, rows[:2]), module.rebatch(queue, 0.0, rows[2:])]
        assert [row[3] for row in rows_of(parts[1])] == [b"2", b"3", b"4"]
        whole.replace(parts)
        parts[1].settle(90)
        assert [delivery.is_done for delivery in deliveries] == [False, False, True, True, True]
        parts[1].call_listeners()
        parts[0].settle(10)
        assert [delivery.get().offset for delivery in deliveries] == [10, 11, 90, 91, 92]
        assert heard == [92]


class TestWaiting:
    """How it is waited for is the shell's affair: here one that lets the broker answer meanwhile."""

    class Shell:
        def __init__(self) -> None:
            self.waited: list[float | None] = []

        def wait(self, delivery: Any, timeout_s: float | None) -> None:
            self.waited.append(timeout_s)
            delivery.batch.settle(5)

        def awaiting(self, delivery: Any) -> Any:
            yield "a turn of the loop"
            delivery.batch.settle(6)
            return delivery.result()

    def test_get_waits_only_for_what_is_not_done(self, module: Any) -> None:
        shell = self.Shell()
        accumulator = module.Accumulator(shell, first_candidate)
        accumulator.learn("t", [True])
        delivery = put(accumulator, b"v")
        assert delivery.get(3.5).offset == 5
        assert delivery.get(3.5).offset == 5
        assert shell.waited == [3.5]

    def test_a_delivery_can_be_awaited(self, module: Any) -> None:
        accumulator = module.Accumulator(self.Shell(), first_candidate)
        accumulator.learn("t", [True])
        delivery = put(accumulator, b"v")

        async def wait_for() -> Any:
            return await delivery

        running = wait_for()
        assert running.send(None) == "a turn of the loop"
        with pytest.raises(StopIteration) as done:
            running.send(None)
        assert done.value.value.offset == 6


class TestGrowth:
    """A batch may leave from batch.size on; what cannot leave yet goes on to grow."""

    def test_a_batch_grows_until_it_is_taken(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=300, batch_bytes_max=2000)
        for _ in range(12):
            put(accumulator, b"x" * 100)
        (queue,) = accumulator.busy
        (batch,) = queue.waiting
        assert 1200 < batch.used < 2000
        assert not batch.is_closed
        assert accumulator.take(queue).is_closed
        put(accumulator, b"x")
        assert accumulator.take(queue).count == 1

    def test_and_never_beyond_its_limit(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=300, batch_bytes_max=2000)
        for _ in range(100):
            put(accumulator, b"x" * 100)
        (queue,) = accumulator.busy
        assert all(batch.used <= 2000 for batch in queue.waiting)
        assert all(batch.is_closed for batch in list(queue.waiting)[:-1])

    def test_a_topic_that_takes_less_limits_it(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=300, batch_bytes_max=2000)
        put(accumulator, b"x")
        (queue,) = accumulator.busy
        queue.limit(500)
        for _ in range(20):
            put(accumulator, b"x" * 100)
        assert all(batch.used <= 500 for batch in queue.waiting)
        queue.limit(200)
        assert (queue.batch_bytes, queue.batch_bytes_max) == (200, 200)

    def test_there_is_news_when_a_batch_begins_and_when_it_is_ready(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=1000, batch_bytes_max=5000)
        news = []
        for _ in range(20):
            accumulator.should_wake = False
            put(accumulator, b"x" * 100)
            news.append(accumulator.should_wake)
        assert news[0]
        assert not any(news[1:7])
        assert any(news[7:10])
        assert not any(news[11:])


class TestMemory:
    """Large batches under load: what one had serves the next, and holds only what was written into it."""

    def full(self, accumulator: Any) -> Any:
        """A batch of 20 records that is closed, and another begun soon after one has left."""
        (queue,) = accumulator.topics["t"].partitions
        queue.last_sent_at = 1.0
        for _ in range(21):
            put(accumulator, b"x" * 100)
        assert len(queue.waiting) == 2
        return accumulator.take(queue)

    def test_of_a_delivered_batch_is_used_again(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=300, batch_bytes_max=2300, linger_s=60.0)
        first = self.full(accumulator)
        memory = first.buffer
        accumulator.recycle(first)
        first.settle(0)
        (queue,) = accumulator.topics["t"].partitions
        while queue.open.buffer is not memory:
            put(accumulator, b"y" * 100)
        assert accumulator.spare == []
        put(accumulator, b"z")
        sealed = bytes(queue.open.seal(0, None, False))
        rows = read_rows(sealed, 0, check_crc(sealed))
        assert {row[3] for row in rows} == {b"y" * 100, b"z"}

    def test_of_small_batches_is_not_kept_and_of_many_only_some(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=300, batch_bytes_max=2300, linger_s=60.0)
        put(accumulator, b"x")
        (queue,) = accumulator.topics["t"].partitions
        accumulator.recycle(accumulator.take(queue))
        assert accumulator.spare == []
        for _ in range(50):
            accumulator.recycle(self.full(accumulator))
            queue.close()
            while queue.waiting:
                accumulator.take(queue)
        assert 0 < len(accumulator.spare) < 20

    def test_a_record_larger_than_a_batch_gets_its_own(self, make: Any) -> None:
        accumulator = make(1, batch_bytes=300, batch_bytes_max=2300, linger_s=60.0)
        first = self.full(accumulator)
        kept = memoryview(first.buffer)  # whoever looks at it keeps it from growing
        accumulator.recycle(first)
        put(accumulator, b"w" * 5000)
        (queue,) = accumulator.topics["t"].partitions
        sealed = bytes(queue.waiting[-1].seal(0, None, False))
        assert read_rows(sealed, 0, check_crc(sealed))[0][3] == b"w" * 5000
        assert len(kept) == 2300


class TestGate:
    def test_a_closed_one_takes_nothing(self, make: Any, module: Any) -> None:
        accumulator = make(1)
        accumulator.is_open = False
        with pytest.raises(NotOpen):
            put(accumulator, b"v")
        with pytest.raises(NotOpen):
            accumulator.append_columns(0.0, "t", 0, 0, None, None, None, 7, 0)
        accumulator.is_open = True
        put(accumulator, b"v")

    def test_text_is_taken_and_other_objects_are_not(self, make: Any) -> None:
        accumulator = make(1)
        put(accumulator, "grün", key="ü")
        put(accumulator, bytearray(b"a"), key=memoryview(b"b"))
        (queue,) = accumulator.busy
        assert [row[2:4] for row in rows_of(queue.waiting[0])] == [
            ("ü".encode(), "grün".encode()),
            (b"b", b"a"),
        ]
        for wrong in (5, {"a": 1}, 1.5):
            with pytest.raises(Unwritable, match=type(wrong).__name__):
                put(accumulator, wrong)  # type: ignore[arg-type]
