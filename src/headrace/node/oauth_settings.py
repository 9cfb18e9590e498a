"""Settings of OAUTHBEARER: where the keys of the identity provider are, and what a token must say."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from headrace.base.extras import missing_text
from headrace.machines.configs.unserved import is_loopback
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.security.oauthbearer import ClaimRules
from headrace.machines.security.signing_keys import is_installed
from headrace.node.listener_texts import ListenerTexts

OAUTHBEARER = "OAUTHBEARER"
URL = "sasl.oauthbearer.jwks.endpoint.url"
UNSIGNED = "headrace.oauthbearer.unsigned.tokens"


@dataclass(slots=True, frozen=True)
class KeySettings:
    """How the keys are fetched."""

    url: str
    refresh_ms: int
    retry_ms: int  # the first time; then twice as long each time
    retry_ms_max: int


@dataclass(slots=True, frozen=True)
class OAuthSettings:
    rules: ClaimRules
    keys: KeySettings | None  # None: tokens are not signed


def oauth_settings(given: ListenerTexts, listener: str, *, is_loopback: bool) -> OAuthSettings:
    """InvalidConfig names what is wrong or missing."""

    def value(key: str) -> object:
        return given.value(key, OAUTHBEARER)

    skew = given.value("sasl.oauthbearer.clock.skew.seconds", OAUTHBEARER)
    issuer = value("sasl.oauthbearer.expected.issuer")
    rules = ClaimRules(
        issuer=str(issuer) if issuer else None,
        audiences=frozenset(given.value("sasl.oauthbearer.expected.audience", OAUTHBEARER)),
        clock_skew_s=max(0, skew),
        subject_claim=str(value("sasl.oauthbearer.sub.claim.name")),
        scope_claim=str(value("sasl.oauthbearer.scope.claim.name")),
    )
    url = value(URL)
    if value(UNSIGNED):
        name = given.name(UNSIGNED, OAUTHBEARER)
        if not is_loopback:
            raise InvalidConfig(
                f"{name}=true lets clients be whoever they say, and listener {listener} can be reached from "
                f"other machines: use an address of this machine alone, such as 127.0.0.1, or set {URL}"
            )
        if url:
            raise InvalidConfig(f"{name}=true and {given.name(URL, OAUTHBEARER)} exclude each other: use one")
        return OAuthSettings(rules, None)
    if not isinstance(url, str) or not url.strip():
        raise InvalidConfig(
            f"sasl.enabled.mechanisms: OAUTHBEARER of listener {listener} needs {URL}: where the keys of the "
            "identity provider are, as https://… or file:///…"
        )
    why = "whoever can change the keys on their way can log in as anybody"
    check_url(given.name(URL, OAUTHBEARER), url.strip(), why)
    if not is_installed():
        raise InvalidConfig(missing_text("jwt", "sasl.enabled.mechanisms: OAUTHBEARER"))
    return OAuthSettings(
        rules,
        KeySettings(
            url.strip(),
            max(1000, given.value("sasl.oauthbearer.jwks.endpoint.refresh.ms", OAUTHBEARER)),
            max(1, given.value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", OAUTHBEARER)),
            max(1, given.value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", OAUTHBEARER)),
        ),
    )


def check_url(name: str, url: str, why: str) -> None:
    """InvalidConfig unless the way to it is safe; `why` says what else could happen."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidConfig(f"{name}={url}: is not a URL") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidConfig(f"{name}: the URL must not have a user or a password, which logs would show")
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and host and is_loopback(host):
        return
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return
    raise InvalidConfig(
        f"{name}={url}: must be https://…, file:///… with a whole path, or http:// with an address of this "
        f"machine: {why}"
    )
