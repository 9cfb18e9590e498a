"""Members of a group that are programs of other languages: go/member.go, js/member.js and java/Member.java.

A member prints its partitions whenever they change and the value of every record, and leaves when it is sent
a line. It can be asked what the members of `harness.members` can be asked: what it owns and what it received.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading

from harness.members import PATIENCE_S, Place, Received


class Outsider:
    def __init__(self, group: str, topic: str, command: list[str], **environment: str) -> None:
        self.group, self.topic = group, topic
        self.owned: frozenset[Place] = frozenset()
        self.received: list[Received] = []
        self.failure: BaseException | None = None
        self._leaving = False
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, env=os.environ | environment, **pipes)  # type: ignore[call-overload]
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with self._process as process:
            for line in process.stdout:
                said = json.loads(line)
                if said["step"] == "assigned":
                    self.owned = frozenset(Place(self.topic, partition) for partition in said["told"] or ())
                else:
                    value = said["told"].encode()
                    self.received.append(Received(Place(self.topic, int(value.split(b"/")[0])), -1, value))
            trouble = process.stderr.read()
        if process.returncode != 0 or not self._leaving:
            self.failure = RuntimeError(f"{self.group} ended with {process.returncode}: {trouble}")

    def close(self) -> None:
        self._leaving = True
        if self._process.poll() is None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the member does not leave"
        if self.failure is not None:
            raise self.failure
