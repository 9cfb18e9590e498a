"""Counters of the node for operators, as plain integers, which are cheap on the hot path.

Nothing in the node reads these numbers. Counters that a limit depends on belong to the part with the limit.
"""

from collections.abc import Callable

# Upper bounds of the latency histogram, in seconds: from a fast answer to the longest usual long poll.
LATENCY_BOUNDS = (
    *(50e-6, 100e-6, 250e-6, 500e-6),
    *(1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class ApiMetrics:
    """One API's requests and how long their answers took."""

    __slots__ = ("buckets", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(LATENCY_BOUNDS) + 1)  # the last one: beyond all bounds

    def observe(self, seconds: float) -> None:
        self.seconds += seconds
        for index, bound in enumerate(LATENCY_BOUNDS):
            if seconds <= bound:
                self.buckets[index] += 1
                return
        self.buckets[-1] += 1


class Throttled:
    """How often clients were throttled, and for how long together."""

    __slots__ = ("ms", "times")

    def __init__(self) -> None:
        self.times = 0
        self.ms = 0


class Metrics:
    __slots__ = (
        "apis",
        "ask_damages",
        "ask_held",
        "ask_parked",
        "cleaned_bytes",
        "cleanings",
        "connections",
        "flushes",
        "logins",
        "logins_refused",
        "produced_batches",
        "produced_bytes",
        "strays",
        "throttled",
    )

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}  # by API key
        self.connections = 0
        # owned by other parts, which answer when somebody reads them
        self.ask_parked: Callable[[], int] = _none
        self.ask_held: Callable[[], int] = _none
        self.ask_damages: Callable[[], int] = _none
        self.flushes = 0
        self.logins = 0
        self.logins_refused = 0
        self.cleanings = 0  # passes of compaction
        self.throttled: dict[str, Throttled] = {}  # by what throttles
        self.strays = 0  # partition directories that the metadata does not know
        self.cleaned_bytes = 0  # that they read
        self.produced_batches = 0
        self.produced_bytes = 0

    @property
    def parked(self) -> int:
        """Requests that wait now."""
        return self.ask_parked()

    @property
    def held(self) -> int:
        """Batches in front of their logs, of requests that may have been answered since."""
        return self.ask_held()

    @property
    def damages(self) -> int:
        """Files and batches that were found damaged."""
        return self.ask_damages()


def _none() -> int:
    return 0
