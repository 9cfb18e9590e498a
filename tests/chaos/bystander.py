"""A well-behaved client in a process of its own: writes a record, reads it back, and starts over.

While others attack the broker it must go on without an error. Asked on stdin for a number of rounds it
tells, as one line of JSON, how long each round since the last report took, once there are so many, and the
first error.
"""

from __future__ import annotations

import json
import select
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import wire

TOPIC = "bystander"
PRODUCE, FETCH = 0, 1
PAUSE_S = 0.002  # between rounds: many small ones, and the broker keeps most of a core for the others
PATIENCE_S = 60.0


class Client:
    def __init__(self, port: int) -> None:
        self.connection = wire.Connection("127.0.0.1", port)
        self.connection.socket.settimeout(PATIENCE_S)
        self.number = 0

    def round(self) -> float:
        """One record there and back; anything unexpected is an exception. How many seconds it took there."""
        self.number += 1
        value = b"record %d" % self.number
        began = time.perf_counter()
        offset = self.produce(value)
        produced_s = time.perf_counter() - began
        records = self.fetch(offset)
        if value not in records:
            raise ValueError(f"offset {offset} does not hold what was written there")
        return produced_s

    def produce(self, value: bytes) -> int:
        records = wire.one_record_batch(value, time.time_ns() // 1_000_000)
        name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
        body = struct.pack(">hhii", -1, -1, 30_000, 1) + name + struct.pack(">iii", 1, 0, len(records))
        reader = self.connection.request(PRODUCE, 7, body + records)
        reader.take(">i")
        reader.string()
        reader.take(">i")
        reader.take(">i")
        error, offset = reader.take(">h"), reader.take(">q")
        if error:
            raise ValueError(f"produce was answered with error {error}")
        return offset

    def fetch(self, offset: int) -> bytes:
        name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
        body = struct.pack(">iiiibi", -1, 30_000, 1, 1 << 20, 0, 1) + name
        body += struct.pack(">iiqi", 1, 0, offset, 1 << 20)
        reader = self.connection.request(FETCH, 4, body)
        for form in (">i", ">i"):  # throttle time, topics
            reader.take(form)
        reader.string()
        reader.take(">i")
        reader.take(">i")
        error = reader.take(">h")
        if error:
            raise ValueError(f"fetch was answered with error {error}")
        for form in (">q", ">q", ">i"):  # high watermark, last stable offset, aborted transactions
            reader.take(form)
        size = reader.take(">i")
        return reader.data[reader.position : reader.position + size]


def run(port: int) -> None:
    client = Client(port)
    rounds_ms: list[float] = []
    produces_ms: list[float] = []
    error = ""
    asked_for: int | None = None  # rounds that the report is to hold
    while True:
        if asked_for is not None and (error or len(rounds_ms) >= asked_for):
            report = {"error": error, "rounds_ms": rounds_ms, "produces_ms": produces_ms}
            print(json.dumps(report), flush=True)
            rounds_ms, produces_ms, asked_for = [], [], None
        readable, _, _ = select.select([sys.stdin], [], [], PAUSE_S)
        if readable:
            line = sys.stdin.readline()
            if not line:
                return
            asked_for = int(line)
        if not error:
            began = time.perf_counter()
            try:
                produced_s = client.round()
            except (OSError, ValueError, struct.error) as fault:
                error = f"round {client.number}: {fault!r}"
            else:
                rounds_ms.append(round((time.perf_counter() - began) * 1000, 3))
                produces_ms.append(round(produced_s * 1000, 3))


class Bystander:
    """The test's end of that process."""

    def __init__(self, port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rounds(self, count: int) -> list[float]:
        """How long each round since the last report took, once there are at least `count`."""
        return self._report(count)["rounds_ms"]

    def produces(self, count: int) -> list[float]:
        """The same of their first halves: one record written."""
        return self._report(count)["produces_ms"]

    def _report(self, count: int) -> dict[str, list[float]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        report: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert not report["error"], report["error"]
        return report

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


if __name__ == "__main__":
    run(int(sys.argv[1]))
