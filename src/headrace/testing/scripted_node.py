"""A node with faults of a test: they act on requests before the node gets them, or on answers before they
leave.

Without an active fault it passes every call on unchanged.
"""

import asyncio
import struct
from typing import TYPE_CHECKING, Any

from headrace.base.time import Instant, Now
from headrace.node.connection import Connection
from headrace.node.effects import Answer, Close, Effect, Parts
from headrace.node.node import Node
from headrace.node.routes import PRODUCE
from headrace.node.settings import Settings
from headrace.protocol.api import ApiKey, request_codec, response_codec
from headrace.protocol.errors import ErrorCode, ProtocolError
from headrace.protocol.framing import answer_frame, decode_request_header
from headrace.server.connection_limits import Connections
from headrace.server.driver import Driver
from headrace.server.outbox import MUTED
from headrace.testing.refusals import refusal
from headrace.testing.script import Script

if TYPE_CHECKING:
    from headrace.node.http_clients import HttpClients

_api_key_at = struct.Struct(">h").unpack_from
_METADATA = int(ApiKey.METADATA)
DROPPED = "dropped by the test"
NO_LEADER = -1


class ScriptedNode:
    def __init__(
        self, node: Node, script: Script, connections: Connections, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.node = node
        self._script = script
        self._connections = connections
        self._loop = loop
        self._driver: Driver | None = None
        self._dropped: set[int] = set()  # connections that are cut instead of answered, by id
        self.connected = node.connected
        self.completed = node.completed
        self.answered = node.answered
        self.wake = node.wake
        self.shutdown = node.shutdown
        self.try_certificates_by = node.try_certificates_by

    def driven_by(self, driver: Driver) -> None:
        self._driver = driver

    # --- what the driver asks ---------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self.node.settings

    @property
    def http_clients(self) -> "HttpClients":
        return self.node.http_clients

    @property
    def is_ready(self) -> bool:
        return self.node.is_ready

    @property
    def is_stopping(self) -> bool:
        return self.node.is_stopping

    @property
    def is_stopped(self) -> bool:
        return self.node.is_stopped

    def deadline(self) -> Instant | None:
        return self.node.deadline()

    def disconnected(self, now: Now, connection: Connection, /) -> None:
        self._dropped.discard(connection.id)
        self.node.disconnected(now, connection)

    def shown_certificate(self, now: Now, connection: Connection, principal: str, /) -> None:
        self.node.shown_certificate(now, connection, principal)

    def refused_handshake(self, now: Now, connection: Connection, reason: str, /) -> None:
        self.node.refused_handshake(now, connection, reason)

    def take_effects(self) -> list[Effect]:
        effects = self.node.take_effects()
        if self._dropped:
            return [self._cut(effect) for effect in effects]
        return effects

    def _cut(self, effect: Effect) -> Effect:
        if isinstance(effect, Answer) and effect.connection.id in self._dropped:
            return Close(effect.connection, DROPPED)
        return effect

    def handle(self, now: Now, connection: Connection, frame: memoryview, /) -> Parts | None:
        # a caller without a channel is not a client of the test but a part of the broker: its schema registry
        if self._script.is_empty or connection.id not in self._connections.channels:
            return self.node.handle(now, connection, frame)
        (api_key,) = _api_key_at(frame, 0)
        delay = self._script.meet(("delay",), api_key)
        if delay is not None:
            self._postpone(connection, bytearray(frame), delay.delay_ms / 1000)
            return None
        return self._handle(now, connection, frame, api_key)

    # --- faults of a request -------------------------------------------------------------------------

    def _handle(self, now: Now, connection: Connection, frame: memoryview, api_key: int) -> Parts | None:
        fault = self._script.meet(("error", "drop"), api_key)
        if fault is None:
            return self.node.handle(now, connection, frame)
        if fault.kind == "error":
            try:
                return self._refuse(now, connection, frame, fault.code)
            except ProtocolError:
                return self.node.handle(now, connection, frame)  # it says itself what is wrong with it
        parts = self.node.handle(now, connection, frame)
        if parts is None:
            self._dropped.add(connection.id)  # it waits in the node: cut when its answer comes
        else:
            self.node.reports.close(connection, DROPPED)
        return None

    def _postpone(self, connection: Connection, frame: bytearray, delay_s: float) -> None:
        """Handles the request later, and no other request of its connection before it."""
        self._connections.channels[connection.id].hold(MUTED)
        self._loop.call_later(delay_s, self._resume, connection, frame)

    def _resume(self, connection: Connection, frame: bytearray) -> None:
        channel = self._connections.channels.get(connection.id)
        driver = self._driver
        if channel is None or driver is None:
            return  # it has gone meanwhile
        (api_key,) = _api_key_at(frame, 0)
        try:
            parts = self._handle(self._connections.clock.now(), connection, memoryview(frame), api_key)
        except Exception as error:
            driver.failed("handle", error)
            channel.close("internal error")
            return
        if parts is not None:
            channel.send(parts)
        driver.settle()
        channel.release(MUTED)

    def _refuse(self, now: Now, connection: Connection, frame: memoryview, code: int) -> Parts | None:
        """Answers with the error, and does not carry the request out."""
        api_key, version, correlation_id, _, position = decode_request_header(frame)
        body = request_codec(api_key, version).decode(frame, position)
        if api_key == PRODUCE and body.acks == 0:
            return None  # nobody hears of it
        codec = response_codec(api_key, version)
        if api_key == _METADATA:
            return self._spoil_topics(now, connection, frame, code)
        reply: Any = refusal(codec.message, version, body, code)
        if reply is None:
            self.node.reports.close(
                connection, f"the response has no field for the error {code} that the test injects"
            )
            return None
        return self._in_turn(connection, answer_frame(codec, correlation_id, reply))

    def _spoil_topics(self, now: Now, connection: Connection, frame: memoryview, code: int) -> Parts | None:
        """The real answer with an error for each topic: a client still needs the brokers in it."""
        _, version, correlation_id, _, _ = decode_request_header(frame)
        parts = self.node.handle(now, connection, frame)
        if parts is None:
            return None
        codec = response_codec(_METADATA, version)
        prefix_bytes = 4 + 4 + codec.header_version  # size, correlation id, and an empty tag buffer if any
        answer = codec.decode(b"".join(parts), prefix_bytes)  # type: ignore[arg-type]  # no spans in it
        for topic in answer.topics:
            if code == ErrorCode.LEADER_NOT_AVAILABLE:
                for partition in topic.partitions:
                    partition.error_code, partition.leader_id = code, NO_LEADER
            else:
                topic.error_code = code
        return answer_frame(codec, correlation_id, answer)

    def _in_turn(self, connection: Connection, parts: Parts) -> Parts | None:
        if connection.pending:
            self.node.waiting.queue_behind(connection, parts)
            return None
        return parts
