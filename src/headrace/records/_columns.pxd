# cython: language_level=3
# The C types of _columns.py, read by Cython only.
#
# Bounds are not checked by the generated code: a batch makes room for what its bytes can hold at most before
# the first of its records is written.

cimport cython

from cpython.bytearray cimport PyByteArray_FromStringAndSize

from headrace.records._codec cimport Cursor

cdef bint COMPILED
cdef long long _INT32_MAX


@cython.final
cdef class ByteColumn:
    cdef readonly Py_ssize_t capacity
    cdef readonly int[::1] places
    cdef readonly bytearray bits
    cdef readonly bytearray data
    cdef readonly Py_ssize_t used
    cdef readonly Py_ssize_t null_count

    @cython.locals(missing=Py_ssize_t, grown=bytearray)
    cdef void reserve(self, Py_ssize_t rows, Py_ssize_t size) except *


@cython.final
cdef class Columns:
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t row_count
    cdef readonly dict topics
    cdef readonly int[::1] topic_numbers
    cdef readonly int[::1] partitions
    cdef readonly long long[::1] offsets
    cdef readonly long long[::1] timestamps
    cdef readonly bytearray timestamp_types
    cdef readonly Py_ssize_t untimed_count
    cdef readonly ByteColumn keys
    cdef readonly ByteColumn values
    cdef readonly int[::1] header_places
    cdef readonly Py_ssize_t header_count
    cdef readonly ByteColumn header_keys
    cdef readonly ByteColumn header_values

    @cython.locals(used="long long")
    cpdef bint has_room(self, Py_ssize_t size) except -1
    @cython.locals(
        cursor=Cursor, size=Py_ssize_t, topic_number=int, buf="const unsigned char*",
        topic_column="int[::1]", partition_column="int[::1]", offset_column="long long[::1]", timestamp_column="long long[::1]",
        type_column="unsigned char*", header_column="int[::1]",
        key_column="int[::1]", key_bits="unsigned char*", key_data="unsigned char*", key_used=Py_ssize_t, null_keys=Py_ssize_t,
        value_column="int[::1]", value_bits="unsigned char*", value_data="unsigned char*", value_used=Py_ssize_t, null_values=Py_ssize_t,
        header_count=Py_ssize_t, null_headers=Py_ssize_t, untimed=Py_ssize_t, row=Py_ssize_t, _="long long", offset="long long", length=Py_ssize_t, bit="unsigned char",
    )
    cpdef void add(
        self, bytes records, long long count, long long base_offset, long long base_timestamp, long long append_time,
        str topic, int partition, long long start_offset,
    ) except *
    cpdef void reserve(self, Py_ssize_t rows, Py_ssize_t size) except *
    @cython.locals(
        rows=Py_ssize_t, size=Py_ssize_t, nulls=Py_ssize_t, header_keys=ByteColumn, header_values=ByteColumn, buf="const unsigned char*",
        key_used=Py_ssize_t, value_used=Py_ssize_t, key_data="unsigned char*", value_data="unsigned char*", bits="unsigned char*",
        key_column="int[::1]", value_column="int[::1]", row=Py_ssize_t, bit="unsigned char", length=Py_ssize_t,
    )
    cdef Py_ssize_t _add_headers(self, Cursor cursor, Py_ssize_t first) except -1


cdef inline bytearray _unset(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)

cdef bytearray _unset_bytes(Py_ssize_t size)

@cython.locals(step=Py_ssize_t)
cdef void _copy(unsigned char* target, Py_ssize_t at, const unsigned char* source, Py_ssize_t start, Py_ssize_t length) noexcept
