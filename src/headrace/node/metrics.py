"""What the node counts, as plain integers: cheap to raise on the hot path, read by whoever reports them."""


class ApiMetrics:
    """One API's requests; latencies in a histogram whose bounds rise by a factor of about two."""

    __slots__ = ("buckets", "errors", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(LATENCY_BOUNDS) + 1)

    def observe(self, seconds: float) -> None:
        self.seconds += seconds
        for index, bound in enumerate(LATENCY_BOUNDS):
            if seconds <= bound:
                self.buckets[index] += 1
                return
        self.buckets[-1] += 1


LATENCY_BOUNDS = (
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class Metrics:
    __slots__ = (
        "apis",
        "connections",
        "fetch_sessions",
        "flushes",
        "parked",
        "produced_batches",
        "produced_bytes",
    )

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}  # by API key
        self.connections = 0
        self.parked = 0  # requests waiting now
        self.fetch_sessions = 0
        self.flushes = 0
        self.produced_batches = 0
        self.produced_bytes = 0
