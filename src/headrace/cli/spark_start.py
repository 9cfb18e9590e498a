"""Starting Spark without the log lines that every start prints.

The JVM inherits stderr when it is started and keeps it, so for that moment stderr is a pipe. A thread copies
it to where stderr really leads: at first whole lines but for the known ones, later every byte as it comes.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STDERR = 2
CHUNK_BYTES = 1 << 16
LAST_WORDS_S = 2.0  # of a JVM that could not be started

NO_NEWS = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"Using Spark's default log4j profile",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"WARN NativeCodeLoader: Unable to load native-hadoop library",
    b"WARN Utils: Service 'SparkUI' could not bind on port",  # another session runs; it takes the next one
)


STARTED = b"\0started\0"  # sent through the pipe itself: what came before it belongs to the start


@contextmanager
def quiet_start() -> Iterator[None]:
    """Inside this block, child processes get a stderr without those lines; afterwards the usual one."""
    real = os.dup(STDERR)
    source, sink = os.pipe()
    os.dup2(sink, STDERR)
    os.close(sink)
    copying = threading.Thread(target=_copy, args=(source, real), name="spark-stderr", daemon=True)
    copying.start()
    try:
        yield
    except BaseException:
        os.dup2(real, STDERR)
        copying.join(LAST_WORDS_S)
        raise
    os.write(STDERR, STARTED)
    os.dup2(real, STDERR)


def _copy(source: int, target: int) -> None:
    is_starting = True
    held = b""  # the beginning of a line
    while data := os.read(source, CHUNK_BYTES):
        if is_starting:
            said, found, later = (held + data).partition(STARTED)
            *lines, held = said.split(b"\n")
            data = b"".join(line + b"\n" for line in lines if not any(known in line for known in NO_NEWS))
            if found:
                is_starting = False
                data, held = data + held + later, b""
        _write(target, data)
    _write(target, held)
    os.close(source)
    os.close(target)


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
