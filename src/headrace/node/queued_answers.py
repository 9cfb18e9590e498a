"""Limits on the bytes of answers that wait for the answer to an earlier request of their connection.

A client may send a hundred requests behind a long poll, and each answer may have many megabytes. While too
many bytes of a connection wait, the node reads nothing from it (`Connection.is_full`). When too many bytes of
all connections wait, the node closes the connection with the most.
"""

from typing import TYPE_CHECKING

from headrace.base.limits import QUEUED_ANSWER_BYTES_MAX
from headrace.node.connection import Connection, Pending
from headrace.protocol.parts import total_size
from headrace.storage.disk import Span

if TYPE_CHECKING:
    from headrace.node.node import Node


class QueuedAnswers:
    __slots__ = ("_connections", "_node", "total_bytes")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._connections: dict[Connection, None] = {}  # that have any
        self.total_bytes = 0

    def add(self, pending: Pending) -> None:
        """Its answer is known and cannot leave yet. What lies in files takes no memory."""
        assert pending.parts is not None
        size = total_size(part for part in pending.parts if type(part) is not Span)
        connection = pending.connection
        pending.queued_bytes = size
        connection.queued_bytes += size
        self._connections[connection] = None
        self.total_bytes += size
        if self.total_bytes > QUEUED_ANSWER_BYTES_MAX:
            self._close_the_largest()

    def leaves(self, pending: Pending) -> None:
        connection = pending.connection
        connection.queued_bytes -= pending.queued_bytes
        self.total_bytes -= pending.queued_bytes
        pending.queued_bytes = 0
        if not connection.queued_bytes:
            self._connections.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        """It is gone, or will be in a moment."""
        for pending in connection.pending:
            if pending.queued_bytes:
                self.leaves(pending)
                pending.parts = None

    def _close_the_largest(self) -> None:
        largest = max(self._connections, key=lambda connection: connection.queued_bytes)
        size = largest.queued_bytes
        self.forget(largest)
        largest.is_closed = True  # what it is still owed is owed to nobody
        self._node.close(
            largest,
            f"{size} bytes of answers wait behind an unanswered request, the most of any connection, "
            f"and all together are more than {QUEUED_ANSWER_BYTES_MAX}",
        )
