"""A proxy before a listener without TLS that counts logins: how often a client logged in on each of its
connections (KIP-368), and how many of them the broker ended.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Self

HANDSHAKE = 17  # SaslHandshake, with which a login begins
LONGEST = 1 << 20  # of a client's requests in these tests


@dataclass
class Logins:
    """Of the clients with one client id."""

    by_connection: list[int] = field(default_factory=list)
    ended_by_broker: int = 0


class LoginCounter:
    """Listens from the start, so that a broker can name it as its address."""

    def __init__(self) -> None:
        self.target_port = 0
        self.port = 0
        self.logins: defaultdict[str, Logins] = defaultdict(Logins)
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._stopping: asyncio.Event
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(task := asyncio.ensure_future(self._pass_on(reader, writer)))
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._stopping.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        names: set[str] = set()  # of the client, once its first request has come
        requests = asyncio.ensure_future(self._requests(reader, far_writer, names))
        answers = asyncio.ensure_future(_answers(far_reader, writer))
        try:
            await asyncio.wait([requests, answers], return_when=asyncio.FIRST_COMPLETED)
            if not requests.done():
                for name in names:
                    self.logins[name].ended_by_broker += 1
        finally:
            for pump in (requests, answers):
                pump.cancel()
            await asyncio.gather(requests, answers, return_exceptions=True)
            for end in (writer, far_writer):
                end.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names: set[str]
    ) -> None:
        """Until the client hangs up."""
        place = 0
        try:
            while True:
                size = await reader.readexactly(4)
                body = await reader.readexactly(min(LONGEST, *struct.unpack(">i", size)))
                key, _, _, length = struct.unpack_from(">hhih", body)
                name = body[10 : 10 + max(0, length)].decode()
                if not names:
                    names.add(name)
                    place = len(self.logins[name].by_connection)
                    self.logins[name].by_connection.append(0)
                if key == HANDSHAKE:
                    self.logins[name].by_connection[place] += 1
                writer.write(size + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the broker hangs up."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
