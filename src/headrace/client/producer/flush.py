"""Everything that was sent until some moment, to be waited for; what is sent later does not hold it up."""

from collections.abc import Iterable

from headrace.client.producer._batch import Batch


class Flush:
    def __init__(self, batches: Iterable[Batch]) -> None:
        self._left = list(batches)

    @property
    def is_done(self) -> bool:
        """Asked often, so that what is known to be answered is not looked at again."""
        while self._left and is_answered(self._left[-1]):
            self._left.pop()
        return not self._left

    @property
    def records_left(self) -> int:
        return sum(batch.count for batch in self._left if not is_answered(batch))


def is_answered(batch: Batch) -> bool:
    """Whether the fate of all its records is known; those of one that was too large went on in parts."""
    if batch.parts is None:
        return batch.is_settled
    return all(is_answered(part) for part in batch.parts)
