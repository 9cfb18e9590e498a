# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records of many batches, of any partitions, as columns in Arrow's layout; no Python object per record.

Like _codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it. A batch is
added whole or, if it is damaged, not at all. Byte strings have 32-bit places, as Arrow's `binary` does:
`has_room` says whether a batch still fits, and who needs more begins another set of columns.
"""

from headrace.records._codec import Cursor, check_base_offset

COMPILED = not __file__.endswith(".py")

_INT32_MAX = 0x7FFFFFFF


class ByteColumn:
    """Byte strings one behind the other: row i lies from places[i] to places[i + 1], null where its bit is 0.

    Invariant: there are places and bits for `capacity` rows.
    """

    __slots__ = ("bits", "capacity", "data", "null_count", "places", "used")

    def __init__(self, rows: int, size: int) -> None:
        self.capacity = rows
        self.places = _numbers("i", 4 * (rows + 1))
        self.places[0] = 0
        self.bits = _unset_bytes((rows + 7) // 8)
        self.data = _unset_bytes(size)
        self.used = 0  # of the data
        self.null_count = 0

    def reserve(self, rows: int, size: int) -> None:
        """Makes room for so many rows in all, and so many bytes more."""
        if rows > self.capacity:
            self.capacity = max(rows, 2 * self.capacity)
            self.places = _grown(self.places, "i", 4 * (self.capacity + 1))
            self.bits.extend(bytes((self.capacity + 7) // 8 - len(self.bits)))
        missing = self.used + size - len(self.data)
        if missing > 0 and self.used == 0:
            self.data = _unset_bytes(size)  # nothing is there to be kept
        elif missing > 0:
            grown = _unset_bytes(
                len(self.data) + max(missing, min(len(self.data), _INT32_MAX - len(self.data)))
            )
            grown[: self.used] = memoryview(self.data)[: self.used]
            self.data = grown


class Columns:
    """The records in the order in which they were added.

    Invariant: every column has room for `capacity` rows, and `row_count` of them are filled.
    """

    __slots__ = (
        "capacity",
        "header_count",
        "header_keys",
        "header_places",
        "header_values",
        "keys",
        "offsets",
        "partitions",
        "row_count",
        "timestamp_types",
        "timestamps",
        "topic_numbers",
        "topics",
        "untimed_count",
        "values",
    )

    def __init__(self, rows: int = 0, size: int = 0) -> None:
        """With room for so many rows, and so many bytes of values; it grows as needed."""
        self.capacity = rows
        self.row_count = 0
        self.topics: dict[str, int] = {}  # name → its number
        self.topic_numbers = _numbers("i", 4 * rows)
        self.partitions = _numbers("i", 4 * rows)
        self.offsets = _numbers("q", 8 * rows)
        self.timestamps = _numbers("q", 8 * rows)
        self.timestamp_types = _unset_bytes(rows)
        self.untimed_count = 0  # how many have a timestamp below 0, which is none
        self.keys = ByteColumn(rows, 0)
        self.values = ByteColumn(rows, size)
        # row i has the headers from header_places[i] to header_places[i + 1]
        self.header_places = _numbers("i", 4 * (rows + 1))
        self.header_places[0] = 0
        self.header_count = 0
        self.header_keys = ByteColumn(0, 0)
        self.header_values = ByteColumn(0, 0)

    def has_room(self, size: int) -> bool:
        """Whether records of so many bytes can be added without any place passing 32 bits."""
        used = max(self.keys.used, self.values.used, self.header_keys.used, self.header_values.used)
        return used + size <= _INT32_MAX

    def add(
        self,
        records: bytes,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int,
        topic: str,
        partition: int,
        start_offset: int,
    ) -> None:
        """The records of one batch from `start_offset` on; an `append_time` ≥ 0 goes for all of them."""
        check_base_offset(base_offset)
        cursor = Cursor(records, count, base_timestamp)
        size = len(records)
        if not self.has_room(size):
            raise ValueError(f"no room for {size} bytes")
        self.reserve(self.row_count + count, size)
        self.keys.reserve(self.row_count + count, size)
        topic_number = self.topics.setdefault(topic, len(self.topics))
        buf = records
        topic_column = self.topic_numbers
        partition_column = self.partitions
        offset_column = self.offsets
        timestamp_column = self.timestamps
        type_column = self.timestamp_types
        header_column = self.header_places
        key_column = self.keys.places
        key_bits = self.keys.bits
        key_data = self.keys.data
        key_used = self.keys.used
        null_keys = 0
        value_column = self.values.places
        value_bits = self.values.bits
        value_data = self.values.data
        value_used = self.values.used
        null_values = 0
        header_count = self.header_count
        null_headers = 0
        untimed = 0
        row = self.row_count
        for _ in range(count):
            cursor.advance()
            offset = base_offset + cursor.offset_delta
            if offset < start_offset:
                continue
            bit = 1 << (row & 7)
            topic_column[row] = topic_number
            partition_column[row] = partition
            offset_column[row] = offset
            if append_time < 0:
                timestamp_column[row] = cursor.timestamp
                type_column[row] = 0
                if cursor.timestamp < 0:
                    untimed += 1
            else:
                timestamp_column[row] = append_time
                type_column[row] = 1
            length = cursor.key_length
            if length >= 0:
                _copy(key_data, key_used, buf, cursor.key_at, length)
                key_used += length
                key_bits[row >> 3] |= bit
            else:
                key_bits[row >> 3] &= ~bit
                null_keys += 1
            length = cursor.value_length
            if length >= 0:
                _copy(value_data, value_used, buf, cursor.value_at, length)
                value_used += length
                value_bits[row >> 3] |= bit
            else:
                value_bits[row >> 3] &= ~bit
                null_values += 1
            if cursor.header_count:
                null_headers += self._add_headers(cursor, header_count)
                header_count += cursor.header_count
            row += 1
            key_column[row] = key_used
            value_column[row] = value_used
            header_column[row] = header_count
        cursor.finish()
        # nothing counts before here, so that a damaged batch leaves no trace
        self.keys.used = key_used
        self.keys.null_count += null_keys
        self.values.used = value_used
        self.values.null_count += null_values
        self.untimed_count += untimed
        self.header_keys.used = self.header_keys.places[header_count]
        self.header_values.used = self.header_values.places[header_count]
        self.header_values.null_count += null_headers
        self.header_count = header_count
        self.row_count = row

    def reserve(self, rows: int, size: int) -> None:
        """Makes room for so many rows in all, and so many bytes of values more."""
        self.keys.reserve(rows, 0)
        self.values.reserve(rows, size)
        if rows > self.capacity:
            self.capacity = max(rows, 2 * self.capacity)
            self.topic_numbers = _grown(self.topic_numbers, "i", 4 * self.capacity)
            self.partitions = _grown(self.partitions, "i", 4 * self.capacity)
            self.offsets = _grown(self.offsets, "q", 8 * self.capacity)
            self.timestamps = _grown(self.timestamps, "q", 8 * self.capacity)
            self.header_places = _grown(self.header_places, "i", 4 * (self.capacity + 1))
            self.timestamp_types.extend(bytes(self.capacity - len(self.timestamp_types)))

    def _add_headers(self, cursor: Cursor, first: int) -> int:
        """The headers of the cursor's record, as rows from `first` on; gives how many have no value."""
        rows = first + cursor.header_count
        size = cursor.position - cursor.headers_at
        header_keys = self.header_keys
        header_values = self.header_values
        nulls = 0
        key_used = header_keys.places[first]
        value_used = header_values.places[first]
        header_keys.used = key_used  # of this batch too, until the next record
        header_values.used = value_used
        header_keys.reserve(rows, size)
        header_values.reserve(rows, size)
        buf = cursor.buf
        key_data = header_keys.data
        value_data = header_values.data
        bits = header_values.bits
        key_column = header_keys.places
        value_column = header_values.places
        for row in range(first, rows):
            cursor.next_header()
            bit = 1 << (row & 7)
            length = cursor.header_key_length
            _copy(key_data, key_used, buf, cursor.header_key_at, length)
            key_used += length
            length = cursor.header_value_length
            if length >= 0:
                _copy(value_data, value_used, buf, cursor.header_value_at, length)
                value_used += length
                bits[row >> 3] |= bit
            else:
                bits[row >> 3] &= ~bit
                nulls += 1
            key_column[row + 1] = key_used
            value_column[row + 1] = value_used
        return nulls


def _unset_bytes(size: int) -> bytearray:
    """So many bytes, to be written before they are read: to clear them first would cost as much again."""
    if COMPILED:
        return _unset(size)  # type: ignore[name-defined,no-any-return]  # noqa: F821
    return bytearray(size)


def _numbers(kind: str, size: int) -> "memoryview[int]":
    """Room for numbers, which have no values yet."""
    return memoryview(_unset_bytes(size)).cast(kind)  # type: ignore[call-overload,no-any-return]


def _grown(column: "memoryview[int]", kind: str, size: int) -> "memoryview[int]":
    """The same numbers, with so many bytes in all."""
    grown = _numbers(kind, size)
    held = memoryview(column)
    if len(held):
        memoryview(grown)[: len(held)] = held
    return grown


def _copy(target: bytearray, at: int, source: bytes, start: int, length: int) -> None:
    if COMPILED:
        for step in range(length):  # becomes a memcpy
            target[at + step] = source[start + step]
    else:
        target[at : at + length] = source[start : start + length]
