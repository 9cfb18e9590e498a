# cython: language_level=3
# What compiled modules call: see untracked.py.

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)


cdef inline void untrack(object values) noexcept:
    PyObject_GC_UnTrack(values)
