"""Two processes never serve from one log directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.server.lock import DirectoryInUse, DirectoryLock

HOLD = """
import sys
from headrace.server.lock import DirectoryLock
lock = DirectoryLock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_holder_is_refused_by_name(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    with pytest.raises(DirectoryInUse) as caught:
        DirectoryLock(str(tmp_path))
    assert f"{tmp_path} is in use by process {os.getpid()}" in str(caught.value)
    lock.release()
    lock.release()
    DirectoryLock(str(tmp_path)).release()


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder.stdin, holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryInUse, match=f"process {holder.pid}"):
            DirectoryLock(str(tmp_path))
        holder.kill()
        holder.wait()
    DirectoryLock(str(tmp_path)).release()
