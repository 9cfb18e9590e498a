"""Settings that are refused because Headrace cannot do what they promise: discovery of voters, Java classes.

Most keys without effect are for tuning, and a broker that ignores them is only slower. The keys below are
different: a user who sets one relies on it. The start and AlterConfigs refuse such a value, and say what is
missing and what to do. Remove a key from this file when Headrace supports it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.machines.configs.values import InvalidConfig

_NO_CLASSES = "Headrace loads no Java classes, so this one would have no effect"
_OAUTH_CLASSES = "org.apache.kafka.common.security.oauthbearer"
_NO_DISCOVERY = "Headrace does not find voters by their addresses yet"

_ADDRESS = re.compile(r"([^@\s]+):([0-9]{1,5})")

LISTENER_PREFIX = "listener.name."
LOOPBACK_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))
EVERY_ADDRESS = frozenset(("", "0.0.0.0", "::"))  # nosec B104  # compared with
_LOOPBACK_ADDRESS = re.compile(r"127(?:\.[0-9]{1,3}){3}")


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can be behind it. 127.example.org is the name of another one."""
    return host in LOOPBACK_HOSTS or _LOOPBACK_ADDRESS.fullmatch(host) is not None


class _Promise(NamedTuple):
    harmless: frozenset[str]  # values that promise nothing, in lower case
    missing: str


def _promise(missing: str, *harmless: str) -> _Promise:
    return _Promise(frozenset(("", *harmless)), missing)


PROMISES = {
    "alter.config.policy.class.name": _promise(_NO_CLASSES),
    "client.quota.callback.class": _promise(_NO_CLASSES),
    "create.topic.policy.class.name": _promise(_NO_CLASSES),
    "principal.builder.class": _promise(
        _NO_CLASSES, "org.apache.kafka.common.security.authenticator.defaultkafkaprincipalbuilder"
    ),
    "sasl.login.callback.handler.class": _promise(
        _NO_CLASSES,
        *(f"{_OAUTH_CLASSES}.{part}oauthbearerlogincallbackhandler" for part in ("", "secured.")),
    ),
    "sasl.oauthbearer.jwt.retriever.class": _promise(
        _NO_CLASSES,
        *(f"{_OAUTH_CLASSES}.{name}jwtretriever" for name in ("default", "clientcredentials", "file")),
    ),
    "sasl.oauthbearer.jwt.validator.class": _promise(
        _NO_CLASSES, *(f"{_OAUTH_CLASSES}.{name}" for name in ("defaultjwtvalidator", "brokerjwtvalidator"))
    ),
    "sasl.server.callback.handler.class": _promise(
        _NO_CLASSES,
        *(f"{_OAUTH_CLASSES}.{part}oauthbearervalidatorcallbackhandler" for part in ("", "secured.")),
    ),
}


def check_promise(name: str, text: str) -> None:
    """Raises InvalidConfig if this setting promises what the broker does not do."""
    # a listener may have a value of its own: listener.name.external.principal.builder.class
    key = name.removeprefix(LISTENER_PREFIX).partition(".")[2] if name.startswith(LISTENER_PREFIX) else name
    # and so may a mechanism of it: listener.name.external.oauthbearer.sasl.server.callback.handler.class
    promise = PROMISES.get(key) or PROMISES.get(key.partition(".")[2])
    if promise is not None and text.strip().lower() not in promise.harmless:
        raise InvalidConfig(
            f"{name}={text.strip()}: {promise.missing}. To start anyway, remove this setting."
        )


def check_promises(texts: Mapping[str, str]) -> None:
    for name in sorted(texts):
        check_promise(name, texts[name])


def check_bootstrap_servers(
    servers: Iterable[str], own: Iterable[tuple[str, int]], own_names: frozenset[str]
) -> None:
    """`own` are the addresses of this node's controller listeners; `own_names` other names of its machine."""
    own = tuple(own)
    for server in servers:
        match = _ADDRESS.fullmatch(server)
        if match is None:
            raise InvalidConfig(
                f"Invalid value {server} for configuration controller.quorum.bootstrap.servers: "
                "expected host:port"
            )
        host, port = match[1].strip("[]").lower(), int(match[2])
        if not any(_is_own(host, port, *address, own_names) for address in own):
            raise InvalidConfig(
                f"controller.quorum.bootstrap.servers={server} is not a controller listener of this node, "
                f"and {_NO_DISCOVERY}. Set controller.quorum.voters=id@host:port,… on all nodes."
            )


def _is_own(host: str, port: int, own_host: str, own_port: int, own_names: frozenset[str]) -> bool:
    if port != own_port:
        return False
    if host == own_host.lower():
        return True
    if own_host in EVERY_ADDRESS:
        return host in LOOPBACK_HOSTS or host in own_names
    return host in LOOPBACK_HOSTS and own_host.lower() in LOOPBACK_HOSTS
