"""A coordinator's counts, indexes and timers are what its members and transactions say, after every call."""

from headrace.simulator.history import Event, InvariantBroken, Violation


class CoordinatorsSound:
    name = "coordinators_sound"

    def see(self, event: Event, /) -> None:
        if isinstance(event, InvariantBroken):
            raise Violation(f"{event.partition}: {event.fault}")
