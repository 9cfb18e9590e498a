"""The settings of the authorizer, which Kafka's broker does not know itself: its authorizer reads them."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from headrace.machines.configs.values import InvalidConfig
from headrace.node.connection import ANONYMOUS

CLASS_NAME: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
READ_BY_AUTHORIZER: Final = frozenset((SUPER_USERS, ALLOW_EVERYONE))

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SHORT: Final = "standard"


class AuthorizerSettings(NamedTuple):
    super_users: frozenset[str]  # as User:alice
    allows_if_no_rule: bool


def authorizer_settings(texts: Mapping[str, str]) -> AuthorizerSettings | None:
    """None: there is no authorizer. InvalidConfig: a value is wrong, or has no effect and looks as if it
    protected something.
    """
    name = texts.get(CLASS_NAME, "").strip()
    users = texts.get(SUPER_USERS, "").strip()
    allows = texts.get(ALLOW_EVERYONE, "").strip().lower()
    if not name:
        for key, is_harmless in ((SUPER_USERS, not users), (ALLOW_EVERYONE, allows in ("", "true"))):
            if not is_harmless:
                raise InvalidConfig(
                    f"{key}={texts[key].strip()}: without an authorizer everybody may do everything. Set "
                    f"{CLASS_NAME}={SHORT}, or remove this setting."
                )
        return None
    if name not in (STANDARD, SHORT):
        raise InvalidConfig(
            f"{CLASS_NAME}={name}: Headrace loads no Java classes. Its own authorizer decides as Kafka's "
            f"standard one: set {CLASS_NAME}={SHORT} or {STANDARD}."
        )
    return AuthorizerSettings(_principals(users), allows == "true")


def _principals(text: str) -> frozenset[str]:
    """Separated by semicolons, because names of certificates have commas."""
    users = frozenset(filter(None, (part.strip() for part in text.split(";"))))
    for user in users:
        kind, colon, _ = user.partition(":")
        if not colon or not kind:
            raise InvalidConfig(
                f"Invalid value {user} for configuration {SUPER_USERS}: expected principals as User:name, "
                "separated by semicolons"
            )
    return users


def check_nodes_are_let_in(authorizer: AuthorizerSettings | None, open_listeners: Collection[str]) -> None:
    """`open_listeners`: controllers' listeners on which other nodes come without a login. They need a right
    before the rules are known: only then can a quorum elect a leader, and rules be read.
    """
    if authorizer is not None and open_listeners and ANONYMOUS not in authorizer.super_users:
        raise InvalidConfig(
            f"{CLASS_NAME}: the other nodes of the cluster come to listener {', '.join(open_listeners)} "
            f"without a login, as {ANONYMOUS}, and would be refused. Add {ANONYMOUS} to {SUPER_USERS}, and "
            "let nobody else reach listeners without a login."
        )
