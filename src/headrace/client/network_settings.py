"""How connections are made and kept: the part of a client's settings that every shell needs."""

from dataclasses import dataclass

from headrace.client.cluster import Address, parse_bootstrap
from headrace.client.configuration import Configuration
from headrace.client.connection import RESPONSE_BYTES_MAX
from headrace.client.security.settings import Security, security_settings

DEFAULT_CLIENT_ID = "headrace"


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    bootstrap: tuple[Address, ...]
    client_id: str = DEFAULT_CLIENT_ID
    setup_first_s: float = 10.0  # until a connection is ready for requests, TLS and login included
    setup_last_s: float = 30.0  # the same after many failures: a slow network is given more time
    reconnect_first_s: float = 0.05
    reconnect_last_s: float = 1.0
    idle_s: float | None = 540.0  # None: a connection without use is never closed
    send_buffer_bytes: int | None = None  # None: the system's own choice, which grows with the need
    receive_buffer_bytes: int | None = None
    response_bytes_max: int = RESPONSE_BYTES_MAX
    may_rebootstrap: bool = True  # whether the bootstrap addresses count once brokers are known
    security: Security | None = None  # None: plaintext, and nobody logs in


def network_settings(configuration: Configuration) -> NetworkSettings:
    reconnect_first_s = configuration.seconds("reconnect.backoff.ms")
    setup_first_s = configuration.seconds("socket.connection.setup.timeout.ms")
    idle_s = configuration.seconds("connections.max.idle.ms")
    return NetworkSettings(
        bootstrap=tuple(parse_bootstrap(",".join(configuration.items_of("bootstrap.servers")))),
        client_id=configuration.text("client.id") or DEFAULT_CLIENT_ID,
        setup_first_s=setup_first_s,
        setup_last_s=max(setup_first_s, configuration.seconds("socket.connection.setup.timeout.max.ms")),
        reconnect_first_s=reconnect_first_s,
        reconnect_last_s=max(reconnect_first_s, configuration.seconds("reconnect.backoff.max.ms")),
        idle_s=None if idle_s < 0 else idle_s,
        send_buffer_bytes=_buffer_bytes(configuration, "send.buffer.bytes"),
        receive_buffer_bytes=_buffer_bytes(configuration, "receive.buffer.bytes"),
        response_bytes_max=_response_bytes_max(configuration),
        may_rebootstrap=configuration.text("metadata.recovery.strategy").lower() == "rebootstrap",
        security=security_settings(configuration),
    )


def _buffer_bytes(configuration: Configuration, name: str) -> int | None:
    """Only what the user asks for: a fixed size takes from the system the right to grow the buffer."""
    size = configuration.number(name)
    return size if name in configuration.given and size >= 0 else None


def _response_bytes_max(configuration: Configuration) -> int:
    """Room for what a consumer asks for and one batch on top, which may be as large (KIP-74)."""
    if "fetch.max.bytes" not in configuration:
        return RESPONSE_BYTES_MAX
    return min(2**31 - 1, max(RESPONSE_BYTES_MAX, 2 * configuration.number("fetch.max.bytes")))
