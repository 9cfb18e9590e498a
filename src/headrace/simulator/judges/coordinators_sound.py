"""After every call, a coordinator's counts, indexes and timers agree with its members and transactions."""

from headrace.simulator.history import Event, InvariantBroken, Violation


class CoordinatorsSound:
    name = "coordinators_sound"

    def see(self, event: Event, /) -> None:
        if isinstance(event, InvariantBroken):
            raise Violation(f"{event.partition}: {event.fault}")
