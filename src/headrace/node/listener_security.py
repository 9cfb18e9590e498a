"""Security of a listener: what its settings say about TLS and SASL.

A key may be set for one listener alone, with the prefix `listener.name.<name>.` and the name in lower case;
otherwise the key without a prefix counts, then its default. Files are not read here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.machines.configs.topic import broker_value
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.security.jaas import InvalidJaas, parse_jaas
from headrace.machines.security.plain import passwords_from_options
from headrace.machines.security.principal_mapping import DEFAULT_RULES, InvalidRules, PrincipalMapping
from headrace.machines.security.scram import MECHANISMS as SCRAM_MECHANISMS

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class ListenerTexts:
    """The texts of a settings file as one listener sees them."""

    def __init__(self, texts: Mapping[str, str], listener: str) -> None:
        self._texts = texts
        self._prefix = f"listener.name.{listener.lower()}."

    def name(self, key: str, mechanism: str = "") -> str:
        """The name by which the key is set; the key itself if it is not."""
        if mechanism:
            own = f"{self._prefix}{mechanism.lower()}.{key}"
            if own in self._texts:
                return own
        own = self._prefix + key
        return own if own in self._texts else key

    def value(self, key: str, mechanism: str = "") -> Any:
        """The typed value; InvalidConfig names the setting. Of a mechanism it may be another one."""
        name = self.name(key, mechanism)
        try:
            return broker_value(key, ({key: self._texts[name]},) if name in self._texts else ())
        except InvalidConfig as error:
            raise InvalidConfig(str(error).replace(key, name)) from error

    def text(self, key: str) -> str | None:
        """None if it is not set, or empty."""
        value = self.value(key)
        return value if isinstance(value, str) and value.strip() else None


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
    mapping: PrincipalMapping


_FILES_AND_TEXTS = (
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
)


def tls_settings(texts: Mapping[str, str], listener: str) -> TlsSettings:
    """InvalidConfig names what is wrong or missing."""
    given = ListenerTexts(texts, listener)
    values = {key: given.text(key) for key in _FILES_AND_TEXTS}
    chain, key = values["ssl.keystore.certificate.chain"], values["ssl.keystore.key"]
    if values["ssl.keystore.location"] is None and (chain is None or key is None):
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
    if client_auth != "none" and not (
        values["ssl.truststore.location"] or values["ssl.truststore.certificates"]
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
    )


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


def sasl_settings(texts: Mapping[str, str], listener: str, *, is_open: bool) -> SaslSettings:
    """`is_open`: what it receives is not encrypted, and may come from another machine. InvalidConfig names
    what is wrong.
    """
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
    if PLAIN in mechanisms and is_open:
        raise InvalidConfig(
            f"{name}: PLAIN sends passwords as they are, and listener {listener} has no TLS: use SASL_SSL, "
            "SCRAM-SHA-512, or an address of this machine alone, such as 127.0.0.1"
        )
    return SaslSettings(
        mechanisms,
        given.value("sasl.server.max.receive.size"),
        _passwords(given) if PLAIN in mechanisms else {},
        {mechanism: max(0, given.value("connections.max.reauth.ms", mechanism)) for mechanism in mechanisms},
        given.value("connection.failed.authentication.delay.ms"),
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
