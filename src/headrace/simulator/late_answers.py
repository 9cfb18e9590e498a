"""Answers to other nodes that are read from their files late, or wrongly.

An answer refers to ranges of files, which are read when the socket has space. Until then the log may have
been truncated and have other records there.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.simulator.bit_flips import batch_positions, damaged_position
from headrace.simulator.frames import joined
from headrace.storage.disk import Span

if TYPE_CHECKING:
    from headrace.simulator.host import NodeEnd
    from headrace.simulator.world import World

Waiting = tuple["NodeEnd", Connection, Parts]

DELAY_S = (0.01, 0.6)


class LateAnswers:
    """The answers of one connection keep their order."""

    def __init__(self, world: "World", send: Callable[["NodeEnd", Connection, Parts], None]) -> None:
        self._world = world
        self._send = send
        self._queues: dict[Connection, deque[Waiting]] = {}
        self._held: dict[Connection, None] = {}  # until somebody lets them go

    def has(self, connection: Connection) -> bool:
        return connection in self._queues

    def add(self, wire: "NodeEnd", connection: Connection, parts: Parts, *, is_held: bool = False) -> None:
        queue = self._queues.setdefault(connection, deque())
        queue.append((wire, connection, parts))
        if is_held:
            self._held[connection] = None
        elif len(queue) == 1:
            self._world.after(self._world.between(*DELAY_S), lambda: self._drain(connection))

    @property
    def is_whole(self) -> bool:
        """Whether files are still, or again, as long as the answers that are held say."""
        spans = (
            part
            for connection in self._held
            for _, _, parts in self._queues.get(connection, ())
            for part in parts
            if isinstance(part, Span)
        )
        try:
            return all(len(span.read()) == span.size for span in spans)
        except OSError:
            return True  # its process is gone: there is nothing to wait for

    def drain_held(self) -> None:
        held, self._held = self._held, {}
        for connection in held:
            self._drain(connection)

    def _drain(self, connection: Connection) -> None:
        if connection in self._held:
            return
        for wire, known, parts in self._queues.pop(connection, ()):
            self._send(wire, known, parts)


def rotten(parts: Parts, world: "World", chance: float) -> bytes:
    """The bytes of an answer, with a bit changed in some of the records that are read from files."""
    pieces = []
    for part in parts:
        data = bytearray(part.read() if isinstance(part, Span) else part)
        if isinstance(part, Span) and world.chance(chance) and (found := batch_positions(data)):
            data[damaged_position(data, world.rng.choice(found), world.rng)] ^= 1 << world.rng.randrange(8)
        pieces.append(bytes(data))
    return joined(pieces)
