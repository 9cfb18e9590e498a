"""The process of one run: `python -m headrace.jobs.child`, which a runner starts.

It does what the task says and reports on its stdout. SIGTERM asks it to stop after its batch. If the runner
dies, the child ends at once: whatever it was doing, another run does again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

from headrace.jobs.errors import fault_of
from headrace.jobs.file import module_of, parse_options
from headrace.jobs.messages import Finished, Reported, Task, encode_message, read_task
from headrace.jobs.progress import Progress
from headrace.jobs.work import Work
from headrace.machines.jobs.schedule import Continuous

RUNNER_IS_GONE = 3  # exit code


def main() -> None:
    answers = _Answers()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the runner
    task = read_task(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_runner, daemon=True).start()
    answers.say(perform(task, stopping, answers.say))


def perform(task: Task, stopping: threading.Event, say: Callable[[Reported], None]) -> Finished:
    """Do the task; `say` takes the reports."""

    def send(progress: Progress) -> None:
        say(Reported(progress))

    definition = task.definition
    work = Work(
        definition.name,
        task.run,
        task.generation,
        task.topic,
        task.clients,
        send,
        stopping.is_set,
        is_continuous=isinstance(definition.schedule, Continuous),
    )
    try:
        options = parse_options(definition, f"job {definition.name}")
        is_done: bool = module_of(definition.kind).run(options, work)
    except Exception as error:
        fault = fault_of(error)
        if fault.is_retriable:
            traceback.print_exc(file=sys.stderr)
        work.report(is_due=True)
        return Finished(fault, is_done=False)
    work.report(is_due=True)
    return Finished(is_done=is_done)


class _Answers:
    """The pipe to the runner, which was stdout. What libraries print goes to stderr."""

    def __init__(self) -> None:
        self._pipe = os.fdopen(os.dup(1), "wb")
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def say(self, message: Reported | Finished) -> None:
        with self._lock:
            self._pipe.write(encode_message(message))
            self._pipe.flush()


def _end_with_runner() -> None:
    while os.read(0, 4096):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with what it started, such as a JVM
    os._exit(RUNNER_IS_GONE)


if __name__ == "__main__":
    main()
