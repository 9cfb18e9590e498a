# cython: language_level=3
# The C types of _sink_attempts.py, read by Cython only.
#
# Bounds are not checked by the generated code: the buffer has room for the longest records.

cimport cython

cdef Py_ssize_t _VARINTS_BYTES
cdef Py_ssize_t _HEAD_BYTES


@cython.locals(count=Py_ssize_t, key_length=Py_ssize_t, tail_length=Py_ssize_t, size=Py_ssize_t, places=bytes,
               made=bytearray, target="unsigned char*", position=Py_ssize_t, row=Py_ssize_t, length=Py_ssize_t,
               value_length="long long", offset_delta="long long", number="long long")
cpdef bytes encode_attempts(bytes key, list attempts, list topics, bytes tail, long long first_delta)

cdef Py_ssize_t _varint_size(long long value) noexcept
cdef Py_ssize_t _write_varint(unsigned char* target, Py_ssize_t position, long long value) noexcept

@cython.locals(index=int)
cdef Py_ssize_t _write_int(unsigned char* target, Py_ssize_t position, long long value, int size) noexcept

@cython.locals(index=Py_ssize_t)
cdef Py_ssize_t _copy(unsigned char* target, Py_ssize_t position, const unsigned char* source, Py_ssize_t length) noexcept
