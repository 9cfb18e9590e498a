"""SCRAM credentials of delegation tokens, made in a thread when a token is first used.

The tasks of a big job all come with one token at once: its credential is made once for all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.base.time import Now
from headrace.machines.security.delegation_tokens import DelegationToken, DelegationTokens
from headrace.machines.security.scram import (
    ITERATIONS_MIN,
    Credential,
    Mechanism,
    credential_from_password,
)
from headrace.node.ports import Jobs
from headrace.storage.disk import Disk
from headrace.storage.jobs import JobKind

QUEUE = "login-token"

Made = Callable[[Now, Credential | None], None]  # None: it could not be made


@dataclass(slots=True, frozen=True)
class MakeCredential:
    """PBKDF2 takes milliseconds, and releases the interpreter meanwhile."""

    mechanism: Mechanism
    password: str = field(repr=False)
    salt: bytes

    @property
    def kind(self) -> JobKind:
        return JobKind.PATIENT

    def run(self, disk: Disk, /) -> Credential:
        return credential_from_password(self.mechanism, self.password, self.salt, ITERATIONS_MIN)


class TokenCredentials:
    __slots__ = ("_directory", "_jobs", "_making", "_tokens")

    def __init__(self, tokens: DelegationTokens, jobs: Jobs, directory: str) -> None:
        self._tokens = tokens
        self._jobs = jobs
        self._directory = directory
        self._making: dict[tuple[str, str], list[Made]] = {}  # by token and mechanism: who waits

    def token(self, token_id: str, now: Now) -> DelegationToken | None:
        """None if there is none, or it has expired."""
        return self._tokens.usable(token_id, now.wall_ms)

    def known(self, token: DelegationToken, mechanism: Mechanism) -> Credential | None:
        return self._tokens.credential(token.token_id, mechanism)

    def make(self, token: DelegationToken, mechanism: Mechanism, then: Made) -> None:
        token_id = token.token_id
        key = token_id, mechanism.name
        if key in self._making:
            self._making[key].append(then)
            return
        self._making[key] = [then]
        job = MakeCredential(
            mechanism, self._tokens.password(token_id), self._tokens.salt(token_id, mechanism)
        )

        def made(now: Now, result: object) -> None:
            credential = result if isinstance(result, Credential) else None
            if credential is not None:
                self._tokens.keep(token_id, mechanism, credential)
            for one in self._making.pop(key):
                one(now, credential)

        self._jobs.run(self._directory, QUEUE, job, made)
