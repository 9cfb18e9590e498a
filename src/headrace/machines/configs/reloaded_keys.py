"""Settings of listeners that can be changed while a broker runs, as in Kafka: certificates and limits.

A setting of one listener has the prefix `listener.name.<name>.`, with the name in lower case. Without the
prefix, certificates are those of all listeners of a broker, and limits those of the whole broker.
"""

from typing import Final

PREFIX: Final = "listener.name."

# Certificates to show and to trust.
RELOADED: Final = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)

# Limits, which may also be set for all brokers at once. num.network.threads has no effect here.
LIMITS: Final = frozenset(("max.connection.creation.rate", "max.connections", "num.network.threads"))


def reloaded_key(name: str) -> str | None:
    """The key, without the prefix of a listener, if it is one of certificates."""
    key = _without_prefix(name)
    return key if key in RELOADED else None


def dynamic_key(name: str) -> str:
    """The key that a dynamic setting with this name has in the table, if there is one."""
    key = _without_prefix(name)
    return key if key in RELOADED or key in LIMITS else name


def _without_prefix(name: str) -> str:
    if not name.startswith(PREFIX):
        return name
    listener, _, key = name.removeprefix(PREFIX).partition(".")
    return key if listener and listener == listener.lower() else name  # else nothing would read it
