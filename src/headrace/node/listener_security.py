"""Security of a listener: what its settings say about TLS and SASL. Files are not read here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.machines.configs.values import InvalidConfig
from headrace.machines.security.jaas import InvalidJaas, parse_jaas
from headrace.machines.security.plain import passwords_from_options
from headrace.machines.security.principal_mapping import DEFAULT_RULES, InvalidRules, PrincipalMapping
from headrace.machines.security.scram import MECHANISMS as SCRAM_MECHANISMS
from headrace.node.listener_texts import ListenerTexts
from headrace.node.oauth_settings import OAUTHBEARER, OAuthSettings, oauth_settings

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(slots=True, frozen=True)
class TlsSettings:
    """The certificates are files or texts, in PEM."""

    names: Mapping[str, str]  # key → the name by which this listener sets it, for messages
    keystore: str | None  # a file with certificate and key
    certificates: str | None  # the same as texts
    key: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    truststore: str | None  # a file with the authorities of clients
    authorities: str | None
    client_auth: str  # none, requested, required
    versions: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    mapping: PrincipalMapping = field(compare=False)
    checks_names: bool  # of the nodes that this one connects to
    allows_dn_changes: bool  # whether a new certificate may be for another subject
    allows_san_changes: bool  # whether it may lack alternative names


_FILES_AND_TEXTS = (
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
)


def tls_settings(texts: Mapping[str, str], listener: str, *, is_outgoing: bool = False) -> TlsSettings:
    """InvalidConfig names what is wrong or missing. `is_outgoing`: for connections that this node opens to
    such a listener of another node. They may do without a certificate of their own.
    """
    given = ListenerTexts(texts, listener)
    values = {key: given.text(key) for key in _FILES_AND_TEXTS}
    chain, key = values["ssl.keystore.certificate.chain"], values["ssl.keystore.key"]
    has_one = values["ssl.keystore.location"] is not None or (chain is not None and key is not None)
    if not has_one and not is_outgoing:
        raise InvalidConfig(
            f"listeners: {listener} needs a certificate: set ssl.keystore.location to a PEM file with "
            "certificate and key, or ssl.keystore.certificate.chain and ssl.keystore.key to their texts"
        )
    if values["ssl.keystore.location"] is not None and (chain is not None or key is not None):
        raise InvalidConfig(
            f"{given.name('ssl.keystore.location')} and {given.name('ssl.keystore.certificate.chain')} both "
            "set a certificate: use one of them"
        )
    client_auth = given.value("ssl.client.auth")
    if (
        client_auth != "none"
        and not is_outgoing
        and not (values["ssl.truststore.location"] or values["ssl.truststore.certificates"])
    ):
        raise InvalidConfig(
            f"{given.name('ssl.client.auth')}={client_auth} needs ssl.truststore.location or "
            "ssl.truststore.certificates: the authorities whose certificates are accepted"
        )
    versions = tuple(given.value("ssl.enabled.protocols"))
    if not versions or any(version not in TLS_VERSIONS for version in versions):
        raise InvalidConfig(
            f"{given.name('ssl.enabled.protocols')}={','.join(versions)}: must be TLSv1.2, TLSv1.3 or both"
        )
    return TlsSettings(
        {key: given.name(key) for key in (*_FILES_AND_TEXTS, "ssl.cipher.suites")},
        values["ssl.keystore.location"],
        chain,
        key,
        values["ssl.key.password"],
        values["ssl.truststore.location"],
        values["ssl.truststore.certificates"],
        client_auth,
        versions,
        tuple(given.value("ssl.cipher.suites")),
        _mapping(given),
        _checks_names(given),
        given.value("ssl.allow.dn.changes"),
        given.value("ssl.allow.san.changes"),
    )


def _checks_names(given: ListenerTexts) -> bool:
    key = "ssl.endpoint.identification.algorithm"
    algorithm = str(given.value(key) or "").strip().lower()
    if algorithm not in ("https", "none", ""):
        raise InvalidConfig(f"{given.name(key)}={algorithm}: must be https, or empty for no check")
    return algorithm == "https"


def _mapping(given: ListenerTexts) -> PrincipalMapping:
    name = given.name("ssl.principal.mapping.rules")
    try:
        return PrincipalMapping(given.text("ssl.principal.mapping.rules") or DEFAULT_RULES)
    except InvalidRules as error:
        raise InvalidConfig(str(error).replace("ssl.principal.mapping.rules", name)) from error


@dataclass(slots=True, frozen=True)
class SaslSettings:
    mechanisms: tuple[str, ...]
    frame_bytes_max: int  # before the login
    # users of PLAIN with their passwords; empty: passwords are checked by the users' SCRAM credentials
    passwords: Mapping[str, str] = field(repr=False)
    session_ms: Mapping[str, int]  # by mechanism; 0: sessions do not end
    refusal_delay_ms: int  # before a refused client is told so
    oauth: OAuthSettings | None  # None: without OAUTHBEARER


def sasl_settings(
    texts: Mapping[str, str], listener: str, *, is_encrypted: bool, is_loopback: bool
) -> SaslSettings:
    """`is_loopback`: nothing comes from another machine. InvalidConfig names what is wrong."""
    given = ListenerTexts(texts, listener)
    name = given.name("sasl.enabled.mechanisms")
    mechanisms = tuple(given.value("sasl.enabled.mechanisms"))
    choice = ", ".join(MECHANISMS)
    for mechanism in mechanisms:
        if mechanism not in MECHANISMS:
            raise InvalidConfig(
                f"{name}={','.join(mechanisms)}: {mechanism} is not served; listener {listener} can have "
                f"{choice}"
            )
    if not mechanisms:
        raise InvalidConfig(f"{name} is empty; listener {listener} can have {choice}")
    for mechanism, secrets in ((PLAIN, "passwords"), (OAUTHBEARER, "tokens")):
        if mechanism in mechanisms and not is_encrypted and not is_loopback:
            raise InvalidConfig(
                f"{name}: {mechanism} sends {secrets} as they are, and listener {listener} has no TLS: use "
                "SASL_SSL, SCRAM-SHA-512, or an address of this machine alone, such as 127.0.0.1"
            )
    return SaslSettings(
        mechanisms,
        given.value("sasl.server.max.receive.size"),
        _passwords(given) if PLAIN in mechanisms else {},
        {mechanism: max(0, given.value("connections.max.reauth.ms", mechanism)) for mechanism in mechanisms},
        given.value("connection.failed.authentication.delay.ms"),
        oauth_settings(given, listener, is_loopback=is_loopback) if OAUTHBEARER in mechanisms else None,
    )


def _passwords(given: ListenerTexts) -> dict[str, str]:
    name = given.name("sasl.jaas.config", PLAIN)
    if ".plain." not in name:
        return {}  # without a mechanism it is for clients, as in Kafka
    text = given.value("sasl.jaas.config", PLAIN)
    try:
        module = parse_jaas(text)
    except InvalidJaas as error:
        raise InvalidConfig(f"{name} cannot be read: {error}") from error
    if module.name != "PlainLoginModule":
        raise InvalidConfig(f"{name} has a {module.name}: must be a PlainLoginModule")
    return passwords_from_options(module.options)
