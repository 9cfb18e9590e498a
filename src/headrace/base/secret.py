"""A password or key that does not show itself: not in a repr, a text, a log, JSON or a trace.

Code that needs the value says so with `reveal()`. Pickles have the value: the tasks of a Spark query, which
get their settings as pickles, could not log in without it.
"""

from typing import Final

HIDDEN: Final = "[hidden]"


class Secret:
    """
    >>> password = Secret("open sesame")
    >>> print(f"{password} {password!r}", {"sasl.password": password})
    [hidden] [hidden] {'sasl.password': [hidden]}
    >>> password.reveal()
    'open sesame'
    """

    __slots__ = ("_value",)

    def __init__(self, value: "str | Secret") -> None:
        self._value: str = value.reveal() if isinstance(value, Secret) else value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        """In a time that does not tell how much of them is equal."""
        from hmac import compare_digest  # brokers without secrets need no cryptography

        return isinstance(other, Secret) and compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> "tuple[type[Secret], tuple[str]]":
        return Secret, (self._value,)


def revealed(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value
