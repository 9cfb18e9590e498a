# cython: language_level=3
# The C types of _flat_structs.py, read by Cython only.
#
# Bounds are not checked by the generated code: each position is compared with the end before it is read, and
# columns are compared in length before they are written.

cimport cython

cdef int _INT16
cdef int _INT32
cdef int _INT64
cdef int _STRING
cdef int _NULLABLE_STRING
cdef long long _INT32_MAX


@cython.locals(buf="const unsigned char*", codes="const unsigned char*", end=Py_ssize_t, fields=Py_ssize_t,
               field=Py_ssize_t, code=int, column=list, columns=list, length="long long",
               tags="long long", _="long long")
cpdef tuple read_columns(bytes message, Py_ssize_t position, long long count, bytes layout, bint is_flexible)

@cython.locals(codes="const unsigned char*", fields=Py_ssize_t, field=Py_ssize_t, count=Py_ssize_t,
               width=Py_ssize_t, made=bytearray, target="unsigned char*", position=Py_ssize_t, row=Py_ssize_t,
               column=list, value="long long")
cpdef bytes write_columns(columns, bytes layout, bint is_flexible)

@cython.locals(value="long long")
cdef long long _int16(const unsigned char* buf, Py_ssize_t position) noexcept
cdef long long _int32(const unsigned char* buf, Py_ssize_t position) noexcept
@cython.locals(value="long long", index=int)
cdef long long _int64(const unsigned char* buf, Py_ssize_t position) noexcept
