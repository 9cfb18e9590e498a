"""What a node's settings leave open, in words: listeners without TLS that other machines reach, an authorizer
that nobody can log in for, super users without a password.

A node starts with such settings, because a network may be protected in other ways. The log says so at each
start, `headrace doctor --config` says so, and a metric counts the listeners.
"""

from typing import Literal, NamedTuple

from headrace.node.connection import ANONYMOUS
from headrace.node.listener_settings import Listener
from headrace.node.settings import Settings

Event = Literal["listener_without_tls", "authorizer_without_logins", "anonymous_super_user"]


class Advice(NamedTuple):
    event: Event  # in the log
    subject: str  # the setting, or the listener
    found: str
    advice: str


def open_listeners(settings: Settings) -> list[Listener]:
    """Those that other machines reach, and that encrypt nothing."""
    return [one for one in settings.served_listeners if not one.uses_tls and not one.is_loopback]


def advice(settings: Settings) -> list[Advice]:
    found = [_without_tls(listener) for listener in open_listeners(settings)]
    if settings.authorizer is not None:
        if not settings.has_logins:
            found.append(
                Advice(
                    "authorizer_without_logins",
                    "authorizer.class.name",
                    f"no listener asks clients who they are: all of them are {ANONYMOUS}",
                    "Use SASL_SSL listeners, or SSL with ssl.client.auth=required.",
                )
            )
        if ANONYMOUS in settings.authorizer.super_users:
            found += [
                _anonymous(listener) for listener in settings.served_listeners if _is_open(settings, listener)
            ]
    return found


def _without_tls(listener: Listener) -> Advice:
    what = (
        "passwords and records can be read and changed on the way"
        if listener.uses_sasl
        else "everybody who reaches it is let in, and records can be read and changed on the way"
    )
    secure = "SASL_SSL" if listener.uses_sasl else "SSL or SASL_SSL"
    return Advice(
        "listener_without_tls",
        listener.name,
        f"{listener.security_protocol} on {_address(listener)}: {what}",
        f"Use {secure}, or an address that only this machine reaches (127.0.0.1).",
    )


def _anonymous(listener: Listener) -> Advice:
    return Advice(
        "anonymous_super_user",
        listener.name,
        f"{ANONYMOUS} is in super.users, and clients of {_address(listener)} need no login: "
        "whoever reaches it may do everything",
        "Let only your own nodes reach this listener, or remove it.",
    )


def _is_open(settings: Settings, listener: Listener) -> bool:
    """Whether clients come in there without a login."""
    if listener.uses_sasl:
        return False
    if not listener.uses_tls:
        return True
    from headrace.node.listener_texts import ListenerTexts

    required = ListenerTexts(settings.texts, listener.name).value("ssl.client.auth")
    return bool(required != "required")


def _address(listener: Listener) -> str:
    host = listener.host or "all addresses"
    return f"{host}, port {listener.port}" if not listener.host else f"{host}:{listener.port}"
