"""PLAIN (RFC 4616): user and password in the clear, to be used inside TLS."""

from dataclasses import dataclass, field

from headrace.base.dice import Dice
from headrace.client.errors import AuthenticationFailed
from headrace.client.security.mechanism import Token


@dataclass(slots=True, frozen=True)
class Plain:
    user: str
    password: str = field(repr=False)
    name: str = field(default="PLAIN", init=False)
    needs_token: bool = field(default=False, init=False)

    def exchange(self, dice: Dice, token: Token | None) -> "PlainExchange":
        return PlainExchange(self.user, self.password)


class PlainExchange:
    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()  # no other identity to act for

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise AuthenticationFailed("the broker asks for more than PLAIN has to say")
        return None
