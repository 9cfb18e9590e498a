"""All records of a committed transaction become visible, and none of an aborted one."""

from headrace.simulator.history import (
    CommittedRead,
    Copied,
    Event,
    TransactionBegun,
    TransactionEnded,
    Violation,
)

Name = tuple[str, int]  # copier and number


class TransactionsAllOrNothing:
    name = "transactions_all_or_nothing"

    def __init__(self) -> None:
        self._values: dict[Name, tuple[bytes, ...]] = {}
        self._of: dict[bytes, Name] = {}
        self._outcomes: dict[Name, bool] = {}
        self._seen: dict[Name, set[bytes]] = {}

    def see(self, event: Event, /) -> None:
        match event:
            case TransactionBegun(copier, number, values):
                self._values[copier, number] = values
                self._of.update(dict.fromkeys(values, (copier, number)))
            case TransactionEnded(copier, number, is_commit):
                self._ended((copier, number), is_commit)
            case CommittedRead(records=records):
                for _, value in records:
                    self._shown(value)
            case Copied():
                self._check_all()
            case _:
                pass

    def _ended(self, name: Name, is_commit: bool) -> None:
        before = self._outcomes.setdefault(name, is_commit)
        if before != is_commit:
            raise Violation(f"{name} was acknowledged as {_word(before)} and as {_word(is_commit)}")
        if not is_commit and self._seen.get(name):
            raise Violation(f"{name} is aborted, and was seen before")

    def _shown(self, value: bytes) -> None:
        name = self._of.get(value)
        if name is None:
            raise Violation(f"{value[:30]!r} was never written")
        if self._outcomes.get(name) is False:
            raise Violation(f"{value[:30]!r} is shown, and its transaction is aborted")
        self._seen.setdefault(name, set()).add(value)

    def _check_all(self) -> None:
        for name, values in self._values.items():
            seen = self._seen.get(name, set())
            if self._outcomes.get(name) and len(seen) < len(values):
                raise Violation(f"{name} is committed, and {len(seen)} of {len(values)} values are seen")
            if 0 < len(seen) < len(values):
                raise Violation(f"{name} is torn: {len(seen)} of {len(values)} values are seen")


def _word(is_commit: bool) -> str:
    return "committed" if is_commit else "aborted"
