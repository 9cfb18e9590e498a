"""Watches every connection of every test: answers leave in the order of the requests.

Two places are watched in this process, whoever drives them: the node (what `handle` returns and the answers
among its effects) and the sending half of a connection (what is written to its socket). Nobody who looks at
one client's answers would see one that came too early if that client never has two requests under way.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from headrace.node.connection import Connection
from headrace.node.effects import Answer, Effect, Parts
from headrace.node.node import Node
from headrace.protocol.api import request_codec
from headrace.protocol.errors import ProtocolError
from headrace.protocol.framing import decode_request_header
from headrace.server.connection import Channel
from headrace.storage.disk import Span

PRODUCE = 0


class AnswerOrder:
    """One place where answers leave: what is owed to each connection, oldest first."""

    def __init__(self, place: str, report: Callable[[str], None], *, knows_all: bool) -> None:
        self._place = place
        self._report = report
        self._knows_all = knows_all  # else answers leave here whose requests came another way
        self._owed: dict[int, deque[int]] = {}

    def asked(self, connection: int, frame: memoryview) -> None:
        correlation_id = answered_id(frame)
        if correlation_id is not None:
            self._owed.setdefault(connection, deque()).append(correlation_id)

    def answered(self, connection: int, parts: Parts) -> None:
        for correlation_id in answer_ids(parts):
            owed = self._owed.setdefault(connection, deque())
            if not self._knows_all and correlation_id not in owed:
                continue
            if not owed or owed[0] != correlation_id:
                self._report(
                    f"{self._place}: request {correlation_id} of connection {connection} was answered while "
                    + (f"{list(owed)} were owed, in this order" if owed else "no answer was owed")
                )
            if correlation_id in owed:
                owed.remove(correlation_id)


def answered_id(frame: memoryview) -> int | None:
    """The correlation id of a request that has to be answered; None: it gets no answer, or is not one."""
    try:
        key, version, correlation_id, _, position = decode_request_header(frame)
        if key == PRODUCE and request_codec(key, version).decode(frame, position).acks == 0:
            return None
    except ProtocolError:
        return None
    return correlation_id


def answer_ids(parts: Parts) -> list[int]:
    """The correlation ids of whole frames that lie in these parts one behind the other."""
    found: list[int] = []
    left = 0  # of the current frame
    head = b""
    for part in parts:
        if isinstance(part, Span):
            left -= part.size
            continue
        view = memoryview(part)
        while view:
            if left == 0:
                taken = view[: 8 - len(head)]
                head += bytes(taken)
                view = view[len(taken) :]
                if len(head) == 8:
                    size, correlation_id = struct.unpack(">ii", head)
                    found.append(correlation_id)
                    left, head = size - 4, b""
            else:
                skipped = min(left, len(view))
                left -= skipped
                view = view[skipped:]
    return found


def watch_core(watch: Callable[[Channel, Parts], None] | None) -> None:
    """The compiled network core sends most answers itself, where there is one."""
    try:
        from headrace.server._core import watch_answers
    except ImportError:
        return
    watch_answers(watch)


def watch(report: Callable[[str], None]) -> Callable[[], None]:
    """Watch all nodes and connections of this process; what is returned ends it."""
    orders: WeakKeyDictionary[Any, AnswerOrder] = WeakKeyDictionary()
    handle, take_effects = Node.handle, Node.take_effects
    make, send = Channel.__init__, Channel.send

    def order_of(node: Node) -> AnswerOrder:
        order = orders.get(node)
        if order is None:
            # the testing kit answers some requests in the node's place, and lets it put them in order
            order = orders[node] = AnswerOrder("node", report, knows_all=False)
        return order

    @wraps(handle)
    def watched_handle(self: Node, now: Any, connection: Connection, frame: memoryview) -> Parts | None:
        order = order_of(self)
        order.asked(connection.id, frame)
        parts = handle(self, now, connection, frame)
        if parts is not None:
            order.answered(connection.id, parts)
        return parts

    @wraps(take_effects)
    def watched_take_effects(self: Node) -> list[Effect]:
        effects = take_effects(self)
        for effect in effects:
            if isinstance(effect, Answer):
                order_of(self).answered(effect.connection.id, effect.parts)
        return effects

    sockets: dict[int, AnswerOrder] = {}

    @wraps(make)
    def watched_make(self: Channel, connections: Any, driver: Any, listener: str) -> None:
        make(self, connections, driver, listener)
        if not isinstance(getattr(driver.node, "node", driver.node), Node):
            sockets.pop(id(self.connection), None)
            return  # a stand-in, which answers what its test wants
        order = sockets[id(self.connection)] = AnswerOrder("socket", report, knows_all=True)
        inner = self._handle

        def noted(now: Any, connection: Connection, frame: memoryview) -> Parts | None:
            order.asked(connection.id, frame)
            return inner(now, connection, frame)

        self._handle = noted

    @wraps(send)
    def watched_send(self: Channel, parts: Parts) -> None:
        order = sockets.get(id(self.connection))
        if order is not None:
            order.answered(self.connection.id, parts)
        send(self, parts)

    def sent_by_core(channel: Channel, parts: Parts) -> None:
        order = sockets.get(id(channel.connection))
        if order is not None:
            order.answered(channel.connection.id, parts)

    watch_core(sent_by_core)
    Node.handle, Node.take_effects = watched_handle, watched_take_effects  # type: ignore[method-assign]
    Channel.__init__, Channel.send = watched_make, watched_send  # type: ignore[method-assign]

    def end() -> None:
        watch_core(None)
        Node.handle, Node.take_effects = handle, take_effects  # type: ignore[method-assign]
        Channel.__init__, Channel.send = make, send  # type: ignore[method-assign]

    return end
