"""read_committed consumers see no record of a transaction before its producer has asked for the commit."""

from headrace.simulator.history import (
    CommitOfTransactionAsked,
    CommittedRead,
    Event,
    TransactionBegun,
    Violation,
)


class NoUncommittedReads:
    name = "no_uncommitted_reads"

    def __init__(self) -> None:
        self._of: dict[bytes, tuple[str, int]] = {}
        self._asked: set[tuple[str, int]] = set()

    def see(self, event: Event, /) -> None:
        match event:
            case TransactionBegun(copier, number, values):
                self._of.update(dict.fromkeys(values, (copier, number)))
            case CommitOfTransactionAsked(copier, number):
                self._asked.add((copier, number))
            case CommittedRead(consumer, partition, records):
                for offset, value in records:
                    name = self._of.get(value)
                    if name is not None and name not in self._asked:
                        raise Violation(
                            f"{consumer} sees {partition} {offset} of {name}, which is not committed"
                        )
            case _:
                pass
