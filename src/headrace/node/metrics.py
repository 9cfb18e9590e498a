"""What the node counts, as plain integers: cheap to raise on the hot path, read by whoever reports them."""

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


class Metrics:
    __slots__ = (
        "apis",
        "cleaned_bytes",
        "cleanings",
        "connections",
        "damages",
        "flushes",
        "held",
        "held_bytes",
        "parked",
        "produced_batches",
        "produced_bytes",
        "strays",
    )

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}  # by API key
        self.connections = 0
        self.parked = 0  # requests waiting now
        self.held = 0  # batches in front of their logs, of requests that may have been answered since
        self.held_bytes = 0
        self.flushes = 0
        self.cleanings = 0  # passes of compaction
        self.strays = 0  # partition directories that the metadata does not know
        self.damages = 0  # files and batches that were found damaged
        self.cleaned_bytes = 0  # that they read
        self.produced_batches = 0
        self.produced_bytes = 0
