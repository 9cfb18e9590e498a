"""What a producer counts about itself, for `producer.metrics()`."""

from headrace.base.time import Duration


class ProducerMetrics:
    """Sums since the producer was made; each is written by one thread only."""

    __slots__ = (
        "answers",
        "batches",
        "errors",
        "latency_max_s",
        "latency_s",
        "packed_bytes",
        "plain_bytes",
        "record_bytes",
        "records",
        "requests",
        "retries",
    )

    def __init__(self) -> None:
        self.records = 0  # acknowledged
        self.record_bytes = 0  # theirs, before compression
        self.batches = 0  # acknowledged
        self.errors = 0  # records that were not delivered
        self.retries = 0  # batches that were sent again
        self.requests = 0
        self.answers = 0
        self.latency_s = 0.0  # of all answers together
        self.latency_max_s = 0.0
        self.plain_bytes = 0  # what went into compression
        self.packed_bytes = 0  # and what came out

    def answered(self, latency_s: Duration) -> None:
        self.answers += 1
        self.latency_s += latency_s
        self.latency_max_s = max(self.latency_max_s, latency_s)

    def snapshot(self) -> dict[str, float]:
        return {
            "records": self.records,
            "bytes": self.record_bytes,
            "batches": self.batches,
            "batch_size_avg": self.record_bytes / self.batches if self.batches else 0.0,
            "errors": self.errors,
            "retries": self.retries,
            "requests": self.requests,
            "request_latency_avg_ms": 1000 * self.latency_s / self.answers if self.answers else 0.0,
            "request_latency_max_ms": 1000 * self.latency_max_s,
            "compression_ratio": self.packed_bytes / self.plain_bytes if self.plain_bytes else 1.0,
        }
