"""What tests fetch or build once, they fetch or build one at a time: several processes run them."""

from __future__ import annotations

import fcntl
import os
import subprocess
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


def install(package: str) -> None:
    """A package of Debian, into the system, which takes root."""
    quietly = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, timeout=300)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    subprocess.run(command, check=True, timeout=600, env=quietly)
