"""The receive buffer of a frame that arrives in pieces, as large as the frame says it is.

The system allocates a page of memory when it is first written to, so a wrong length costs address space and
nothing else, and no byte is copied while a frame grows. The memory is also returned in parts: to return 80 MB
at once takes the system some milliseconds.
"""

import mmap
from collections.abc import Callable

# Up to here an ordinary piece of memory is cheaper.
ORDINARY_BYTES_MAX = 256 * 1024

# Given back per turn of the loop: some 0.1 ms.
GIVEN_BACK_BYTES = 2 * 1024 * 1024

_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)


class ReceiveBuffer:
    """`view` is all of it; `granted` is how far it may be filled by now."""

    __slots__ = ("_mapped", "granted", "view")

    def __init__(self, size: int, granted: int) -> None:
        """Raises OSError when there are no more addresses."""
        self._mapped: mmap.mmap | None = None
        if size <= ORDINARY_BYTES_MAX:
            self.view = memoryview(bytearray(size))
        else:
            self._mapped = mmap.mmap(-1, size, flags=_FLAGS)
            self.view = memoryview(self._mapped)
        self.granted = granted

    def give_back(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """Frees the buffer, which is not used after the current call."""
        mapped = self._mapped
        if mapped is None or _DONTNEED is None or self.granted <= 2 * GIVEN_BACK_BYTES:
            return  # goes with its last reference
        left = self.granted // mmap.PAGESIZE * mmap.PAGESIZE

        def step() -> None:
            nonlocal left
            if left > GIVEN_BACK_BYTES:
                left -= GIVEN_BACK_BYTES
                mapped.madvise(_DONTNEED, left, GIVEN_BACK_BYTES)
                soon(step)

        soon(step)
