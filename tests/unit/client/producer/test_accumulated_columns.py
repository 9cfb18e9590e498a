"""Rows of tables in the accumulator: the same records as one by one, and what is refused."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from harness.accumulating import put, rows_of
from headrace.client.producer.partitioner import Strategy
from headrace.client.producer.rejections import BufferFull, RecordTooLarge, UnknownPartition


class TestColumns:
    def column(self, module: Any, values: list[bytes | None], first_bit: int = 0) -> Any:
        offsets = array("q", [100])  # as in a part of a larger table
        bits = 0
        for place, value in enumerate(values):
            offsets.append(offsets[-1] + len(value or b""))
            bits |= (value is not None) << (first_bit + place)
        data = b"".join(value or b"" for value in values)
        validity = bits.to_bytes((first_bit + len(values) + 7) // 8, "little")
        return module.Column(len(values), memoryview(offsets), data, 100, validity, first_bit)

    @pytest.mark.parametrize("first_bit", [0, 5])
    def test_columns_become_the_same_batches_as_records(self, make: Any, module: Any, first_bit: int) -> None:
        keys: list[bytes | None] = [None if number % 7 == 0 else b"k%d" % number for number in range(100)]
        values: list[bytes | None] = [None if number % 11 == 0 else b"v" * number for number in range(100)]
        by_column, by_record = make(3, batch_bytes=900), make(3, batch_bytes=900)
        taken, batches = by_column.append_columns(
            0.0,
            "t",
            0,
            100,
            self.column(module, keys, first_bit),
            self.column(module, values, first_bit),
            memoryview(array("q", range(1000, 1100))),
            -1,
            -1,
        )
        assert taken == 100
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            put(by_record, value, key=key, timestamp=1000 + number)

        def content(accumulator: Any) -> Any:
            return {
                queue.partition: [rows_of(batch) for batch in queue.waiting]
                for queue in list(accumulator.busy)
            }

        assert content(by_column) == content(by_record)
        assert by_column.buffered_bytes == by_record.buffered_bytes
        assert sum(batch.count for batch in batches) == 100

    def test_what_does_not_fit_is_left_for_later(self, make: Any, module: Any) -> None:
        values = self.column(module, [b"x" * 100] * 30)
        accumulator = make(1, buffer_bytes=1500, batch_bytes=500)
        taken, batches = accumulator.append_columns(0.0, "t", 0, 30, None, values, None, 5, 0)
        assert 0 < taken < 30
        with pytest.raises(BufferFull):
            accumulator.append_columns(0.0, "t", taken, 30, None, values, None, 5, 0)
        for batch in batches:
            accumulator.take(batch.queue)
            batch.settle(0)
            accumulator.release(batch)
        more, _ = accumulator.append_columns(0.0, "t", taken, 30, None, values, None, 5, 0)
        assert more == taken

    def test_a_row_that_can_never_be_sent_is_told_of_as_the_first(self, make: Any, module: Any) -> None:
        values = self.column(module, [b"x", b"x" * 5000, b"x"])
        accumulator = make(1, request_bytes_max=2000)
        taken, _ = accumulator.append_columns(0.0, "t", 0, 3, None, values, None, 5, 0)
        assert taken == 1
        with pytest.raises(RecordTooLarge):
            accumulator.append_columns(0.0, "t", 1, 3, None, values, None, 5, 0)

    def test_a_column_that_is_not_there_is_null(self, make: Any, module: Any) -> None:
        accumulator = make(1)
        keys = self.column(module, [b"a", None])
        accumulator.append_columns(0.0, "t", 0, 2, keys, None, None, 5, 0)
        (queue,) = accumulator.busy
        assert [row[2:4] for row in rows_of(queue.waiting[0])] == [(b"a", None), (None, None)]

    def test_offsets_that_lie_are_refused(self, module: Any) -> None:
        for offsets in ([0, 5], [0, 3, 2], [0], [-1, 2]):
            with pytest.raises(ValueError, match="offsets"):
                module.Column(max(1, len(offsets) - 1), memoryview(array("q", offsets)), b"abcd")
        with pytest.raises(ValueError, match="bits"):
            module.Column(9, memoryview(array("q", [0] * 10)), b"", 0, b"\xff", 0)

    def test_headers_and_partitions_come_from_columns(self, make: Any, module: Any) -> None:
        """As encode_headers writes them, row by row; −1 leaves the choice to the partitioner."""
        rows: list[tuple[tuple[str, bytes | None], ...]] = [
            (),
            (("a", b"1"), ("ü", None)),
            (("b", b""),),
            (),
            (("c", b"x" * 300),),
        ]
        pairs = [pair for row in rows for pair in row]
        places = array("q", [40])  # as in a part of a larger table
        for row in rows:
            places.append(places[-1] + len(row))
        tails = module.encoded_headers(
            len(rows),
            memoryview(places),
            self.column(module, [name.encode() for name, _ in pairs]),
            self.column(module, [value for _, value in pairs]),
        )
        accumulator = make(3, strategy=Strategy.ROUND_ROBIN)
        values = self.column(module, [b"%d" % number for number in range(len(rows))])
        taken, touched = accumulator.append_columns(
            0.0,
            "t",
            0,
            len(rows),
            None,
            values,
            None,
            7,
            -1,
            tails,
            memoryview(array("q", [2, 1, -1, 2, 0])),
        )
        assert taken == len(rows)
        found = {batch.queue.partition: [(row[3], row[4]) for row in rows_of(batch)] for batch in touched}
        assert found == {
            2: [(b"0", ()), (b"3", ())],
            1: [(b"1", rows[1])],
            0: [(b"2", rows[2]), (b"4", rows[4])],
        }

    def test_rows_before_a_partition_that_does_not_exist_are_taken(self, make: Any, module: Any) -> None:
        accumulator = make(2)
        values = self.column(module, [b"a", b"b", b"c"])
        numbers = memoryview(array("q", [1, 5, 0]))
        more = (None, values, None, 7, -1, None, numbers)
        assert accumulator.append_columns(0.0, "t", 0, 3, *more)[0] == 1
        with pytest.raises(UnknownPartition, match="partition 5"):
            accumulator.append_columns(0.0, "t", 1, 3, *more)
        assert accumulator.append_columns(0.0, "t", 2, 3, *more)[0] == 1

    @pytest.mark.parametrize("fault", [UnknownPartition, RuntimeError])
    def test_rows_before_one_that_the_partitioner_cannot_place_are_taken(
        self, make: Any, module: Any, fault: type[Exception]
    ) -> None:
        """If the call raised instead, its caller would append them again."""

        def partitioner(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
            if value == b"b":
                if fault is RuntimeError:
                    raise RuntimeError("no partition for b")
                return 5
            return 1

        accumulator = make(2, strategy=Strategy.CUSTOM, partitioner=partitioner)
        values = self.column(module, [b"a", b"b", b"c"])
        more = (None, values, None, 7, -1)
        assert accumulator.append_columns(0.0, "t", 0, 3, *more)[0] == 1
        with pytest.raises(fault):
            accumulator.append_columns(0.0, "t", 1, 3, *more)
        assert accumulator.append_columns(0.0, "t", 2, 3, *more)[0] == 1
        (queue,) = accumulator.busy
        assert [row[3] for row in rows_of(queue.waiting[0])] == [b"a", b"c"]

    def test_it_tells_where_in_its_batches_the_rows_lie(self, make: Any, module: Any) -> None:
        accumulator = make(1, batch_bytes=300)
        put(accumulator, b"before")
        taken, touched = accumulator.append_columns(
            0.0, "t", 0, 20, None, self.column(module, [b"v" * 20] * 20), None, 7, 0
        )
        assert taken == 20
        first, *others = touched.values()
        assert first == 1
        assert others
        assert set(others) == {0}

    @pytest.mark.parametrize("places", [[0, 2, 1], [0, 1, 3], [0, 1]])
    def test_headers_out_of_place_are_refused(self, module: Any, places: list[int]) -> None:
        names = self.column(module, [b"a", b"b"])
        with pytest.raises(ValueError):
            module.encoded_headers(2, memoryview(array("q", places)), names, names)

    def test_a_header_needs_a_name(self, module: Any) -> None:
        column = self.column(module, [None])
        with pytest.raises(ValueError, match="no name"):
            module.encoded_headers(1, memoryview(array("q", [0, 1])), column, column)
