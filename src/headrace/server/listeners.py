"""Listeners of the process, and the addresses that it advertises to clients.

Sockets are bound before the node is created, so that port 0 is a real port when the node gets its advertised
addresses. The process listens on them only once the node is ready.
"""

import errno
import socket

from headrace.node.listener_settings import Listener
from headrace.node.settings import Settings

EVERYWHERE = ("", "0.0.0.0", "::")  # nosec B104  # compared with


class CannotListen(Exception):
    """An address that cannot be had; the message says which and why."""


def endpoint(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"


def bind(listener: Listener) -> socket.socket:
    """A bound socket, not yet listening."""
    return bind_address(listener.host, listener.port, f"{listener.name}://{endpoint(listener)}", "listeners")


def bind_address(host: str, port: int, shown: str, setting: str) -> socket.socket:
    """Where it cannot, the error shows the address as `shown` and names the setting that it is from."""
    try:
        name = host or "0.0.0.0"  # nosec B104  # the operator left the host out
        family, kind, protocol, _, where = socket.getaddrinfo(
            # Python loads its codec for international names for every `str`
            name.encode() if name.isascii() else name,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        advice = "stop the process that has this port, or choose another one in" if is_taken else "check"
        raise CannotListen(
            f"cannot listen on {shown}: {error.strerror or error}; {advice} {setting}"
        ) from None
    bound.setblocking(False)
    return bound


def told(settings: Settings, ports: dict[str, int]) -> Settings:
    """The settings with real ports, and a name for this host where an address means all of its
    interfaces.
    """
    advertised = _without_everywhere(settings.advertised_listeners)
    controllers = _without_everywhere(settings.advertised_controllers)
    hostname = this_host() if any(not listener.host for listener in advertised + controllers) else ""
    return settings.but(advertised_listeners=advertised, advertised_controllers=controllers).bound(
        ports, hostname
    )


def _without_everywhere(listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
    return tuple(
        listener._replace(host="") if listener.host in EVERYWHERE else listener for listener in listeners
    )


def this_host() -> str:
    """A name by which others may reach this host; `localhost` where it has none that resolves."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
