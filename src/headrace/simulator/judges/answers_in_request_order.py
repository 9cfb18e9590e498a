"""Each answer on a connection is for its oldest unanswered request."""

from headrace.simulator.history import AnswerLeft, Event, Violation


class AnswersInRequestOrder:
    name = "answers_in_request_order"

    def see(self, event: Event, /) -> None:
        if isinstance(event, AnswerLeft) and event.correlation_id != event.expected_id:
            raise Violation(
                f"{event.client} was answered request {event.correlation_id} while "
                + (f"{event.expected_id} was next" if event.expected_id >= 0 else "none was open")
            )
