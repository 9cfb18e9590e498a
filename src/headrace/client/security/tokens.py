"""The OAuth tokens of one client: fetched when a connection wants one, kept while they are fresh.

Fetching takes its time, so the shell does it elsewhere and reports what came of it; whoever asks meanwhile
gets None, and asks again when the shell was woken.
"""

from collections import deque
from collections.abc import Callable

from headrace.base.time import Instant
from headrace.client.errors import InvalidInput, TokenUnavailable
from headrace.client.security.mechanism import Token
from headrace.client.security.oauthbearer import token_from

FRESH_SHARE = 0.8  # of a token's lifetime: behind that, a connection that is made now would soon need another

# Longer than a connection waits for a token: one that was not taken by then was wanted by nobody.
ABANDONED_S = 30.0


class Tokens:
    """`came` and `failed` may be called from another thread than `take`."""

    def __init__(self, fetch: Callable[[], None]) -> None:
        """`fetch` begins to fetch a token, and returns at once."""
        self._fetch = fetch
        self._is_fetching = False
        self._began_at = Instant(0.0)  # when the last one was asked for: a token's time begins no earlier
        self._outcomes: deque[Token | TokenUnavailable] = deque()
        self._kept: Token | None = None
        self._fresh_until = Instant(0.0)

    def take(self, now: Instant) -> Token | None:
        """A token, or None if it is yet to come; TokenUnavailable if it did not."""
        if self._kept is not None and now < self._fresh_until:
            return self._kept
        if not self._outcomes:
            self._begin(now)
            return None
        self._is_fetching = False
        outcome = self._outcomes.popleft()
        if isinstance(outcome, TokenUnavailable):
            raise outcome
        if outcome.lifetime_s is not None:
            # it may have come long ago, for a connection that did not wait for it
            self._fresh_until = Instant(self._began_at + outcome.lifetime_s * FRESH_SHARE)
            if now >= self._fresh_until and now >= self._began_at + ABANDONED_S:
                self._begin(now)
                return None
            self._kept = outcome
        return outcome

    def _begin(self, now: Instant) -> None:
        if not self._is_fetching:
            self._is_fetching = True
            self._began_at = now
            self._fetch()

    def came(self, given: object) -> None:
        """What the provider gave."""
        try:
            self._outcomes.append(token_from(given))
        except InvalidInput as error:
            self.failed(error)

    def failed(self, cause: Exception) -> None:
        if isinstance(cause, TokenUnavailable):
            self._outcomes.append(cause)
            return
        error = TokenUnavailable(f"no OAuth token: {cause or type(cause).__name__}")
        error.__cause__ = cause
        self._outcomes.append(error)
