"""Job protocol: long work as a value of paths and numbers, so that it can run in a thread, in a child
process, or when the simulator chooses. What a job did counts only once its result was handed back.
"""

from enum import Enum
from typing import Any, Protocol, runtime_checkable

from headrace.storage.disk import Disk


class JobKind(Enum):
    IO = "io"  # spends its time in calls that release the interpreter: fsync, pread, unlink
    CPU = "cpu"  # pure Python or compression: runs in a child process
    PATIENT = (
        "patient"  # computes, with the interpreter released (a hash): in a thread that lets others go first
    )
    PROMPT = "prompt"  # the same, but short, and a client waits: another child than that of the long ones


class Job(Protocol):
    @property
    def kind(self) -> JobKind: ...

    def run(self, disk: Disk, /) -> Any:
        """Do it; the result (or the OSError raised) is given to the caller that ordered it."""
        ...


@runtime_checkable
class PacedJob(Protocol):
    """A job with a limit on its reads and writes (None: no limit), which the runner of the job enforces."""

    bytes_per_second: float | None
