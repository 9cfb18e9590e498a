"""At the end every record has one copy and nothing else was copied; no reader ever sees two copies.

The source itself may have a record twice once its producer has given a batch up: the producer then numbers
the batches behind it again, and one of those may be in the log of the next leader (as with Kafka's own
producer). From then on only the end tells.
"""

from collections import Counter

from headrace.simulator.history import CommittedRead, Copied, DeliverySettled, Event, Violation


class CopiedExactlyOnce:
    name = "copied_exactly_once"

    def __init__(self) -> None:
        self._shown: set[bytes] = set()
        self._may_be_doubled = False

    def see(self, event: Event, /) -> None:
        match event:
            case DeliverySettled(why_not=why_not):
                self._may_be_doubled |= bool(why_not)
            case CommittedRead(records=records) if not self._may_be_doubled:
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
