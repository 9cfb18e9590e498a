# cython: language_level=3
# The C types of _batch.py, read by Cython only.
#
# Bounds are not checked by the generated code: `reserve` makes room for what a record can take at most before
# the record is written.

cimport cython

cdef bint COMPILED
cdef Py_ssize_t _OVERHEAD_BYTES
cdef Py_ssize_t _FIRST_BUFFER_BYTES
cdef bytes NO_HEADERS


@cython.final
cdef class Delivery:
    cdef public Batch batch
    cdef public Py_ssize_t index
    cdef public long long timestamp_ms

    @cython.locals(batch=Batch, part=Batch, index=Py_ssize_t)
    cdef tuple _locate(self)


@cython.final
cdef class Batch:
    cdef public PartitionQueue queue
    cdef public double created_at
    cdef public bytearray buffer
    cdef public Py_ssize_t used
    cdef public Py_ssize_t ready_bytes
    cdef public Py_ssize_t count
    cdef public Py_ssize_t record_bytes
    cdef public long long base_timestamp
    cdef public long long max_timestamp
    cdef public int codec
    cdef public bint is_closed
    cdef public int attempts
    cdef public double retry_at
    cdef public long long producer_id
    cdef public int producer_epoch
    cdef public long long base_sequence
    cdef public bint is_settled
    cdef public long long base_offset
    cdef public long long append_time_ms
    cdef public object error
    cdef public dict record_errors
    cdef public list parts
    cdef public object listeners

    @cython.locals(needed=Py_ssize_t, length=Py_ssize_t, grown=Py_ssize_t)
    cpdef void reserve(self, Py_ssize_t size) except *
    @cython.locals(delta="long long", size=Py_ssize_t, target="unsigned char*", at=Py_ssize_t, written=Py_ssize_t)
    cdef Py_ssize_t write(
        self, long long timestamp_ms,
        const unsigned char* key, Py_ssize_t key_at, Py_ssize_t key_length,
        const unsigned char* value, Py_ssize_t value_at, Py_ssize_t value_length,
        const unsigned char* tail, Py_ssize_t tail_at, Py_ssize_t tail_length,
    ) except -1


@cython.final
cdef class PartitionQueue:
    cdef public str topic
    cdef public int partition
    cdef public Py_ssize_t batch_bytes
    cdef public Py_ssize_t batch_bytes_max
    cdef public double last_sent_at
    cdef public Py_ssize_t last_batch_bytes
    cdef public object waiter
    cdef public object waiting
    cdef public Batch open
    cdef public bint is_available

    cpdef void close(self) except *


@cython.locals(
    batch=Batch, held_key=bytes, held_value=bytes, tail=bytes, key_length=Py_ssize_t, value_length=Py_ssize_t, size=Py_ssize_t,
    timestamp_ms="long long",
    key_pointer="const unsigned char*", value_pointer="const unsigned char*", tail_pointer="const unsigned char*",
)
cpdef Batch rebatch(PartitionQueue queue, double created_at, records)

@cython.locals(step=Py_ssize_t)
cdef void _copy(unsigned char* target, Py_ssize_t at, const unsigned char* source, Py_ssize_t start, Py_ssize_t length) noexcept

@cython.locals(rest="unsigned long long", length=Py_ssize_t)
cdef Py_ssize_t _varint_bytes(long long value) noexcept

@cython.locals(rest="unsigned long long")
cdef Py_ssize_t _put_varint(unsigned char* target, Py_ssize_t position, long long value) noexcept
