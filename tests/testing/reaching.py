"""Whether anybody listens where the broker says it is."""

from __future__ import annotations

import socket

from headrace.testing import Broker


def is_reachable(broker: Broker) -> bool:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=30).close()
    except ConnectionRefusedError:
        return False
    return True
