"""What a SASL mechanism is to those who carry its messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.base.dice import Dice


@dataclass(slots=True, frozen=True)
class Token:
    """What a bearer shows (RFC 6750): usually a JWT from an identity provider."""

    value: str = field(repr=False)
    lifetime_s: float | None = None  # from when it was handed out; None: not known, so it is used once
    extensions: Mapping[str, str] = field(default_factory=dict)


class Exchange(Protocol):
    """One conversation of a mechanism, from the client's side."""

    def first(self) -> bytes:
        """What the client opens with."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """What to say next; None when the broker has shown all it had to. AuthenticationFailed if it
        cannot.
        """
        ...


class Mechanism(Protocol):
    """A way to prove who we are, with what it takes to do so."""

    @property
    def name(self) -> str: ...

    @property
    def needs_token(self) -> bool:
        """Whether `exchange` must be given a token."""
        ...

    @property
    def user(self) -> str:
        """Whom to name when the broker refuses; empty if only the token knows."""
        ...

    def exchange(self, dice: Dice, token: Token | None) -> Exchange: ...
