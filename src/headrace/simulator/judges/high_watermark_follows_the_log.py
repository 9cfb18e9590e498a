"""On a single node the high watermark is at the end of what the log may acknowledge, after each job.

If it stayed behind until the next append, clients would wait for acknowledgements and records that are due.
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
