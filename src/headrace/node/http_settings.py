"""Settings of HTTP: where metrics and the schema registry are served, and to whom.

    headrace.http.listeners=https://:9645,http://127.0.0.1:9644

`headrace.metrics.host` and `headrace.metrics.port` are the older way to say `http://host:port`. TLS of an
https listener is set as that of other listeners, with the prefix `listener.name.https.` or without one.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.machines.configs.unserved import is_loopback
from headrace.machines.configs.values import InvalidConfig

LISTENERS: Final = "headrace.http.listeners"
HOSTS: Final = "headrace.http.hosts"
LOGIN_REQUIRED: Final = "headrace.http.login.required"
METRICS_ANONYMOUS: Final = "headrace.http.metrics.anonymous"
OLD_HOST: Final = "headrace.metrics.host"
OLD_PORT: Final = "headrace.metrics.port"

# The name of an https listener in the prefix of its TLS settings.
HTTPS: Final = "HTTPS"

_OAUTHBEARER: Final = "OAUTHBEARER"
_KEYS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_UNSIGNED: Final = "headrace.oauthbearer.unsigned.tokens"

# compiled only where they are needed: every start would wait for it
_ADDRESS: Final = r"(https?)://(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]/:@\s]*)):([0-9]{1,5})/?"
_HOST: Final = r"(\[[0-9a-f:.]+\]|[^\[\]:/@\s]+)(:[0-9]{1,5})?"


class HttpListener(NamedTuple):
    scheme: str  # http, https
    host: str  # "" is every address of the host
    port: int

    @property
    def name(self) -> str:
        return self.scheme.upper()

    @property
    def uses_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach it."""
        return is_loopback(self.host)

    @property
    def is_open(self) -> bool:
        """What it receives is not encrypted, and may come from another machine."""
        return not self.uses_tls and not self.is_loopback

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class HttpSettings(NamedTuple):
    listeners: tuple[HttpListener, ...]  # () if there is no HTTP
    key: str  # what sets them, for messages
    hosts: frozenset[str]  # names by which it may be addressed, in lower case
    login_required: bool
    metrics_anonymous: bool  # metrics need neither a login nor a right


def http_settings(values: Mapping[str, Any], *, has_authorizer: bool) -> HttpSettings:
    """`values` are the typed ones, by key. InvalidConfig names what is wrong."""
    required = values[LOGIN_REQUIRED]
    return HttpSettings(
        _listeners(values),
        LISTENERS if values[LISTENERS] else f"{OLD_PORT} and {OLD_HOST}",
        frozenset(_host(name) for name in values[HOSTS]),
        has_authorizer if required is None else required,
        values[METRICS_ANONYMOUS],
    )


def _listeners(values: Mapping[str, Any]) -> tuple[HttpListener, ...]:
    host, port = values[OLD_HOST], values[OLD_PORT]
    given: list[str] = values[LISTENERS]
    if not given:
        return () if port < 0 else (HttpListener("http", host, port),)
    if port >= 0:
        raise InvalidConfig(
            f"{OLD_PORT}={port} and {LISTENERS}={','.join(given)} both say where HTTP is served: remove "
            f"{OLD_PORT}"
        )
    listeners: list[HttpListener] = []
    for text in given:
        found = re.fullmatch(_ADDRESS, text)
        if found is None or int(found[4]) > 65_535:
            raise InvalidConfig(
                f"Invalid value {text} for configuration {LISTENERS}: expected http://host:port or "
                "https://host:port"
            )
        if any(one.scheme == found[1] for one in listeners):
            raise InvalidConfig(f"{LISTENERS}: {found[1]} is there twice; one of each is served")
        listeners.append(HttpListener(found[1], found[2] or found[3] or "", int(found[4])))
    return tuple(listeners)


def _host(name: str) -> str:
    lowered = name.lower()
    if not re.fullmatch(_HOST, lowered):
        raise InvalidConfig(
            f"Invalid value {name} for configuration {HOSTS}: expected names as registry.example.com, "
            "or with a port"
        )
    return lowered


def check_http(http: HttpSettings, texts: Mapping[str, str]) -> None:
    """InvalidConfig: a listener lacks what it needs, or would let clients send passwords in the clear."""
    for listener in http.listeners:
        if listener.uses_tls:
            from headrace.node.listener_security import tls_settings

            tls_settings(texts, HTTPS)
        if is_bearer_set(listener, texts):
            from headrace.node.listener_texts import ListenerTexts
            from headrace.node.oauth_settings import oauth_settings

            given = ListenerTexts(texts, listener.name)
            oauth_settings(given, listener.name, is_loopback=listener.is_loopback)
        if listener.is_open and http.login_required:
            raise InvalidConfig(
                f"{http.key}: {listener.address} has no TLS, and clients would send their passwords to it "
                f"as they are. Use https, or an address of this machine alone, such as 127.0.0.1; or serve "
                f"without logins: {LOGIN_REQUIRED}=false."
            )


def is_bearer_set(listener: HttpListener, texts: Mapping[str, str]) -> bool:
    """Whether the listener accepts tokens: the keys of the identity provider are set, or tokens without a
    signature are allowed, which counts on an address of this machine alone.
    """
    if not any(name.endswith((_KEYS_URL, _UNSIGNED)) for name in texts):
        return False  # nothing is loaded for it
    from headrace.node.listener_texts import ListenerTexts

    given = ListenerTexts(texts, listener.name)
    if given.value(_KEYS_URL, _OAUTHBEARER):
        return True
    return listener.is_loopback and bool(given.value(_UNSIGNED, _OAUTHBEARER))
