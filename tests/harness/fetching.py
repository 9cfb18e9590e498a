"""What tests fetch or build once, they fetch or build one at a time: several processes run them."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from harness.broker import CACHE


@contextmanager
def alone() -> Iterator[None]:
    """Nobody else is in here meanwhile; what was missing before may be there then."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "fetching.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
