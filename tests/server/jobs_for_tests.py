"""Jobs that a child process can be given: it imports this module by its name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.storage.disk import Disk, write_atomically
from headrace.storage.jobs import JobKind


@dataclass(slots=True)
class Compute:
    """Says who ran it, after doing what it was told."""

    what: str
    kind: JobKind = JobKind.CPU

    def run(self, disk: Disk) -> Any:
        match self.what:
            case "pid":
                return os.getpid(), os.getppid(), os.nice(0)
            case "write":
                write_atomically(disk, "result", b"from the child")
                return disk.list("")
            case "print":
                print("noise on stdout")
                return "quiet"
            case "fail":
                raise OSError(28, "No space left on device")
            case "die":
                os._exit(9)
            case what if what.startswith("read "):
                return Path(what.removeprefix("read ")).read_text()
            case _:
                return self.what


@dataclass(slots=True)
class Return:
    """What a client waits for, and gets back as it is."""

    data: bytes
    kind: JobKind = JobKind.PROMPT

    def run(self, disk: Disk) -> bytes:
        return self.data
