"""The check of bearer tokens, for logins with OAUTHBEARER and for requests by HTTP.

    bearer_checks.of(listener, now).check(token, now) → Bearer(name, expires_ms, …), or LoginRefused

A listener has its own settings, with the prefix `listener.name.<name>.`; those that name the same URL share
its keys.
"""

from collections.abc import Callable, Mapping
from functools import partial

from headrace.base.time import Now
from headrace.machines.security.bearer_tokens import check_bearer, check_unsigned_bearer
from headrace.machines.security.oauthbearer import Bearer
from headrace.node.key_source import KeySource
from headrace.node.listener_texts import ListenerTexts
from headrace.node.oauth_settings import OAuthSettings, oauth_settings
from headrace.node.ports import Ports


class BearerCheck:
    """By the settings of one listener."""

    __slots__ = ("_rules", "_source")

    def __init__(self, settings: OAuthSettings, source: KeySource | None) -> None:
        self._rules = settings.rules
        self._source = source  # None: tokens are not signed

    def check(self, token: str, now: Now) -> Bearer:
        """Who the token belongs to, and until when. LoginRefused says why it is not valid, for the log;
        it is UnknownKey if the keys that are being fetched may tell (see `wait`).

        The signature is checked here, and not in a thread, which would not run beside the loop: RS256 takes
        45 µs, ES256 and EdDSA 130 µs, ES384 and ES512 600 µs.
        """
        if self._source is None:
            return check_unsigned_bearer(token, self._rules, now.wall_ms)
        return check_bearer(token, self._source.keys, self._rules, now.wall_ms)

    def wait(self, now: Now, token: str, then: Callable[[Now], None]) -> Callable[[], None] | None:
        """After UnknownKey: `then` is called when it makes sense to check the token once more, unless what is
        returned is called before, because the client has gone. None: it makes no sense.
        """
        source = self._source
        waiting = None if source is None else source.wait(now, len(token), then)
        return None if source is None or waiting is None else partial(source.drop, waiting)


class BearerChecks:
    """Of one node."""

    __slots__ = ("_checks", "_ports", "_sources", "_texts")

    def __init__(self, texts: Mapping[str, str], ports: Ports) -> None:
        self._texts = texts
        self._ports = ports
        self._checks: dict[str, BearerCheck] = {}  # by listener
        self._sources: dict[str, KeySource] = {}  # by URL

    def of(self, listener: str, now: Now, *, is_loopback: bool = False) -> BearerCheck:
        """InvalidConfig: there are no settings for it. `is_loopback` allows tokens without a signature, where
        the settings do.
        """
        check = self._checks.get(listener)
        if check is None:
            given = ListenerTexts(self._texts, listener)
            settings = oauth_settings(given, listener, is_loopback=is_loopback)
            check = self._checks[listener] = BearerCheck(settings, self._source(settings, now))
        return check

    def _source(self, settings: OAuthSettings, now: Now) -> KeySource | None:
        if settings.keys is None:
            return None
        source = self._sources.get(settings.keys.url)
        if source is None:
            source = self._sources[settings.keys.url] = KeySource(settings.keys, self._ports)
            source.fetch(now)
        return source
