# cython: language_level=3
# The C types of _messages.py, read by Cython only.
#
# Bounds are not checked by the generated code: a cursor's spans lie inside the bytes that it walks over.

cimport cython

from headrace.records._codec cimport Cursor

cdef extern from "Python.h":
    bint PyObject_IS_GC(object held)
    bint PyObject_GC_IsTracked(object held)
    void PyObject_GC_Track(object held)
    void PyObject_GC_UnTrack(object held)

cdef bint COMPILED

cdef tuple _NO_HEADERS
cdef tuple _TYPES


@cython.final
cdef class Message:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly long long offset
    cdef readonly long long timestamp_ms
    cdef readonly int leader_epoch
    cdef object _key
    cdef object _value
    cdef int _timestamp_type
    cdef int _header_count
    cdef bytes _header_source
    cdef tuple _headers

    cpdef tuple _fields(self)
    cdef void _track(self, object held) except *


@cython.final
cdef class Unread:
    cdef Cursor cursor
    cdef readonly bytes records
    cdef readonly Py_ssize_t left
    cdef long long base_offset
    cdef long long append_time
    cdef long long start_offset
    cdef str topic
    cdef int partition
    cdef int leader_epoch

    @cython.locals(
        cursor=Cursor, buf="const unsigned char*", topic=str, message=Message, taken=Py_ssize_t, offset="long long",
        at=Py_ssize_t, length=Py_ssize_t,
    )
    cpdef void take(self, list messages, Py_ssize_t count_max) except *
