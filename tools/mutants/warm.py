"""The process that has imported all tests, as seen by those who have tests to run in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any


class WarmTests:
    """When the process is gone, every question is answered with None."""

    def __init__(self, root: Path, files: Collection[str], environment: dict[str, str]) -> None:
        self._root = root
        self._files = files
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._orders = self._answers = -1
        self._start()

    def wait(self) -> None:
        """Until it has imported everything: from then on the files may change."""
        self._receive()

    def ask(
        self,
        tests: Collection[str],
        left_out: Collection[str],
        change: tuple[str, str, str] | None,
        cpu_s: int,
    ) -> dict[str, Any] | None:
        """Whether these pass while a file (path, text before and after) is changed; None: it cannot say."""
        order = {"tests": [*tests], "left_out": [*left_out], "change": change, "cpu_s": cpu_s}
        try:
            self._send(json.dumps(order).encode() + b"\n")
            line = self._receive()
        except OSError:
            return None
        answer: dict[str, Any] = json.loads(line) if line else {"unable": "the process is gone"}
        return None if "unable" in answer else answer

    def _start(self) -> None:
        theirs_to_read, self._orders = os.pipe()
        self._answers, theirs_to_write = os.pipe()
        command = ["-m", "mutants.warm_process", str(theirs_to_read), str(theirs_to_write), *self._files]
        self._process = subprocess.Popen(
            [sys.executable, *command],
            cwd=self._root,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs_to_read, theirs_to_write),
        )
        os.close(theirs_to_read)
        os.close(theirs_to_write)

    def _send(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._orders, line) :]

    def _receive(self) -> bytes:
        told = b""
        while not told.endswith(b"\n"):
            part = os.read(self._answers, 65536)
            if not part:
                return b""
            told += part
        return told

    def close(self) -> None:
        if self._process is not None:
            os.close(self._orders)  # it ends when no more orders can come
            self._process.wait()
            os.close(self._answers)
            self._process = None
