"""A TCP proxy on 127.0.0.1 between clients and a broker, in which connections come to grief.

Within a connection bytes keep their order. Something may happen to it once so many bytes have passed in one
direction, be it in the middle of a frame: it is cut, it goes silent in that direction or in both while all
sockets stay open, or all that follows comes late. What happens to which connection is scripted, or drawn from
a seed.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65_536


class Harm(Enum):
    CUT = auto()  # both ends are told
    SILENCE = auto()  # nothing passes any more in the direction counted
    HALF_OPEN = auto()  # nothing passes any more in either
    DELAY = auto()  # each piece in the direction counted waits


class Direction(Enum):
    TO_BROKER = auto()
    TO_CLIENT = auto()


@dataclass(frozen=True)
class Fault:
    """What happens to one connection."""

    harm: Harm
    direction: Direction = Direction.TO_CLIENT
    after_bytes: int = 0  # so many still pass as they should
    delay_s: float = 0.05  # of a DELAY


Weather = Callable[[], Fault | None]  # asked for every new connection


def fair() -> Fault | None:
    return None


def stormy(
    seed: int, *, harms: tuple[Harm, ...] = tuple(Harm), share: float = 0.7, bytes_mean: int = 10_000
) -> Weather:
    """This share of the connections come to grief, most of them within so many bytes."""
    rng = random.Random(seed)

    def weather() -> Fault | None:
        if rng.random() >= share:
            return None
        return Fault(
            rng.choice(harms),
            rng.choice(list(Direction)),
            int(rng.expovariate(1 / bytes_mean)),
            rng.uniform(0.01, 0.1),
        )

    return weather


class _Tunnel:
    """One client's connection and the one to the broker behind it."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._fault: Fault | None = None  # that is still to come
        self._writers = [client]
        self._is_mute = dict.fromkeys(Direction, False)

    async def run(self, reader: asyncio.StreamReader) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._proxy.target_port)
        except OSError:  # the broker is down: the client is refused, a moment later than it would be
            return
        self._fault = self._proxy.next_fault()
        client = self._writers[0]
        self._writers.append(far_writer)
        pumps = [
            asyncio.ensure_future(self._pump(Direction.TO_BROKER, reader, far_writer)),
            asyncio.ensure_future(self._pump(Direction.TO_CLIENT, far_reader, client)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until one end hangs up or the tunnel is cut; nobody hears of an end beyond a silence."""
        passed = 0
        try:
            while data := await reader.read(CHUNK_BYTES):
                fault = self._fault
                if (
                    fault is not None
                    and fault.direction is direction
                    and passed + len(data) > fault.after_bytes
                ):
                    await self._pass(direction, data[: max(0, fault.after_bytes - passed)], writer)
                    data = data[max(0, fault.after_bytes - passed) :]
                    if not await self._strike(fault):
                        return
                passed += len(data)
                await self._pass(direction, data, writer)
        except OSError:
            return
        if self._is_mute[direction]:
            await asyncio.Event().wait()

    async def _pass(self, direction: Direction, data: bytes, writer: asyncio.StreamWriter) -> None:
        if data and not self._is_mute[direction]:
            writer.write(data)
            await writer.drain()

    async def _strike(self, fault: Fault) -> bool:
        """False: the connection is over."""
        match fault.harm:
            case Harm.CUT:
                self._struck(fault)
                return False
            case Harm.SILENCE:
                self._is_mute[fault.direction] = True
                self._struck(fault)
            case Harm.HALF_OPEN:
                self._is_mute = dict.fromkeys(Direction, True)
                self._struck(fault)
            case Harm.DELAY:
                self._proxy.struck.append(fault)
                await asyncio.sleep(fault.delay_s)
        return True

    def _struck(self, fault: Fault) -> None:
        self._fault = None
        self._proxy.struck.append(fault)

    def cut(self) -> None:
        """A reset: what was not read yet is lost, too."""
        for writer in self._writers:
            writer.transport.abort()


class FaultProxy:
    """Listens from the start, so that a broker can name it as its address; it lets through once it has a
    `target_port`.
    """

    def __init__(self, weather: Weather = fair) -> None:
        self.weather = weather
        self.target_port = 0
        self.port = 0
        self.struck: list[Fault] = []
        self.connections = 0  # that reached the target
        self._script: deque[Fault | None] = deque()
        self._tunnels: set[_Tunnel] = set()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._stopping: asyncio.Event
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._serve(),), name="proxy"
        )

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def script(self, *faults: Fault | None) -> None:
        """What happens to the next connections, before the weather decides again."""
        self._loop.call_soon_threadsafe(self._script.extend, faults)

    def next_fault(self) -> Fault | None:
        """What the connection that was just made has before it."""
        self.connections += 1
        return self._script.popleft() if self._script else self.weather()

    def cut_all(self) -> None:
        def cut() -> None:
            for tunnel in self._tunnels:
                tunnel.cut()

        self._loop.call_soon_threadsafe(cut)

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        serving: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A callback cleans up: a task that is cancelled early, or twice, does not reach its own clean-up.
            self._tunnels.add(tunnel := _Tunnel(self, writer))
            serving.add(task := asyncio.ensure_future(tunnel.run(reader)))

            def end(task: asyncio.Task[None]) -> None:
                serving.discard(task)
                self._tunnels.discard(tunnel)
                tunnel.cut()

            task.add_done_callback(end)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._stopping.wait()
        # asyncio sets a connection up in a task, which leaves its socket open if the server is closed first
        for listener in server.sockets:
            self._loop.remove_reader(listener.fileno())
        while unfinished := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in serving:
                task.cancel()
            await asyncio.wait(unfinished)
        server.close()
        await server.wait_closed()
