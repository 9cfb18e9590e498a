"""A group's committed offset never falls below one that was acknowledged or returned before."""

from headrace.simulator.history import CommittedOffsetTold, Event, OffsetCommitted, PartitionKey, Violation


class CommittedOffsetsNeverGoBack:
    name = "committed_offsets_never_go_back"

    def __init__(self) -> None:
        self._known: dict[tuple[str, PartitionKey], int] = {}

    def see(self, event: Event, /) -> None:
        match event:
            case OffsetCommitted(group, partition, offset):
                self._known[group, partition] = max(self._known.get((group, partition), -1), offset)
            case CommittedOffsetTold(group, partition, offset):
                before = self._known.get((group, partition), -1)
                if offset < before:
                    raise Violation(f"{group} had committed {before} of {partition}, and is told {offset}")
                self._known[group, partition] = offset
            case _:
                pass
