"""Security of a listener: what its settings say about TLS.

A key may be set for one listener alone, with the prefix `listener.name.<name>.` and the name in lower case;
otherwise the key without a prefix counts, then its default. Files are not read here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.machines.configs.topic import broker_value
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.security.principal_mapping import DEFAULT_RULES, InvalidRules, PrincipalMapping

TLS_PROTOCOLS = frozenset(("SSL", "SASL_SSL"))
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class ListenerTexts:
    """The texts of a settings file as one listener sees them."""

    def __init__(self, texts: Mapping[str, str], listener: str) -> None:
        self._texts = texts
        self._prefix = f"listener.name.{listener.lower()}."

    def name(self, key: str) -> str:
        """The name by which the key is set; the key itself if it is not."""
        own = self._prefix + key
        return own if own in self._texts else key

    def value(self, key: str) -> Any:
        """The typed value; InvalidConfig names the setting."""
        name = self.name(key)
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
