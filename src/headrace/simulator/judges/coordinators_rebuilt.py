"""A coordinator that is rebuilt from the log equals the one that wrote the log."""

from headrace.simulator.history import CoordinatorCompared, Event, Violation


class CoordinatorsRebuilt:
    name = "coordinators_rebuilt"

    def see(self, event: Event, /) -> None:
        if isinstance(event, CoordinatorCompared) and event.difference:
            raise Violation(f"{event.partition}: {event.difference}")
