"""Which topics the application wants: by their names, or by a pattern of names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.client.errors import InvalidInput


@dataclass(slots=True, frozen=True)
class Subscription:
    """Exactly one of the three says what is wanted."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None  # matched here, against whole names
    broker_pattern: str | None = None  # matched by the broker (RE2 syntax, consumer protocol only)

    def selects(self, topic: str) -> bool:
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return topic in self.topics


def subscription_of(
    topics: Iterable[str] | str, pattern: str | re.Pattern[str] | None, broker_pattern: str | None
) -> Subscription:
    """From what an application says; text instead of a list is one topic."""
    names = frozenset([topics] if isinstance(topics, str) else topics)
    if bool(names) + (pattern is not None) + (broker_pattern is not None) != 1:
        raise InvalidInput("subscribe needs topics, a pattern, or a broker_pattern; exactly one of them")
    for name in names:
        if name.startswith("^"):
            raise InvalidInput(f"{name!r} is no topic; say subscribe(pattern={name!r}) to find topics")
    if isinstance(pattern, str):
        try:
            pattern = re.compile(pattern)
        except re.error as error:
            raise InvalidInput(f"{pattern!r} is no regular expression: {error}") from error
    return Subscription(names, pattern, broker_pattern)
