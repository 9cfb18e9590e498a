"""When the disk is full or descriptors have run out, a write fails and the log directory stays online.

Only an I/O error takes a log directory offline until the next start.
"""

from headrace.simulator.history import DirectoryGivenUp, Event, Violation


class FullDiskCostsNoDirectory:
    name = "full_disk_costs_no_directory"

    def see(self, event: Event, /) -> None:
        if isinstance(event, DirectoryGivenUp) and not event.is_broken:
            raise Violation(f"a log directory went offline, and no disk was broken: {event.error}")
