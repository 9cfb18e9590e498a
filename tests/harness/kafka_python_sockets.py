"""kafka-python 3.0 leaves sockets to the garbage collector: of connection attempts that fail or that `close`
cancels, and of connections that `close` overlooks. The collector warns about each in whatever test runs then.
Here they are closed without a word, so that such a warning is about us.
"""

from __future__ import annotations

import socket
from typing import Any

from kafka.net.inet import KafkaNetSocket


class QuietSocket(socket.socket):
    def __del__(self) -> None:
        self.close()


def _open(self: Any, *given: Any, **named: Any) -> QuietSocket:
    return QuietSocket(*given, **named)


def close_abandoned_sockets() -> None:
    KafkaNetSocket.socket = _open
