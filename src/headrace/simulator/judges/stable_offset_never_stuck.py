"""When all transactions have ended or timed out, read_committed consumers can see what all others see."""

from headrace.simulator.history import AtRest, Event, Violation


class StableOffsetNeverStuck:
    name = "stable_offset_never_stuck"

    def see(self, event: Event, /) -> None:
        if not isinstance(event, AtRest):
            return
        for partition, (stable, high_watermark) in event.ends.items():
            if stable < high_watermark:
                raise Violation(f"{partition}: stable up to {stable}, its high watermark is {high_watermark}")
