# cython: language_level=3
# The C types of _accumulator.py, read by Cython only.
#
# Bounds are not checked by the generated code: a batch makes room for what a record can take at most before
# the record is written, and a column's offsets are checked when it is made.

cimport cython

from headrace.client.producer._batch cimport Batch, Delivery, PartitionQueue
from headrace.client.producer._source_column cimport Column

cdef long long _INT64_MAX
cdef Py_ssize_t _SPARE_MAX
cdef Py_ssize_t HEADER_BYTES
cdef Py_ssize_t _OVERHEAD_BYTES
cdef int _BY_KEY
cdef int _ROUND_ROBIN
cdef int _CUSTOM
cdef bytes _NO_HEADERS


@cython.final
cdef class TopicQueues:
    cdef public str topic
    cdef public list partitions
    cdef public list candidates
    cdef public PartitionQueue sticky
    cdef public Py_ssize_t sticky_bytes
    cdef public Py_ssize_t turn


cpdef unsigned int murmur2(bytes data)

@cython.locals(mask="unsigned int", multiplier="unsigned int", h="unsigned int", k="unsigned int", at=Py_ssize_t, end=Py_ssize_t)
cdef unsigned int _murmur2(const unsigned char* source, Py_ssize_t start, Py_ssize_t length) noexcept


@cython.final
cdef class Accumulator:
    cdef public object waiter
    cdef public object choose_sticky
    cdef public int strategy
    cdef public object partitioner
    cdef public Py_ssize_t batch_bytes
    cdef public Py_ssize_t batch_bytes_max
    cdef public double linger_s
    cdef public object clock
    cdef public Py_ssize_t buffer_bytes
    cdef public Py_ssize_t request_bytes_max
    cdef public Py_ssize_t buffered_bytes
    cdef public bint is_open
    cdef public bint should_wake
    cdef public list spare
    cdef public dict topics
    cdef public dict busy

    @cython.locals(
        topic_queues=TopicQueues, queue=PartitionQueue, batch=Batch, delivery=Delivery, held_key=bytes, held_value=bytes, tail=bytes,
        key_length=Py_ssize_t, value_length=Py_ssize_t, size=Py_ssize_t,
        key_pointer="const unsigned char*", value_pointer="const unsigned char*", tail_pointer="const unsigned char*",
    )
    cpdef Delivery append(
        self, double now, str topic, key, value, headers, Py_ssize_t partition, long long timestamp_ms
    )
    @cython.locals(
        topic_queues=TopicQueues, queue=PartitionQueue, batch=Batch, last=Batch, column=Column, row=Py_ssize_t, taken=Py_ssize_t, size=Py_ssize_t,
        key_data=bytes, value_data=bytes, tail_data=bytes, key_at=Py_ssize_t, value_at=Py_ssize_t, tail_at=Py_ssize_t,
        key_length=Py_ssize_t, value_length=Py_ssize_t, tail_length=Py_ssize_t, touched=dict,
        timestamp_column="const long long[::1]", partition_column="const long long[::1]",
        key_pointer="const unsigned char*", value_pointer="const unsigned char*", tail_pointer="const unsigned char*",
    )
    cpdef tuple append_columns(
        self, double now, str topic, Py_ssize_t first, Py_ssize_t row_count, Column keys, Column values,
        timestamps, long long timestamp_ms, Py_ssize_t partition, Column tails=*, partitions=*,
    )
    @cython.locals(topic_queues=TopicQueues)
    cdef TopicQueues _queues_of(self, str topic)
    cdef PartitionQueue _queue_of(self, TopicQueues topic_queues, Py_ssize_t partition)
    cdef bint _accepts(self, Py_ssize_t size, long long timestamp_ms) noexcept
    cdef void _check(self, Py_ssize_t size, long long timestamp_ms) except *
    @cython.locals(partitions=Py_ssize_t, chosen=Py_ssize_t, queue=PartitionQueue, sticky=PartitionQueue)
    cdef PartitionQueue _choose(
        self, TopicQueues topic_queues, const unsigned char* key, Py_ssize_t key_at, Py_ssize_t key_length, Py_ssize_t size,
        key_object, value_object,
    )
    @cython.locals(batch=Batch)
    cdef bint _turn_is_over(self, TopicQueues topic_queues, PartitionQueue queue, Py_ssize_t size) except -1
    @cython.locals(batch=Batch)
    cdef Batch _open_batch(self, PartitionQueue queue, double now, Py_ssize_t size)
    cdef void _note_if_ready(self, Batch batch, Py_ssize_t size) noexcept
    @cython.locals(queue=PartitionQueue, expected=Py_ssize_t)
    cdef void _reuse_buffer(self, Batch batch) except *
    cpdef void recycle(self, Batch batch) except *
    cpdef void release(self, Batch batch) except *


cdef bytes _as_bytes(object given)
