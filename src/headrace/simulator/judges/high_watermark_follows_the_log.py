"""Where no follower holds it back, the high watermark is where the log's promise ends, after each job.

One that stays behind until the next append keeps acknowledgements and records from those who wait.
"""

from headrace.simulator.history import Event, HighWatermarkLags, Violation


class HighWatermarkFollowsTheLog:
    name = "high_watermark_follows_the_log"

    def see(self, event: Event, /) -> None:
        if isinstance(event, HighWatermarkLags):
            raise Violation(
                f"{event.partition}: the high watermark is {event.high_watermark}, "
                f"the log vouches for its records up to {event.promised_end}"
            )
