"""An offset that was committed for a topic is never returned for another topic with the same name."""

from headrace.simulator.history import CommittedOffsetTold, Event, OffsetNoted, PartitionKey, Violation


class OffsetsStayWithTheirTopic:
    name = "offsets_stay_with_their_topic"

    def __init__(self) -> None:
        self._noted: dict[tuple[str, int], PartitionKey] = {}  # by group and offset

    def see(self, event: Event, /) -> None:
        match event:
            case OffsetNoted(group, partition, offset):
                self._noted[group, offset] = partition
            case CommittedOffsetTold(group, partition, offset):
                owner = self._noted.get((group, offset), partition)
                if owner != partition:
                    raise Violation(f"{group} committed {offset} for {owner}, and is told it for {partition}")
            case _:
                pass
