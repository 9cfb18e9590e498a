"""The garbage collector and the C library's allocator, set for a process that serves for months.

Requests hardly make cycles, and what a start makes stays for ever. So the collector runs rarely, from the
first line on: with Python's own threshold a start would spend 8 % of its time on looking for garbage among
the modules that it loads.
"""

import gc

# A collection after this many new containers that their count did not free; a full one after twenty million.
THRESHOLDS = (10_000, 20, 100)

# Buffers of this size and more are the system's again once freed; mallopt's number for that (malloc.h).
BIG_BUFFER_BYTES = 512 * 1024
M_MMAP_THRESHOLD = -3


def collect_rarely() -> None:
    gc.set_threshold(*THRESHOLDS)


def freeze_start() -> None:
    """Keeps what was made until now out of every collection: 26,000 objects, which take 9 ms (with 10,000
    partitions 15 ms).
    """
    collect_rarely()
    gc.freeze()


def return_big_buffers() -> None:
    """Lets the C library give big buffers back to the system when they are freed.

    glibc raises the size from which it does so with every one it has seen freed: thirty clients that stopped
    reading their answers would leave 120 MB behind for ever. A fixed size turns that off.
    """
    import ctypes  # takes some milliseconds: nothing that a start should wait for

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have no such memory
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, BIG_BUFFER_BYTES)
