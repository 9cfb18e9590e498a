"""Listeners as settings tell them: addresses, security protocols, and limits on their connections."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from headrace.base.numbers import INT32_MAX, whole_number
from headrace.machines.configs.topic import broker_value
from headrace.machines.configs.unserved import is_loopback
from headrace.machines.configs.values import InvalidConfig
from headrace.node.node_listeners import SECURITY_PROTOCOLS, listener_protocol

ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]/:]*)):([0-9]{1,5})")


class Listener(NamedTuple):
    name: str
    host: str  # "" is every address of the host
    port: int
    security_protocol: str

    @property
    def security_protocol_id(self) -> int:
        return SECURITY_PROTOCOLS[self.security_protocol]

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach it."""
        return is_loopback(self.host)


def listener_protocols(text: Any) -> dict[str, str]:
    protocols = {}
    for pair in str(text).split(","):
        name, colon, protocol = pair.strip().rpartition(":")
        if not colon or protocol not in SECURITY_PROTOCOLS:
            choices = ", ".join(SECURITY_PROTOCOLS)
            raise InvalidConfig(
                f"Invalid value {pair} for configuration listener.security.protocol.map: "
                f"expected NAME:PROTOCOL with a protocol of {choices}"
            )
        protocols[name] = protocol
    return protocols


def parse_listeners(
    key: str, texts: list[str], protocols: Mapping[str, str], controllers: tuple[str, ...]
) -> tuple[Listener, ...]:
    listeners: list[Listener] = []
    for text in texts:
        match = ENDPOINT.fullmatch(text)
        if match is None or int(match[4]) > 65_535:
            raise InvalidConfig(f"Invalid value {text} for configuration {key}: expected NAME://host:port")
        name = match[1]
        protocol = listener_protocol(name, protocols, controllers)
        if protocol is None:
            raise InvalidConfig(f"{key}: listener {name} is not in listener.security.protocol.map")
        if any(listener.name == name for listener in listeners):
            raise InvalidConfig(f"{key}: the listener name {name} is used twice; each listener needs its own")
        listeners.append(Listener(name, match[2] or match[3] or "", int(match[4]), protocol))
    return tuple(listeners)


def address_overrides(text: str) -> dict[str, int]:
    overrides = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = pair.rpartition(":")
        connections = whole_number(count, INT32_MAX)
        if not address or connections is None:
            raise InvalidConfig(
                f"Invalid value {pair} for configuration max.connections.per.ip.overrides: "
                "expected address:count"
            )
        overrides[address] = connections
    return overrides


def listener_limits(
    key: str, layers: Sequence[Mapping[str, str]], listeners: Sequence[Listener]
) -> dict[str, int]:
    """The limits of listeners that have their own: `listener.name.<name>.` and the key. The first of the
    layers that has one counts.
    """
    limits = {}
    for listener in listeners:
        name = f"listener.name.{listener.name.lower()}.{key}"
        text = next((texts[name] for texts in layers if name in texts), None)
        if text is not None:
            try:
                limits[listener.name] = cast(int, broker_value(key, ({key: text},)))
            except InvalidConfig as error:
                raise InvalidConfig(str(error).replace(key, name)) from error
    return limits
