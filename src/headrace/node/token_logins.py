"""Settings of a node that logs in at others with a token (OAUTHBEARER): where the token comes from.

As in Kafka's own login callback handler (KIP-768): `sasl.oauthbearer.token.endpoint.url` is an identity
provider that hands out tokens for an id and a secret (client credentials), or a file with a token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.machines.configs.values import InvalidConfig
from headrace.machines.security.jaas import InvalidJaas, parse_jaas
from headrace.machines.security.login_tokens import RefreshRules
from headrace.node.listener_texts import ListenerTexts
from headrace.node.oauth_settings import OAUTHBEARER, check_url

URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # nosec B105  # its key
SCOPE = "sasl.oauthbearer.scope"
# The same in the JAAS configuration, as before Kafka 4.1.
_JAAS_OPTIONS = {CLIENT_ID: "clientId", CLIENT_SECRET: "clientSecret", SCOPE: "scope"}


@dataclass(slots=True, frozen=True)
class TokenLogin:
    url: str
    client_id: str  # empty: the token is in a file
    client_secret: str = field(repr=False)
    scope: str
    refresh: RefreshRules
    mechanism: str = field(default=OAUTHBEARER, init=False)


def token_login(texts: Mapping[str, str], listener: str) -> TokenLogin:
    """InvalidConfig names what is wrong or missing."""
    given = ListenerTexts(texts, listener)
    options = _jaas_options(texts, given)

    def text(key: str) -> str:
        value = given.value(key, OAUTHBEARER)
        return str(value) if value else options.get(_JAAS_OPTIONS.get(key, ""), "")

    url = text(URL).strip()
    if not url:
        raise InvalidConfig(
            f"{given.mechanism_name(URL, OAUTHBEARER)} is missing: nodes log in at listener {listener} with "
            "a token from there. Set it to the identity provider's https://…, or to file:///… with a token."
        )
    why = "the client's secret and the token are sent to it"
    check_url(given.name(URL, OAUTHBEARER), url, why)
    is_file = url.startswith("file:")
    if not is_file and not (text(CLIENT_ID) and text(CLIENT_SECRET)):
        raise InvalidConfig(
            f"{CLIENT_ID} and {CLIENT_SECRET} are missing: {url} hands out tokens to clients that it knows"
        )
    return TokenLogin(
        url,
        "" if is_file else text(CLIENT_ID),
        "" if is_file else text(CLIENT_SECRET),
        "" if is_file else text(SCOPE),
        _refresh(given),
    )


def _jaas_options(texts: Mapping[str, str], given: ListenerTexts) -> Mapping[str, str]:
    """Kafka wants the module; here it may be missing."""
    key = given.mechanism_name("sasl.jaas.config", OAUTHBEARER)
    if key not in texts:
        return {}
    try:
        module = parse_jaas(texts[key])
    except InvalidJaas as error:
        raise InvalidConfig(f"{key} cannot be read: {error}") from error
    if module.name != "OAuthBearerLoginModule":
        raise InvalidConfig(f"{key} has a {module.name}: must be an OAuthBearerLoginModule")
    return module.options


def _refresh(given: ListenerTexts) -> RefreshRules:
    def number(key: str) -> float:
        return float(given.value(f"sasl.login.{key}", OAUTHBEARER))

    return RefreshRules(
        window_factor=min(1.0, max(0.5, number("refresh.window.factor"))),  # Kafka's bounds
        window_jitter=min(0.25, max(0.0, number("refresh.window.jitter"))),
        min_period_s=min(900.0, max(0.0, number("refresh.min.period.seconds"))),
        buffer_s=min(3600.0, max(0.0, number("refresh.buffer.seconds"))),
        retry_ms=max(1, int(number("retry.backoff.ms"))),
        retry_ms_max=max(1, int(number("retry.backoff.max.ms"))),
    )
