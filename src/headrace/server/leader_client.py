"""Requests to the leader of a partition, for a part of the process that keeps its state in a topic.

If this node leads the partition, the loopback client asks it; otherwise the request goes to the leader on a
lane of its own (`node/peers.py`).
"""

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.base.time import Now
from headrace.node.peers import Peer, Peers, Unanswered
from headrace.protocol.messages.fetch import FetchResponse
from headrace.protocol.notation import Request, Response
from headrace.server.loopback_client import LoopbackClient

if TYPE_CHECKING:
    from headrace.server.driver import Driver

TIMEOUT_MS = 5_000
R = TypeVar("R", bound=Response)


class NoAnswer(ConnectionError):
    """The leader did not answer; it may have received the request."""


class LeaderClient:
    __slots__ = ("_driver", "_lane", "_loopback", "_peers", "leader")

    def __init__(self, driver: "Driver", peers: Peers | None, *, listener: str, name: str) -> None:
        """`listener` is the one that other nodes are reached at, too. Without peers this node is alone."""
        self._driver = driver
        self._peers = peers
        self._lane = name
        self._loopback = LoopbackClient(driver, listener=listener, name=name)
        self.leader: Peer | None = None  # None: this node

    async def ask_here(self, request: Request, version: int, expected: type[R]) -> R:
        return await self._loopback.ask(request, version, expected)

    async def ask_leader(self, request: Request, version: int, expected: type[R]) -> R:
        if self.leader is None:
            return await self._loopback.ask(request, version, expected)
        answer = await self._ask_peer(self.leader, request, version)
        if isinstance(answer, Unanswered):
            raise NoAnswer(f"broker {self.leader.id} does not answer ({answer.name.lower()})")
        assert isinstance(answer, expected)
        return answer

    async def _ask_peer(self, peer: Peer, request: Request, version: int) -> Any:
        assert self._peers is not None, "a node that is alone leads everything"
        future = asyncio.get_running_loop().create_future()

        def answered(now: Now, answer: Any) -> None:
            if not future.done():
                future.set_result(kept(answer))

        now = self._driver.connections.clock.now()
        self._peers.send(now, peer, self._lane, request, TIMEOUT_MS, answered, version=version)
        self._driver.settle()
        return await future

    def leave(self) -> None:
        self._loopback.leave()


def kept(answer: Any) -> Any:
    """The answer with records of its own: a view is gone after the call that brings it."""
    if isinstance(answer, FetchResponse):
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.records is not None:
                    partition.records = bytes(partition.records)  # type: ignore[arg-type]
    return answer
