# cython: language_level=3
# The C types of _source_column.py, read by Cython only.
#
# Bounds are not checked by the generated code: offsets are when a column is made, and what headers take is
# counted before they are written.

cimport cython

cdef bint COMPILED


cdef class Column:
    cdef public Py_ssize_t row_count
    cdef const long long[::1] offsets
    cdef public bytes data
    cdef long long base
    cdef bytes validity
    cdef Py_ssize_t first_bit

    @cython.locals(row=Py_ssize_t, bound="long long", place="long long")
    cpdef void check(self) except *
    cdef Py_ssize_t start(self, Py_ssize_t row) noexcept
    @cython.locals(bit=Py_ssize_t)
    cdef bint is_valid(self, Py_ssize_t row) noexcept


@cython.locals(
    bounds="const long long[::1]", base="long long", bound="long long", row=Py_ssize_t, place=Py_ssize_t,
    total=Py_ssize_t, encoded=bytearray, target="unsigned char*", ends="long long[::1]", at=Py_ssize_t,
)
cpdef Column encoded_headers(Py_ssize_t row_count, places, Column names, Column values)

@cython.locals(length=Py_ssize_t)
cdef Py_ssize_t _text_bytes(Column column, Py_ssize_t row) noexcept

@cython.locals(start=Py_ssize_t, length=Py_ssize_t, step=Py_ssize_t, data=bytes, source="const unsigned char*")
cdef Py_ssize_t _put_text(unsigned char* target, Py_ssize_t position, Column column, Py_ssize_t row) noexcept

@cython.locals(rest="unsigned long long", length=Py_ssize_t)
cdef Py_ssize_t _varint_bytes(long long value) noexcept

@cython.locals(rest="unsigned long long")
cdef Py_ssize_t _put_varint(unsigned char* target, Py_ssize_t position, long long value) noexcept
