"""In a group of the consumer protocol, no member holds a partition that another has not given up yet."""

from headrace.simulator.history import Event, PartitionsHeld, Violation


class OneHolderPerPartition:
    name = "one_holder_per_partition"

    def see(self, event: Event, /) -> None:
        if not isinstance(event, PartitionsHeld):
            return
        holders: dict[tuple[bytes, int], str] = {}
        for member, partitions in event.holders.items():
            for partition in partitions:
                holder = holders.setdefault(partition, member)
                if holder != member:
                    raise Violation(f"{event.group}: {holder} and {member} both hold number {partition[1]}")
