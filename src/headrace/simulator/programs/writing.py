"""Producer of a simulated program: our own producer without the calls that block."""

from collections.abc import Generator
from typing import Any

from headrace.base.time import Instant
from headrace.client.producer._batch import Awaited, RecordMetadata
from headrace.client.producer.arguments import Options
from headrace.client.producer.core import ProducerCore
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.keys import producer_keys
from headrace.simulator.world import World

BATCH_BYTES_MAX = 1_500


class NobodyWaits:
    """Programs here listen, they never block."""

    def wait(self, delivery: Awaited, timeout_s: float | None) -> None:
        raise AssertionError("a program waits for a delivery")

    def awaiting(self, delivery: Awaited) -> Generator[Any, None, RecordMetadata]:
        raise AssertionError("a program waits for a delivery")


def new_core(world: World, **settings: Any) -> ProducerCore:
    """As impatient as this world is quick."""
    rng = world.rng
    chosen: dict[str, Any] = {
        "bootstrap.servers": "broker",
        "compression.type": rng.choice(("none", "none", "gzip", "snappy", "lz4", "zstd")),
        "linger.ms": rng.choice((0, 5, 100)),
        "delivery.timeout.ms": rng.choice((3_000, 10_000, 60_000)),
        "request.timeout.ms": rng.choice((1_000, 2_500)),
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 500,
        "max.in.flight.requests.per.connection": rng.randint(1, 5),
        "batch.size": rng.choice((150, 400, BATCH_BYTES_MAX)),
        "headrace.batch.size.max": BATCH_BYTES_MAX,
        "buffer.memory": rng.choice((1_000, 4_000)),
        "max.block.ms": 5_000,
    }
    return ProducerCore(
        Options(Configuration(producer_keys(), chosen | settings)),
        NobodyWaits(),
        rng,
        clock=lambda: Instant(world.mono),
        wall_ms=lambda: world.now().wall_ms,
    )


def call_listeners(core: ProducerCore) -> None:
    """Calls those who listen for deliveries; unlike a real shell it lets out what they raise."""
    for batch in core.sender.take_settled():
        for error in batch.call_listeners():
            raise error
