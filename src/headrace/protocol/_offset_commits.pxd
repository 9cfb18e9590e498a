# cython: language_level=3
# The C types of _offset_commits.py, read by Cython only.
#
# Bounds are not checked by the generated code: columns are compared in length, the buffer has room for the
# longest records, and what is read lies inside the spans of the cursor.

cimport cython

cimport headrace.protocol.untracked as untracked
from headrace.records._codec cimport Cursor

cdef bytes _NO_TOPIC_ID
cdef Py_ssize_t _NAME_BYTES_MAX
cdef Py_ssize_t _VARINTS_BYTES


@cython.locals(count=Py_ssize_t, has_expiry=bint, key=bytes, tail=bytes, texts=list, text_bytes=Py_ssize_t,
               encoded=bytes, key_length=Py_ssize_t, tail_length=Py_ssize_t, made=bytearray,
               target="unsigned char*", position=Py_ssize_t, row=Py_ssize_t, length=Py_ssize_t,
               offset_delta="long long", value_length="long long", offset="long long")
cpdef bytes encode_commits(bytes group, bytes topic, bytes topic_id, list partitions, list offsets,
                           list leader_epochs, list metadata, commit_ms, expires_ms, long long first_delta)

@cython.locals(kept=dict, row=Py_ssize_t)
cpdef dict committed_by_partition(bytes topic_id, list partitions, list offsets, list leader_epochs, list metadata,
                                  commit_ms, expires_ms)


@cython.final
cdef class CommitReader:
    cdef bytes _records
    cdef const unsigned char* _buf
    cdef Cursor _cursor
    cdef long long _base_offset
    cdef long long _from_offset
    cdef long long _left
    cdef long long _partition
    cdef bytes _topic_id
    cdef object _commit_ms
    cdef long long _commit_ms_read

    @cython.locals(cursor=Cursor, buf="const unsigned char*", entries=list, kept=dict, names_at=Py_ssize_t,
                   names_length=Py_ssize_t, offset="long long", length="long long", at=Py_ssize_t, names=tuple)
    cpdef list read(self, long long records_max)

    @cython.locals(at=Py_ssize_t, length="long long", topic_at=Py_ssize_t, topic_length="long long")
    cdef tuple _names(self)

    @cython.locals(cursor=Cursor, buf="const unsigned char*", at=Py_ssize_t, end=Py_ssize_t, length="long long",
                   version=int, offset="long long", leader_epoch="long long", commit_ms="long long",
                   expires_ms="long long", topic_id=bytes)
    cdef tuple _committed(self)


@cython.locals(gone=list, committed=tuple)
cpdef list gone_partitions(dict kept, topic_id)

@cython.locals(index=Py_ssize_t)
cdef bint _are_equal(const unsigned char* first, Py_ssize_t first_at, const unsigned char* second, Py_ssize_t second_at,
                     Py_ssize_t length) noexcept

cdef Py_ssize_t _varint_size(long long value) noexcept
cdef Py_ssize_t _write_varint(unsigned char* target, Py_ssize_t position, long long value) noexcept
cdef Py_ssize_t _write_int32(unsigned char* target, Py_ssize_t position, long long value) noexcept

@cython.locals(index=Py_ssize_t)
cdef Py_ssize_t _copy(unsigned char* target, Py_ssize_t position, const unsigned char* source, Py_ssize_t length) noexcept

@cython.locals(value="long long")
cdef long long _int16(const unsigned char* buf, Py_ssize_t position) noexcept
cdef long long _int32(const unsigned char* buf, Py_ssize_t position) noexcept
@cython.locals(value="long long", index=int)
cdef long long _int64(const unsigned char* buf, Py_ssize_t position) noexcept
