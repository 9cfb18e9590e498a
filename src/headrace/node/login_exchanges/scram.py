"""SCRAM: two messages of the client, and the credentials of the cluster's users, or of delegation tokens."""

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.machines.security.delegation_tokens import USER_PREFIX
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.scram import Credential, Mechanism, ScramLogin
from headrace.node.login_exchanges import Challenge, Entered, Outcome, Then
from headrace.node.scram_users import ScramUsers
from headrace.node.token_credentials import TokenCredentials


class ScramExchange:
    __slots__ = ("_credential", "_is_token", "_mechanism", "_scram", "_tokens", "_users", "user")

    def __init__(
        self, mechanism: Mechanism, users: ScramUsers, tokens: TokenCredentials | None, rng: Randomness
    ) -> None:
        """Without `tokens` nobody logs in with one."""
        self._mechanism = mechanism
        self._users = users
        self._tokens = tokens
        self._scram = ScramLogin(mechanism, rng, users.secret)
        self.user = ""  # or the id of a token
        self._is_token = False
        self._credential: Credential | None = None  # of a user

    def step(self, now: Now, message: bytes, then: Then, /) -> Outcome | None:
        if self.user:
            proof = self._scram.finish(message)
            if self._is_token:
                return self._owner(now, proof)
            # who knows an old password could begin before the change, and wait as long as it likes
            if self._users.credential(self.user, self._mechanism) is not self._credential:
                raise LoginRefused("the password was changed meanwhile")
            return Entered(self.user, proof)
        first = self._scram.read_first(message)
        self.user, self._is_token = first.user, first.is_token
        if not first.is_token:
            self._credential = self._users.credential(first.user, self._mechanism)
            return self._challenge(self._credential)
        token = self._tokens.token(first.user, now) if self._tokens is not None else None
        if token is None or self._tokens is None:
            return self._challenge(None)
        known = self._tokens.known(token, self._mechanism)
        if known is not None:
            return self._challenge(known)
        self._tokens.make(token, self._mechanism, lambda now, made: then(now, self._challenge(made)))
        return None

    def abandon(self) -> None:
        pass

    def _challenge(self, credential: Credential | None) -> Challenge:
        return Challenge(self._scram.challenge(credential, self._users.like(self._mechanism, self.user)))

    def _owner(self, now: Now, proof: bytes) -> Entered:
        """Whoever knows the secret of a token is its owner, as long as there is the token."""
        assert self._tokens is not None
        token = self._tokens.token(self.user, now)
        if token is None:
            raise LoginRefused("the delegation token has expired meanwhile")
        if not token.owner.startswith(USER_PREFIX):
            raise LoginRefused("the owner of the delegation token is not a user")
        return Entered(token.owner.removeprefix(USER_PREFIX), proof, token.ends_ms, token.token_id)
