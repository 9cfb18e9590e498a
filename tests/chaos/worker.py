"""Work in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

WAIT_S = 60


class Worker:
    """Something that goes on in a thread of its own until it is told to stop; what it raises is not lost."""

    def __init__(self, work: Callable[[Worker], None]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "a client does not come back"
        if self.error is not None:
            raise self.error

    def wait_for(self, count: Callable[[], int], aim: int, what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while count() < aim:
            if self.error is not None:
                raise self.error
            assert time.monotonic() < deadline, f"{count()} of {aim} {what}"
            time.sleep(0.01)
