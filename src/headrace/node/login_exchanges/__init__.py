"""Exchanges: the messages of a login between SaslHandshake and its end, one file per mechanism."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.base.time import Now
from headrace.machines.security.errors import LoginRefused


class Entered(NamedTuple):
    """The client is who it says it is."""

    user: str
    proof: bytes = b""  # the broker's last message
    expires_ms: int | None = None  # by the wall clock: when what it showed expires
    token_id: str | None = None  # of a delegation token that it has shown


class Challenge(NamedTuple):
    """The broker's message; the client has to answer it."""

    message: bytes


Outcome = Entered | Challenge
Then = Callable[[Now, Outcome | LoginRefused], None]


class Exchange(Protocol):
    user: str  # who the client says it is, as soon as that is known

    def step(self, now: Now, message: bytes, then: Then, /) -> Outcome | None:
        """The client's next message. None: it takes a while, and `then` is called. LoginRefused ends it."""
        ...

    def abandon(self) -> None:
        """The client has gone: what is not checked yet need not be checked any more."""
        ...
