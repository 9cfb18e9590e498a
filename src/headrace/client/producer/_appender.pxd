# cython: language_level=3
# The C types of _appender.py, read by Cython only.

cimport cython

from headrace.client.producer._accumulator cimport Accumulator
from headrace.client.producer._batch cimport Delivery


@cython.final
cdef class Appender:
    cdef Accumulator accumulator
    cdef object acquire
    cdef object release
    cdef object wall_ns
    cdef object wake
    cdef public bint has_woken

    @cython.locals(at=Py_ssize_t, stamp="long long", accumulator=Accumulator, delivery=Delivery, should_wake=bint)
    cpdef append(self, str topic, key, value, headers, partition, timestamp_ms)


cdef class BlockingSend:
    cdef public Appender _appender
    cdef public bint _needs_preparation
