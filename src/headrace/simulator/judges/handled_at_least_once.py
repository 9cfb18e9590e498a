"""Members of a group have handled every record below its committed offset, and at the end all records."""

from headrace.simulator.history import (
    ContentsKnown,
    Event,
    GroupCommitted,
    Handled,
    PartitionKey,
    Shown,
    Violation,
)


class HandledAtLeastOnce:
    name = "handled_at_least_once"

    def __init__(self) -> None:
        self._handled: dict[tuple[str, PartitionKey], set[int]] = {}
        self._there: dict[PartitionKey, set[int]] = {}  # offsets that somebody was shown

    def see(self, event: Event, /) -> None:
        match event:
            case Shown(partition=partition, records=records):
                self._there.setdefault(partition, set()).update(offset for offset, _ in records)
            case Handled(group, partition, offsets):
                self._handled.setdefault((group, partition), set()).update(offsets)
            case GroupCommitted(group, partition, offset):
                handled = self._handled.get((group, partition), set())
                there = self._there.get(partition, set())
                missing = [one for one in there if one < offset and one not in handled]
                if missing:
                    raise Violation(
                        f"{group} has committed {offset} of {partition}, and {min(missing)} is not handled"
                    )
            case ContentsKnown(contents, groups):
                for group, topic in groups.items():
                    for partition, records in contents.items():
                        if partition.topic == topic:
                            self._check_all(group, partition, records)
            case _:
                pass

    def _check_all(self, group: str, partition: PartitionKey, records: list[tuple[int, bytes]]) -> None:
        handled = self._handled.get((group, partition), set())
        for offset, value in records:
            if offset not in handled:
                raise Violation(f"{group} never handled {partition} {offset}: {value[:20]!r}")
