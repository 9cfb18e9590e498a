# cython: language_level=3
# The C types of _transaction_states.py, read by Cython only.
#
# Bounds are not checked by the generated code: a batch lies inside the chunk before it is opened, and what is
# read of a record lies inside the spans of the cursor.

cimport cython

cimport headrace.protocol.untracked as untracked
from headrace.records._codec cimport Cursor

cdef Py_ssize_t _HEADER_BYTES
cdef Py_ssize_t _LENGTH_OVERHEAD
cdef int _UNUSUAL
cdef long long _BASE_OFFSET_MAX
cdef Py_ssize_t _VALUE_BYTES_MIN
cdef int _STATES
cdef frozenset _NO_PARTITIONS
cdef object _new


@cython.final
cdef class StateReader:
    cdef bytes _chunk
    cdef const unsigned char* _buf
    cdef object _view
    cdef Py_ssize_t _size
    cdef object _kind
    cdef tuple _states
    cdef Cursor _cursor
    cdef readonly Py_ssize_t position
    cdef readonly long long next_offset
    cdef readonly long long items
    cdef long long _left
    cdef long long _offset
    cdef long long _last_offset
    cdef Py_ssize_t _batch_end
    cdef bint _is_damaged
    cdef frozenset _partitions
    cdef frozenset _last_partitions
    cdef bint _is_flexible
    cdef Py_ssize_t _topics_at
    cdef Py_ssize_t _topics_length
    cdef str _topic
    cdef Py_ssize_t _topic_at
    cdef Py_ssize_t _topic_length

    @cython.locals(cursor=Cursor, buf="const unsigned char*", entries=list, states=dict, gone=list,
                   items="long long", offset="long long", at=Py_ssize_t, length="long long")
    cpdef list read(self, long long items_max)

    @cython.locals(buf="const unsigned char*", at=Py_ssize_t, size="long long", end=Py_ssize_t, crc="long long",
                   offset="long long", count="long long")
    cdef bint _open_batch(self) except -1

    @cython.locals(cursor=Cursor, buf="const unsigned char*", at=Py_ssize_t, length="long long")
    cdef object _name(self)

    @cython.locals(cursor=Cursor, buf="const unsigned char*", at=Py_ssize_t, end=Py_ssize_t, is_flexible=bint,
                   producer_id="long long", epoch="long long", timeout_ms="long long", number=int,
                   last_update_ms="long long", start_ms="long long", previous_id="long long", next_id="long long",
                   client_version="long long", tags=int, tag=int, last_tag=int, size=Py_ssize_t)
    cdef object _state(self, object name)

    @cython.locals(buf="const unsigned char*", count="long long", length="long long", indexes="long long",
                   begin=Py_ssize_t, is_comparable=bint, partitions=list, topic=str, place=tuple)
    cdef Py_ssize_t _read_topics(self, Py_ssize_t at, Py_ssize_t end, bint is_flexible) except -2

    cdef bint _read_topic(self, Py_ssize_t at, long long length) except -1


@cython.locals(value="long long")
cdef (long long, Py_ssize_t) _read_count(const unsigned char* buf, Py_ssize_t at, Py_ssize_t end, bint is_flexible) noexcept

@cython.locals(index=Py_ssize_t)
cdef bint _are_equal(const unsigned char* buf, Py_ssize_t first_at, Py_ssize_t second_at, Py_ssize_t length) noexcept

@cython.locals(value="long long")
cdef long long _int16(const unsigned char* buf, Py_ssize_t position) noexcept
cdef long long _int32(const unsigned char* buf, Py_ssize_t position) noexcept
@cython.locals(value="long long", index=int)
cdef long long _int64(const unsigned char* buf, Py_ssize_t position) noexcept
