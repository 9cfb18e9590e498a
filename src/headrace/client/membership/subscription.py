"""Which topics the application wants: by their names, or by a pattern of names."""

import re
from dataclasses import dataclass


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
