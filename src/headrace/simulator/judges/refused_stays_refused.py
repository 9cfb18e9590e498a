"""The node refuses a forbidden request every time, whatever it has stored about the connection."""

from headrace.protocol.errors import ErrorCode
from headrace.simulator.history import Event, ForgeryAnswered, Violation


class RefusedStaysRefused:
    name = "refused_stays_refused"

    def see(self, event: Event, /) -> None:
        if isinstance(event, ForgeryAnswered) and event.error_code == ErrorCode.NONE:
            raise Violation(f"{event.client} wrote to {event.topic} by a request that has to be refused")
