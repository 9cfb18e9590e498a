"""The token with which a node logs in at others: which one counts, and when the next one is to be fetched.

A new token comes before the old one ends, by Kafka's rules (`sasl.login.refresh.*`). If it does not come, the
old one counts as long as it is valid, and another try follows, later each time.
"""

from dataclasses import dataclass

from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.json_web_tokens import read_claims, read_token
from headrace.machines.security.oauthbearer import moment

_PARTS = 1000  # of the jitter


@dataclass(slots=True, frozen=True)
class RefreshRules:
    window_factor: float  # share of a token's lifetime after which the next one is fetched
    window_jitter: float  # up to so much later
    min_period_s: float  # but not before this
    buffer_s: float  # and so long before the end
    retry_ms: int  # the first time that it cannot be fetched; then twice as long each time
    retry_ms_max: int


class LoginToken:
    def __init__(self, rules: RefreshRules, rng: Randomness) -> None:
        self._rules = rules
        self._rng = rng
        self._value: str | None = None
        self._expires_ms = 0
        self._retry_ms = rules.retry_ms
        self.next_at = Instant(0.0)  # when to fetch the next one

    def current(self, now: Now) -> str | None:
        """None: there is none, or it has expired."""
        return self._value if now.wall_ms < self._expires_ms else None

    def came(self, now: Now, text: str) -> None:
        """LoginRefused if it cannot be a token, or has expired. Its signature is for the others to check."""
        value = text.strip()
        expires_ms = int(moment(read_claims(read_token(value)), "exp") * 1000)
        left_s = (expires_ms - now.wall_ms) / 1000
        if left_s <= 0:
            raise LoginRefused("the token has expired")
        self._value, self._expires_ms = value, expires_ms
        self._retry_ms = self._rules.retry_ms
        self.next_at = Instant(now.mono + self._wait_s(left_s))

    def _wait_s(self, left_s: float) -> float:
        rules = self._rules
        jitter = rules.window_jitter * self._rng.randrange(_PARTS) / _PARTS
        wait_s = left_s * min(1.0, rules.window_factor + jitter)  # not behind its end
        if rules.min_period_s + rules.buffer_s < left_s:  # else neither counts, as in Kafka
            wait_s = min(max(wait_s, rules.min_period_s), left_s - rules.buffer_s)
        return wait_s

    def failed(self, now: Now) -> None:
        """None came, or not a good one."""
        self.next_at = now.after_ms(self._retry_ms)
        self._retry_ms = min(2 * self._retry_ms, self._rules.retry_ms_max)
