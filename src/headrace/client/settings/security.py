"""Settings of TLS and SASL: `security_settings` checks them all before the first connection.

It finds files that cannot be read, a mechanism that is not supported, a user without a password. Users and
passwords may also be given as `sasl.jaas.config`, in the format of Java's clients, so that their files can be
shared (`machines/security/jaas.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.errors import InvalidInput
from headrace.client.security.oauthbearer import OAuthBearer, TokenProvider, check_extensions
from headrace.client.security.sasl import Mechanism, Plain, Scram
from headrace.client.settings.configuration import Configuration, InvalidSetting
from headrace.machines.security.jaas import InvalidJaas, LoginModule, parse_jaas
from headrace.machines.security.scram import MECHANISMS as SCRAM_MECHANISMS

if TYPE_CHECKING:
    from headrace.client.security.tls import Tls

MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": tuple(SCRAM_MECHANISMS),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}


@dataclass(slots=True, frozen=True)
class Security:
    tls: Tls | None = None
    mechanism: Mechanism | None = None

    @property
    def token_provider(self) -> TokenProvider | None:
        """Where tokens come from, of OAUTHBEARER; shells ask it, since it may take its time."""
        return self.mechanism.provider if isinstance(self.mechanism, OAuthBearer) else None


def security_settings(configuration: Configuration) -> Security | None:
    """None for PLAINTEXT; InvalidSetting names what is wrong."""
    protocol = configuration.text("security.protocol").upper()
    if protocol == "PLAINTEXT":
        return None
    return Security(
        tls=_tls(configuration) if protocol.endswith("SSL") else None,
        mechanism=_mechanism(configuration) if protocol.startswith("SASL") else None,
    )


def _tls(configuration: Configuration) -> Tls:
    # loaded by those who use it: OpenSSL costs every start some milliseconds
    from headrace.client.security.tls import Tls, tls_context

    return Tls(tls_context(configuration))


def _mechanism(configuration: Configuration) -> Mechanism:
    name = configuration.text("sasl.mechanism").upper()
    if name not in MECHANISMS:
        why = f"{name} is not supported" if "sasl.mechanism" in configuration.given else "it must be given"
        raise InvalidSetting(f"sasl.mechanism: {why}; choose one of {', '.join(MECHANISMS)}")
    module = _login_module(configuration, name)
    if name == "OAUTHBEARER":
        return _bearer(configuration, module)
    user = configuration.optional_text("sasl.username") or module.options.get("username")
    password = configuration.optional_text("sasl.password") or module.options.get("password")
    if not user or not password:
        raise InvalidSetting(f"{name} needs sasl.username and sasl.password")
    if "\0" in user + password:
        raise InvalidSetting("sasl.username and sasl.password cannot have a NUL character")
    if name == "PLAIN":
        return Plain(user, password)
    # users of delegation tokens say so (KIP-48)
    is_delegated = module.options.get("tokenauth", "").lower() == "true"
    return Scram(name, user, password, {"tokenauth": "true"} if is_delegated else {})


def _login_module(configuration: Configuration, mechanism: str) -> LoginModule:
    text = configuration.optional_text("sasl.jaas.config")
    if text is None:
        return LoginModule("", {})
    try:
        module = parse_jaas(text)
    except InvalidJaas as error:
        raise InvalidSetting(f"sasl.jaas.config cannot be read: {error}") from error
    mechanisms = _MODULES.get(module.name)
    if mechanisms is None:
        raise InvalidSetting(f"sasl.jaas.config: {module.name} is not supported; use {', '.join(_MODULES)}")
    if mechanism not in mechanisms:
        raise InvalidSetting(f"sasl.jaas.config has a {module.name}, but sasl.mechanism is {mechanism}")
    return module


def _bearer(configuration: Configuration, module: LoginModule) -> OAuthBearer:
    prefix = "extension_"
    extensions = {
        key.removeprefix(prefix): value for key, value in module.options.items() if key.startswith(prefix)
    }
    for pair in configuration.items_of("sasl.oauthbearer.extensions"):
        key, sign, value = pair.partition("=")
        if not sign:
            raise InvalidSetting("sasl.oauthbearer.extensions must have the form key=value,key=value")
        extensions[key.strip()] = value.strip()
    try:
        check_extensions(extensions)
    except InvalidInput as error:
        raise InvalidSetting(str(error)) from error
    return OAuthBearer(_provider(configuration, module), extensions)


def _provider(configuration: Configuration, module: LoginModule) -> TokenProvider:
    given = configuration.given_object("oauth.token.provider")
    given = getattr(given, "token", given)  # kafka-python and aiokafka have an object with this method
    if given is not None:
        if not callable(given):
            raise InvalidSetting("oauth_token_provider must be a function that returns a token")
        return given
    url = configuration.optional_text("sasl.oauthbearer.token.endpoint.url")
    if url is None:
        raise InvalidSetting(
            "OAUTHBEARER needs oauth_token_provider, a function that returns a token, "
            "or sasl.oauthbearer.token.endpoint.url"
        )
    client_id = configuration.optional_text("sasl.oauthbearer.client.id") or module.options.get("clientId")
    secret = configuration.optional_text("sasl.oauthbearer.client.secret")
    secret = secret or module.options.get("clientSecret")
    if not client_id or not secret:
        raise InvalidSetting("a token endpoint needs sasl.oauthbearer.client.id and .client.secret")
    if not url.startswith(("https://", "http://")):
        raise InvalidSetting("sasl.oauthbearer.token.endpoint.url must begin with https:// or http://")
    from headrace.client.security.oidc import ClientCredentials  # as rare as it is heavy to load

    scope = configuration.optional_text("sasl.oauthbearer.scope") or module.options.get("scope")
    return ClientCredentials(url, client_id, secret, scope)
