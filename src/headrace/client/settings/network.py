"""Settings of a client's connections, and those of an admin client, which has few besides."""

from dataclasses import dataclass

from headrace.client.cluster import Address, parse_bootstrap
from headrace.client.network.connection import RESPONSE_BYTES_MAX
from headrace.client.settings.configuration import Configuration, optional_seconds, seconds, typed_values
from headrace.client.settings.security import Security, security_settings

DEFAULT_CLIENT_ID = "headrace"


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    bootstrap: tuple[Address, ...]
    client_id: str = DEFAULT_CLIENT_ID
    # until a connection is ready for requests, TLS and login included
    setup_first_s: float = seconds("socket.connection.setup.timeout.ms")
    # the same after many failures: a slow network is given more time
    setup_last_s: float = seconds("socket.connection.setup.timeout.max.ms")
    reconnect_first_s: float = seconds("reconnect.backoff.ms")
    reconnect_last_s: float = seconds("reconnect.backoff.max.ms")
    idle_s: float | None = optional_seconds("connections.max.idle.ms")  # None: idle connections are kept
    send_buffer_bytes: int | None = None  # None: the system's choice, which grows as needed
    receive_buffer_bytes: int | None = None
    response_bytes_max: int = RESPONSE_BYTES_MAX
    may_rebootstrap: bool = True  # whether bootstrap addresses are tried once brokers are known
    security: Security | None = None  # None: plaintext, without a login


def network_settings(configuration: Configuration) -> NetworkSettings:
    setup_first_s = configuration.seconds("socket.connection.setup.timeout.ms")
    reconnect_first_s = configuration.seconds("reconnect.backoff.ms")
    return typed_values(
        NetworkSettings,
        configuration,
        bootstrap=tuple(parse_bootstrap(",".join(configuration.items_of("bootstrap.servers")))),
        client_id=configuration.text("client.id") or DEFAULT_CLIENT_ID,
        setup_last_s=max(setup_first_s, configuration.seconds("socket.connection.setup.timeout.max.ms")),
        reconnect_last_s=max(reconnect_first_s, configuration.seconds("reconnect.backoff.max.ms")),
        send_buffer_bytes=_buffer_bytes(configuration, "send.buffer.bytes"),
        receive_buffer_bytes=_buffer_bytes(configuration, "receive.buffer.bytes"),
        response_bytes_max=_response_bytes_max(configuration),
        may_rebootstrap=configuration.text("metadata.recovery.strategy").lower() == "rebootstrap",
        security=security_settings(configuration),
    )


def _buffer_bytes(configuration: Configuration, name: str) -> int | None:
    """With a fixed size the system no longer grows the buffer as needed."""
    size = configuration.number(name)
    return size if size >= 0 else None


def _response_bytes_max(configuration: Configuration) -> int:
    """Enough for what a consumer asks for and one batch on top, which may be as large (KIP-74)."""
    if "fetch.max.bytes" not in configuration:
        return RESPONSE_BYTES_MAX
    return min(2**31 - 1, max(RESPONSE_BYTES_MAX, 2 * configuration.number("fetch.max.bytes")))


@dataclass(slots=True, frozen=True)
class AdminSettings:
    api_timeout_s: float = seconds("default.api.timeout.ms")  # of a whole operation
    request_timeout_s: float = seconds("request.timeout.ms")  # of one request in it
    retry_first_s: float = seconds("retry.backoff.ms")
    retry_last_s: float = seconds("retry.backoff.max.ms")
    metadata_age_s: float = seconds("metadata.max.age.ms")  # of leaders and coordinators
    unreachable_s: float | None = optional_seconds("headrace.unreachable.timeout.ms")


def admin_settings(configuration: Configuration) -> AdminSettings:
    return typed_values(AdminSettings, configuration)
