"""A disk that is full, or a process that has no more descriptors, refuses a write and costs nothing else.

Only an I/O error is a reason to give up a log directory until the next start.
"""

from headrace.simulator.history import DirectoryGivenUp, Event, Violation


class FullDiskCostsNoDirectory:
    name = "full_disk_costs_no_directory"

    def see(self, event: Event, /) -> None:
        if isinstance(event, DirectoryGivenUp) and not event.is_broken:
            raise Violation(f"a log directory went offline, and no disk was broken: {event.error}")
