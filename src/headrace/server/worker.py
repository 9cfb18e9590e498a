"""A child process for jobs that compute: compaction, recompression, verification.

`Worker` is the parent's side, used from one thread; run as a program, this module is the child. They exchange
pickles over the child's stdin and stdout, to which nobody else can write. Long bytes go through the pipe as
they are, without holding the interpreter's lock. The child runs with low priority, unless it is told
otherwise, and ends when its parent ends.
"""

import errno
import os
import pickle  # noqa: TID251  # between us and our own child, over a private pipe
import signal
import subprocess
import sys
from typing import Any, BinaryIO

from headrace.server.disk import RealDisk
from headrace.server.paced_disk import Pace, PacedDisk
from headrace.storage.disk import Disk
from headrace.storage.jobs import Job, PacedJob

NICENESS = 10
_PR_SET_PDEATHSIG = 1


class WorkerLost(Exception):
    """The child ended inside a job: killed, out of memory, or a fault in compiled code."""

    exit_code: int = 0


class Worker:
    __slots__ = ("_niceness", "_process")

    def __init__(self, niceness: int = NICENESS) -> None:
        self._niceness = niceness
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, root: str, job: Job) -> Any:
        """Run the job in the child, which is started if there is none; raises what the job raised."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin, (root, job))
            result = _read(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self._process = None
            self._close_pipes(process)
            lost = WorkerLost(f"the worker process ended with exit code {process.wait()} during a job")
            lost.exit_code = process.returncode
            raise lost from None
        if isinstance(result, BaseException):
            raise result
        return result

    def _started(self) -> "subprocess.Popen[bytes]":
        """A child; BlockingIOError when the system has none to give. No disk has failed then."""
        try:
            return subprocess.Popen(
                [sys.executable, "-m", __name__, str(os.getpid()), str(self._niceness)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError as error:
            raise BlockingIOError(errno.EAGAIN, f"no worker process can be started: {error}") from error

    def end(self) -> None:
        """No more jobs: the child sees the end of its input and leaves."""
        process, self._process = self._process, None
        if process is not None:
            self._close_pipes(process)
            process.wait()

    def kill(self) -> None:
        """Its result is not wanted any more: a job's work counts only once it was handed back."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._close_pipes(process)

    @staticmethod
    def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass  # unsent bytes of a job whose child is gone
        process.stdout.close()


def _write(stream: BinaryIO | Any, value: Any) -> None:
    pickle.dump(value, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def _read(stream: BinaryIO | Any) -> Any:
    return pickle.load(stream)  # nosec B301  # a pipe between our own processes


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)


def _paced(disk: Disk, job: Job) -> Disk:
    if isinstance(job, PacedJob) and job.bytes_per_second is not None:
        return PacedDisk(disk, Pace(job.bytes_per_second))
    return disk


def main(parent: int, niceness: int) -> None:
    _die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    os.nice(niceness)
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a job prints must not land among the answers
    disks: dict[str, RealDisk] = {}
    while True:
        try:
            root, job = _read(requests)
        except EOFError:
            return
        result: Any
        try:
            result = job.run(_paced(disks.setdefault(root, RealDisk(root)), job))
        except Exception as error:
            result = error
        _write(answers, result)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
