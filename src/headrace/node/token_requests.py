"""Which connections may ask for delegation tokens, and the settings of tokens.

Not one without a login (PLAINTEXT, or TLS without a certificate of the client): a token would be everybody's.
And not one that has logged in with a token: whoever steals one could have it live on in others.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from headrace.machines.configs.topic import broker_value
from headrace.node.connection import ANONYMOUS, Connection
from headrace.node.settings import Settings

if TYPE_CHECKING:
    from headrace.machines.security.delegation_tokens import DelegationToken, DelegationTokens

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
SECRET_KEY = "delegation.token.secret.key"  # nosec B105  # the name of a setting, which has no default
# Those that a broker forwards to the active controller.
CHANGES: Final = frozenset((CREATE, RENEW, EXPIRE))


def delegation_tokens(
    texts: Mapping[str, str], tokens: "Callable[[], Mapping[str, DelegationToken]]"
) -> "DelegationTokens":
    from headrace.machines.security.delegation_tokens import DelegationTokens, TokenSettings

    settings = TokenSettings(
        secret_key(texts),
        _milliseconds("delegation.token.expiry.time.ms", texts),
        _milliseconds("delegation.token.max.lifetime.ms", texts),
    )
    return DelegationTokens(settings, tokens)


def secret_key(texts: Mapping[str, str]) -> str | None:
    """None: there are no tokens."""
    if SECRET_KEY not in texts:
        return None
    value = broker_value(SECRET_KEY, (texts,))
    return value if isinstance(value, str) and value else None


def check_interval_ms(texts: Mapping[str, str]) -> int:
    """How often expired tokens are removed."""
    return _milliseconds("delegation.token.expiry.check.interval.ms", texts)


def _milliseconds(key: str, texts: Mapping[str, str]) -> int:
    value = broker_value(key, (texts,))
    assert isinstance(value, int)
    return value


class TokenRequests:
    __slots__ = ("_protocols",)

    def __init__(self, settings: Settings) -> None:
        self._protocols = {one.name: one.security_protocol for one in settings.listeners}

    def allows(self, connection: Connection) -> bool:
        if connection.with_token:
            return False
        if connection.is_forwarded:
            return True  # the broker that the client is connected to has asked by its listener
        protocol = self._protocols.get(connection.listener, "PLAINTEXT")
        return protocol != "PLAINTEXT" and connection.principal != ANONYMOUS
