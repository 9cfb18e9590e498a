"""A producer reports the result of each record that it accepted, and reports it once.

At the end of a run, when all faults have ended, every result must be reported. A producer that was killed
need not report anything.
"""

from headrace.simulator.history import BatchSent, DeliverySettled, Event, Violation


class DeliveriesToldOnce:
    name = "deliveries_told_once"

    def __init__(self) -> None:
        self._untold: set[tuple[str, bytes]] = set()

    def see(self, event: Event, /) -> None:
        match event:
            case BatchSent(producer=producer, values=values):
                self._untold.update((producer, value) for value in values)
            case DeliverySettled(producer, value):
                if (producer, value) not in self._untold:
                    raise Violation(f"{producer} tells again what became of {value[:20]!r}")
                self._untold.remove((producer, value))
            case _:
                pass
