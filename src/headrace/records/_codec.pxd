# cython: language_level=3
# The C types of _codec.py, read by Cython only.
#
# Bounds are not checked by the generated code: _codec.py checks each position itself, before it reads.

cimport cython

cdef long long _INT32_MAX
cdef long long _INT64_MAX
cdef long long _INT64_MIN


@cython.locals(value="unsigned long long", byte="unsigned long long", shift=int)
cdef inline (long long, Py_ssize_t) _read_varint(const unsigned char* buf, Py_ssize_t position, Py_ssize_t end, int bytes_max) noexcept


cdef class Cursor:
    cdef bytes records
    cdef const unsigned char* buf
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef long long base_timestamp
    cdef long long delta_min
    cdef long long delta_max
    cdef long long timestamp
    cdef long long offset_delta
    cdef Py_ssize_t key_at
    cdef long long key_length
    cdef Py_ssize_t value_at
    cdef long long value_length
    cdef Py_ssize_t headers_at
    cdef long long header_count
    cdef Py_ssize_t header_key_at
    cdef long long header_key_length
    cdef Py_ssize_t header_value_at
    cdef long long header_value_length

    cdef void begin(self, Py_ssize_t position, Py_ssize_t end, long long base_timestamp) noexcept
    @cython.locals(buf="const unsigned char*", position=Py_ssize_t, end=Py_ssize_t, byte="long long", number="long long")
    cdef bint advance(self) except 0
    @cython.locals(number="long long", position=Py_ssize_t)
    cdef void next_header(self) except *
    cdef void finish(self) except *


@cython.locals(number="long long", _="long long")
cdef Py_ssize_t _skip_headers(const unsigned char* buf, Py_ssize_t position, Py_ssize_t end, long long count) except -1

@cython.locals(buf="const unsigned char*", end=Py_ssize_t, number="long long", headers=list, _="long long")
cpdef tuple decode_headers(bytes records, Py_ssize_t position, long long count)

@cython.locals(cursor=Cursor, buf="const unsigned char*", rows=list, headers=tuple, no_headers=tuple,
               at=Py_ssize_t, length="long long", timestamp="long long", _="long long")
cpdef list decode_rows(bytes records, long long count, long long base_offset, long long base_timestamp, long long append_time)

@cython.locals(cursor=Cursor, buf="const unsigned char*", keys=list, at=Py_ssize_t, length="long long", _="long long")
cpdef list decode_keys(bytes records, long long count, long long base_offset)

@cython.locals(cursor=Cursor, _="long long")
cpdef tuple first_from(bytes records, long long count, long long base_offset, long long base_timestamp, long long target)

@cython.locals(cursor=Cursor, timestamp="long long", offset_delta="long long", index="long long")
cpdef tuple latest(bytes records, long long count, long long base_offset, long long base_timestamp)

@cython.locals(cursor=Cursor, timestamp="long long", index="long long")
cpdef long long validate(bytes records, long long count, long long base_timestamp, bint keys_required) except? -1

@cython.locals(parts=list, offset_delta="long long", timestamp="long long")
cpdef bytes encode(rows, long long base_timestamp)

@cython.locals(parts=list, offset="long long", timestamp="long long")
cpdef bytes encode_at(rows, long long base_offset, long long base_timestamp)

@cython.locals(scratch=bytearray, target="unsigned char*", key_length="long long", value_length="long long",
               middle=Py_ssize_t, after=Py_ssize_t, length=Py_ssize_t, size="long long", head=bytes, value_head=bytes, tail=bytes)
cdef void _append(list parts, long long timestamp_delta, long long offset_delta, key, value, headers) except *

@cython.locals(scratch=bytearray, target="unsigned char*", length=Py_ssize_t, parts=list)
cpdef bytes encode_headers(headers)

@cython.locals(rest="unsigned long long")
cdef Py_ssize_t _write_varint(unsigned char* target, Py_ssize_t position, long long value) noexcept

cpdef void check_base_offset(long long base_offset) except *
cdef void _check_timestamp(long long timestamp, long long base_timestamp) except *
