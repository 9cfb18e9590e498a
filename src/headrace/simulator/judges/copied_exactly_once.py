"""At the end every record has one copy and nothing else was copied; no reader ever sees two copies."""

from collections import Counter

from headrace.simulator.history import CommittedRead, Copied, Event, Violation


class CopiedExactlyOnce:
    name = "copied_exactly_once"

    def __init__(self) -> None:
        self._shown: set[bytes] = set()

    def see(self, event: Event, /) -> None:
        match event:
            case CommittedRead(records=records):
                for _, value in records:
                    original = value.split(b":", 2)[2]
                    if original in self._shown:
                        raise Violation(f"{original[:30]!r} was copied twice")
                    self._shown.add(original)
            case Copied(originals, copies):
                missing = Counter(originals) - Counter(copies)
                foreign = Counter(copies) - Counter(originals)
                if missing or foreign:
                    raise Violation(f"not copied: {list(missing)[:3]}; copied too much: {list(foreign)[:3]}")
            case _:
                pass
