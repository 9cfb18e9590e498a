"""A consumer returns all records from its position on: it skips, repeats and invents nothing.

From one seek or assignment to the next, offsets rise, and each call continues where the last one ended. At
the end of the run the judge knows whether there were records in between. It leaves out partitions from which
a client deletes records: there a consumer continues at the start of the log.
"""

from headrace.simulator.history import ContentsKnown, DeletionAsked, Event, PartitionKey, Shown, Violation


class ReadsSkipNothing:
    name = "reads_skip_nothing"

    def __init__(self) -> None:
        # by consumer, stretch and partition: where it began, and what was shown
        self._shown: dict[tuple[str, int, PartitionKey], tuple[int, list[tuple[int, bytes]]]] = {}
        self._pruned: set[PartitionKey] = set()

    def see(self, event: Event, /) -> None:
        match event:
            case DeletionAsked(partition):
                self._pruned.add(partition)
            case Shown(consumer, stretch, partition, position, records) if partition not in self._pruned:
                _, shown = self._shown.setdefault((consumer, stretch, partition), (position, []))
                for offset, value in records:
                    before = shown[-1][0] if shown else position - 1
                    if offset <= before:
                        raise Violation(f"{consumer} shows {partition} {offset} after {before}")
                    shown.append((offset, value))
            case ContentsKnown(contents):
                for (consumer, _, partition), (position, shown) in self._shown.items():
                    if partition in contents and partition not in self._pruned:
                        self._compare(consumer, partition, position, shown, contents[partition])
            case _:
                pass

    def _compare(
        self,
        consumer: str,
        partition: PartitionKey,
        position: int,
        shown: list[tuple[int, bytes]],
        contents: list[tuple[int, bytes]],
    ) -> None:
        expected = [record for record in contents if record[0] >= position][: len(shown)]
        for told, record in zip(shown, expected, strict=False):
            if told != record:
                raise Violation(
                    f"{consumer} shows {partition} from {position} on; at {told[0]} it shows "
                    f"{told[1][:20]!r}, where {record[1][:20]!r} at {record[0]} comes next"
                )
        if len(shown) > len(expected):
            raise Violation(f"{consumer} shows {partition} {shown[len(expected)]}, which is not there")
