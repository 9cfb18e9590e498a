"""OAUTHBEARER: a token of an identity provider, or the client's acknowledgement that it is refused.

A token that was signed with an unknown key waits until newer keys have been fetched, if that is due.
"""

from collections.abc import Callable
from functools import partial

from headrace.base.time import Now
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.oauthbearer import Bearer, BearerLogin, BearerMessage, error_json
from headrace.machines.security.signing_keys import UnknownKey
from headrace.node.bearer_checks import BearerCheck
from headrace.node.login_exchanges import Challenge, Entered, Outcome, Then


class BearerExchange:
    __slots__ = ("_check", "_login", "_take_back", "user")

    def __init__(self, check: BearerCheck) -> None:
        self._check = check
        self._login = BearerLogin()
        self._take_back: Callable[[], None] | None = None  # the wait for newer keys
        self.user = ""  # whatever an unchecked token says

    def step(self, now: Now, message: bytes, then: Then, /) -> Outcome | None:
        said = self._login.read(message)
        try:
            bearer = self._check.check(said.token, now)
        except UnknownKey as refusal:
            again = partial(self._again, said=said, then=then)
            self._take_back = self._check.wait(now, said.token, again)
            return None if self._take_back is not None else self._refuse(refusal)
        except LoginRefused as refusal:
            return self._refuse(refusal)
        return self._enter(bearer)

    def abandon(self) -> None:
        if self._take_back is not None:
            self._take_back()
            self._take_back = None

    def _again(self, now: Now, said: BearerMessage, then: Then) -> None:
        """With newer keys."""
        self._take_back = None
        outcome: Outcome | LoginRefused
        try:
            bearer = self._check.check(said.token, now)
        except LoginRefused as refusal:
            outcome = self._refuse(refusal)
        else:
            try:
                outcome = self._enter(bearer)
            except LoginRefused as refusal:
                outcome = refusal
        then(now, outcome)

    def _enter(self, bearer: Bearer) -> Entered:
        return Entered(bearer.name, self._login.accept(bearer.name), bearer.expires_ms)

    def _refuse(self, refusal: LoginRefused) -> Challenge:
        """The client is told in JSON, and the login fails when it has acknowledged that."""
        return Challenge(self._login.refuse(str(refusal), error_json()))
