"""The last stable offset does not pass records of a transaction before its producer has asked for the end.

This is checked for transactions that their own producer ended. A transaction that took too long is aborted
without a request.
"""

from headrace.simulator.history import EndAsked, Event, TransactionEnded, Violation


class OpenRecordsStayUnstable:
    name = "open_records_stay_unstable"

    def __init__(self) -> None:
        self._passed: dict[tuple[str, int], str] = {}

    def see(self, event: Event, /) -> None:
        match event:
            case EndAsked(copier, number, passed):
                self._passed[copier, number] = passed
            case TransactionEnded(copier, number):
                passed = self._passed.get((copier, number), "")
                if passed:
                    raise Violation(f"{copier}.{number} had not ended, and could be read in {passed}")
            case _:
                pass
