# cython: language_level=3
# The C types of _intake.py, read by Cython only.

cimport cython

from headrace.records._accumulator cimport Accumulator
from headrace.records._outgoing cimport Delivery


@cython.final
cdef class Intake:
    cdef Accumulator accumulator
    cdef object acquire
    cdef object release
    cdef object wall_ns
    cdef object wake

    @cython.locals(at=Py_ssize_t, stamp="long long", accumulator=Accumulator, delivery=Delivery)
    cpdef take(self, str topic, key, value, headers, partition, timestamp_ms)
