"""An event loop that has nothing to do: how late this machine calls it back while a broker is under load.

It is an echo server in a process of its own, on the kind of loop that the broker has. It has the broker's
probe of the loop's lag, and a client, another process, that sends it a little and waits for that, again and
again. `python -m benchmarks.idle_loop serve` and `… ask PORT` are these processes.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

import uvloop

from chaos.bystander import PAUSE_S
from headrace.server.metrics import LAG_BOUNDS, LoopLag

ECHO = "an idle echo server"
LOOP = "an idle loop"
MESSAGE = bytes(150)  # as large as the bystander's request


class EchoServer(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def serve() -> None:
    """Prints its port, and for each line from stdin the probe's counts."""
    loop = asyncio.get_running_loop()
    lag = LoopLag(loop)
    lag.start()
    server = await loop.create_server(EchoServer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    is_over = loop.create_future()

    def asked() -> None:
        if not sys.stdin.readline():
            loop.remove_reader(0)
            is_over.set_result(None)
            return
        print(json.dumps(lag.buckets), flush=True)

    loop.add_reader(0, asked)
    await is_over


def ask(port: int) -> None:
    """For each line from stdin: how long each round since the last took, in ms."""
    rounds_ms: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as echo:
        echo.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            readable, _, _ = select.select([sys.stdin], [], [], PAUSE_S)
            if readable:
                if not sys.stdin.readline():
                    return
                print(json.dumps(rounds_ms), flush=True)
                rounds_ms = []
            began = time.perf_counter()
            echo.sendall(MESSAGE)
            missing = len(MESSAGE)
            while missing:
                missing -= len(echo.recv(missing))
            rounds_ms.append(round((time.perf_counter() - began) * 1000, 3))


class IdleLoop:
    """The benchmark's end of these two processes."""

    def __init__(self) -> None:
        self._server = _start("serve")
        self._client = _start("ask", _line(self._server))

    def lag_buckets(self) -> dict[float, int]:
        """How many probes were at most so late, in seconds, since it was started."""
        cumulative: dict[float, int] = {}
        count = 0
        for bound, found in zip((*LAG_BOUNDS, float("inf")), json.loads(_told(self._server)), strict=True):
            count += found
            cumulative[bound] = count
        return cumulative

    def rounds_ms(self) -> list[float]:
        """How long each echo since the last call took."""
        rounds: list[float] = json.loads(_told(self._client))
        return rounds

    def stop(self) -> None:
        for process in (self._client, self._server):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.wait(60)
            process.stdout.close()


def _start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__)), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _told(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return _line(process)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"{process.args} has ended")
    return line


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())
    else:
        ask(int(sys.argv[2]))
