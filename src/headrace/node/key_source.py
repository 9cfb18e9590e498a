"""The keys of an identity provider, fetched from one URL and kept up to date.

They are fetched when the node starts and every `sasl.oauthbearer.jwks.endpoint.refresh.ms`. A token that was
signed with a key that is not among them has them fetched again, at most every ten seconds, however many such
tokens come. If they cannot be fetched, the old ones stay, and it is tried again after a while.

Tokens that wait for the keys are checked a few at a time, with others served in between. Those of clients
that have gone are not.
"""

from collections.abc import Callable
from itertools import islice

from headrace.base.time import Instant, Now
from headrace.machines.security.signing_keys import SigningKeys, read_key_set
from headrace.node.oauth_settings import KeySettings
from headrace.node.ports import Once, Ports

DOCUMENT_BYTES_MAX = 1024 * 1024

# An unknown key is not worth more: anybody can make a token that names one.
UNKNOWN_KEY_EVERY_S = 10.0

# Tokens of logins that wait for the keys, and their bytes: a thousand usual ones, or some hundred of the
# longest. More are refused at once.
WAITING_MAX = 1000
WAITING_BYTES_MAX = 8 * 1024 * 1024

# So many of them are checked at once when the keys are here: 50 microseconds each, or 600 with a signature.
CHECKED_AT_ONCE = 10
PAUSE_MS = 1


class WaitingToken:
    __slots__ = ("size", "then")

    def __init__(self, size: int, then: Callable[[Now], None]) -> None:
        self.size = size
        self.then = then


class KeySource:
    __slots__ = (
        "_began_at",
        "_checked",
        "_deadlines",
        "_document",
        "_failures",
        "_is_fetching",
        "_jobs",
        "_lifecycle",
        "_reports",
        "_settings",
        "_turn",
        "_waiting",
        "_waiting_bytes",
        "keys",
    )

    def __init__(self, settings: KeySettings, ports: Ports) -> None:
        self._settings = settings
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._is_fetching = False
        self._began_at = Instant(float("-inf"))
        self._document = b""  # the last one that could be read
        self._failures = 0  # since then
        self._turn = 0  # of the timer that counts
        self._waiting: dict[WaitingToken, None] = {}  # for the keys
        self._checked: dict[WaitingToken, None] = {}  # for their turn: the keys are here
        self._waiting_bytes = 0  # of both
        self.keys = SigningKeys()

    def fetch(self, now: Now) -> None:
        """Unless that is under way."""
        if self._is_fetching or self._lifecycle.is_stopping:
            return
        self._is_fetching = True
        self._began_at = now.mono
        self._jobs.fetch(self._settings.url, DOCUMENT_BYTES_MAX, self._fetched)

    def wait(self, now: Now, size: int, then: Callable[[Now], None]) -> WaitingToken | None:
        """The key of a token of this size was not found. `then` is called when they have been fetched, or
        could not be, unless `drop` is called before. None: they were fetched a moment ago, or too many wait.
        """
        if not self._is_fetching and now.mono - self._began_at >= UNKNOWN_KEY_EVERY_S:
            self.fetch(now)
        count = len(self._waiting) + len(self._checked)
        if not self._is_fetching or count >= WAITING_MAX or self._waiting_bytes + size > WAITING_BYTES_MAX:
            return None
        waiting = WaitingToken(size, then)
        self._waiting_bytes += size
        self._waiting[waiting] = None
        return waiting

    def drop(self, waiting: WaitingToken) -> None:
        """Its client has gone."""
        for some in (self._waiting, self._checked):
            if waiting in some:
                del some[waiting]
                self._waiting_bytes -= waiting.size

    def _fetched(self, now: Now, result: object) -> None:
        self._is_fetching = False
        try:
            if isinstance(result, Exception):
                raise ValueError(str(result) or type(result).__name__)
            assert isinstance(result, bytes)
            if result != self._document:
                self._take(result)
            self._failures = 0
        except ValueError as error:
            self._failures += 1
            self._reports.report(
                "error", "signing_keys_not_fetched", url=self._settings.url, reason=str(error)
            )
        self._fetch_later(now)
        is_checking = bool(self._checked)
        self._checked.update(self._waiting)
        self._waiting.clear()
        if not is_checking:
            self._check_some(now)

    def _check_some(self, now: Now) -> None:
        try:
            for waiting in list(islice(self._checked, CHECKED_AT_ONCE)):
                if waiting in self._checked:
                    self.drop(waiting)
                    waiting.then(now)
        finally:  # also after a mistake of ours: the others have not been asked yet
            if self._checked:
                Once(self._deadlines, now.after_ms(PAUSE_MS), self._check_some)

    def _take(self, document: bytes) -> None:
        self.keys = read_key_set(document)
        self._document = document
        self._reports.report("info", "signing_keys_fetched", url=self._settings.url, keys=len(self.keys))

    def _fetch_later(self, now: Now) -> None:
        settings = self._settings
        delay_ms = settings.refresh_ms
        if self._failures:
            doubled = settings.retry_ms * 2 ** min(self._failures - 1, 30)
            delay_ms = min(delay_ms, settings.retry_ms_max, doubled)
        self._turn += 1
        turn = self._turn

        def due(now: Now) -> None:
            if turn == self._turn:  # they were not fetched meanwhile for another reason
                self.fetch(now)

        Once(self._deadlines, now.after_ms(delay_ms), due)
