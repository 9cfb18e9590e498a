"""Security between nodes: what a node needs to connect to other brokers and to controllers.

A node is a client of its peers. It shows the certificate of its own listener of the same name, trusts the
authorities of that listener's truststore, and logs in with the user and the password in the JAAS
configuration of the listener and the mechanism, or with a token. Files are not read here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.machines.configs.topic import broker_value
from headrace.machines.configs.unserved import is_loopback
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.security.jaas import InvalidJaas, parse_jaas
from headrace.machines.security.scram import MECHANISMS as SCRAM_MECHANISMS
from headrace.node.listener_security import PLAIN, TlsSettings, sasl_settings, tls_settings
from headrace.node.listener_texts import ListenerTexts
from headrace.node.oauth_settings import OAUTHBEARER
from headrace.node.settings import Settings
from headrace.node.token_logins import TokenLogin, token_login

BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM = "sasl.mechanism.controller.protocol"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)


@dataclass(slots=True, frozen=True)
class OwnLogin:
    """As whom a node logs in at its peers."""

    mechanism: str
    user: str
    password: str = field(repr=False)


@dataclass(slots=True, frozen=True)
class NodeSecurity:
    """Of connections that a node opens to listeners of one name."""

    tls: TlsSettings | None
    login: OwnLogin | TokenLogin | None


def to_brokers(settings: Settings) -> NodeSecurity | None:
    """None: by plaintext. InvalidConfig names what is wrong or missing."""
    return _security(
        settings.tls_texts,
        settings.inter_broker_listener_name,
        settings.inter_broker_protocol,
        BROKER_MECHANISM,
    )


def to_controllers(settings: Settings) -> NodeSecurity | None:
    """None: by plaintext. InvalidConfig names what is wrong or missing."""
    name = next(iter(settings.controller_listener_names), "")
    return _security(settings.tls_texts, name, settings.controller_protocol, CONTROLLER_MECHANISM)


def _security(
    texts: Mapping[str, str], listener: str, protocol: str, mechanism_key: str
) -> NodeSecurity | None:
    if protocol == "PLAINTEXT":
        return None
    tls = tls_settings(texts, listener, is_outgoing=True) if protocol.endswith("SSL") else None
    login = _login(texts, listener, mechanism_key) if protocol.startswith("SASL") else None
    return NodeSecurity(tls, login)


def _login(texts: Mapping[str, str], listener: str, mechanism_key: str) -> OwnLogin | TokenLogin:
    mechanism = str(broker_value(mechanism_key, (texts,)))
    if mechanism not in MECHANISMS:
        raise InvalidConfig(
            f"{mechanism_key}={mechanism}: nodes log in at listener {listener} by {', '.join(MECHANISMS)}; "
            "set one of them"
        )
    if mechanism == OAUTHBEARER:
        return token_login(texts, listener)
    given = ListenerTexts(texts, listener)
    key = given.mechanism_name("sasl.jaas.config", mechanism)
    if key not in texts:
        kind = "Plain" if mechanism == PLAIN else "Scram"
        raise InvalidConfig(
            f"{key} is missing: nodes log in at listener {listener} with it. Set it to "
            f'{kind}LoginModule required username="…" password="…";'
        )
    try:
        module = parse_jaas(texts[key])
    except InvalidJaas as error:
        raise InvalidConfig(f"{key} cannot be read: {error}") from error
    wanted = "PlainLoginModule" if mechanism == PLAIN else "ScramLoginModule"
    if module.name != wanted:
        raise InvalidConfig(f"{key} has a {module.name}: must be a {wanted}")
    user, password = module.options.get("username"), module.options.get("password")
    if not user or not password:
        raise InvalidConfig(
            f'{key} needs username="…" and password="…": this node logs in at the others as that user'
        )
    return OwnLogin(mechanism, user, password)


def check_between_nodes(settings: Settings) -> None:
    """InvalidConfig: this node could not log in at the others."""
    if "broker" in settings.process_roles:
        brokers = to_brokers(settings)
        if brokers is not None and brokers.login is not None:
            listener = settings.inter_broker_listener_name
            _check_offered(settings, listener, brokers.login.mechanism, BROKER_MECHANISM)
    controllers = to_controllers(settings)
    if controllers is None or controllers.login is None:
        return
    listener, login = settings.controller_listener_names[0], controllers.login
    if "controller" in settings.process_roles:
        _check_offered(settings, listener, login.mechanism, CONTROLLER_MECHANISM)
    if login.mechanism in (PLAIN, OAUTHBEARER) and controllers.tls is None:
        _check_secret_stays_here(settings, listener, login.mechanism)
    if isinstance(login, TokenLogin):
        return  # who it is, only the token says
    if settings.authorizer is not None and f"User:{login.user}" not in settings.authorizer.super_users:
        raise InvalidConfig(
            f"super.users: this node logs in at controllers as User:{login.user}, and would be refused: "
            f"rights are needed there before any rule is known. Add User:{login.user}, on all nodes."
        )
    if len(settings.quorum_voters) > 1:
        _check_known_without_log(settings, listener, login)


def _check_offered(settings: Settings, listener: str, mechanism: str, key: str) -> None:
    given = ListenerTexts(settings.texts, listener)
    offered = given.value("sasl.enabled.mechanisms")
    if mechanism not in offered:
        raise InvalidConfig(
            f"{key}={mechanism} is not in {given.name('sasl.enabled.mechanisms')}={','.join(offered)}, so "
            f"the nodes could not log in at listener {listener}"
        )


def _check_secret_stays_here(settings: Settings, listener: str, mechanism: str) -> None:
    far = [voter.host for voter in settings.quorum_voters if not is_loopback(voter.host)]
    if far:
        secret = "password" if mechanism == PLAIN else "token"
        raise InvalidConfig(
            f"{CONTROLLER_MECHANISM}={mechanism} would send the {secret} to {far[0]} as it is: use SASL_SSL "
            f"for listener {listener}"
        )


def _check_known_without_log(settings: Settings, listener: str, login: OwnLogin) -> None:
    """Controllers log in at each other before there is a log that they could know users from."""
    if login.mechanism in SCRAM_MECHANISMS:
        raise InvalidConfig(
            f"{CONTROLLER_MECHANISM}={login.mechanism}: controllers log in at each other before they know "
            "any user, because users are in the log whose leader they elect. Use PLAIN, OAUTHBEARER, or SSL "
            "with certificates."
        )
    if "controller" not in settings.process_roles:
        return
    if not sasl_settings(settings.texts, listener, is_encrypted=True, is_loopback=True).passwords:
        key = ListenerTexts(settings.texts, listener).mechanism_name("sasl.jaas.config", PLAIN)
        raise InvalidConfig(
            f'{key} needs user_{login.user}="…" and so on, for each node: controllers log in at each other '
            "before they know any user of the cluster"
        )
