"""The listeners that nodes use among each other, and their security protocols."""

from collections.abc import Mapping
from typing import Any

from headrace.machines.configs.values import InvalidConfig

NAME = "inter.broker.listener.name"
PROTOCOL = "security.inter.broker.protocol"
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}  # Kafka's numbers


def listener_protocol(name: str, protocols: Mapping[str, str], controllers: tuple[str, ...]) -> str | None:
    """Of a listener by its name; None: listener.security.protocol.map does not say."""
    protocol = protocols.get(name)
    if protocol is None and name in controllers and len(protocols) == len(SECURITY_PROTOCOLS):
        return "PLAINTEXT"  # as in Kafka: a controller listener needs no entry in the default map
    return protocol


def node_listeners(
    texts: Mapping[str, str], values: Mapping[str, Any], protocols: Mapping[str, str]
) -> dict[str, str]:
    """The settings' fields about it. `protocols`: of listeners, by name."""
    is_broker = "broker" in values["process_roles"]
    controllers: tuple[str, ...] = values["controller_listener_names"]
    name: str = values["inter_broker_listener_name"] or ""
    if name and PROTOCOL in texts:
        raise InvalidConfig(
            f"{NAME}={name} and {PROTOCOL}={texts[PROTOCOL].strip()} both say how brokers reach each other: "
            "set one of them"
        )
    own = {one.name: one.security_protocol for one in values["advertised_listeners"]}
    if not name:
        name = texts[PROTOCOL].strip() if PROTOCOL in texts else next(iter(own), "")
    if is_broker and name not in own:
        key = NAME if NAME in texts else PROTOCOL
        raise InvalidConfig(
            f"{key}={name}: this broker advertises no listener {name} ({', '.join(own)}). Brokers reach each "
            "other by that listener."
        )
    controller = controllers[0] if controllers else ""
    controller_protocol = listener_protocol(controller, protocols, controllers)
    if controller and controller_protocol is None:
        raise InvalidConfig(
            f"controller.listener.names: listener {controller} is not in listener.security.protocol.map"
        )
    return {
        "inter_broker_listener_name": name,
        "inter_broker_protocol": own.get(name, "PLAINTEXT"),
        "controller_protocol": controller_protocol or "PLAINTEXT",
    }
