"""`headrace bench`: throughput and latency of a broker as one Python client sees them, in a minute.

One client on one core writes and reads, and is usually the bottleneck. The results compare one broker with
another, or today with yesterday, under the same command. To find the limit of a broker takes more and faster
clients (`make bench` has them).
"""

import time
from typing import NamedTuple

import click

from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.options import SIZE
from headrace.cli.progress import ProgressBar
from headrace.cli.reading import reader
from headrace.cli.terminal import bytes_text, print_json, print_table, say
from headrace.cli.writing import Writer, acks_option, compression_option
from headrace.client.cluster import TopicPartition
from headrace.client.threads.consumer import Consumer

IDLE_S = 30.0
WARM_UP_RECORDS = 100


class Rate(NamedTuple):
    what: str
    records: int
    record_bytes: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.records / self.seconds


class Latency(NamedTuple):
    what: str
    p50_us: float
    p99_us: float
    p999_us: float
    samples: int


@click.command("bench")
@click.option(
    "--records",
    "-n",
    type=SIZE,
    default=500_000,
    show_default=True,
    help="Number of records to write and read.",
)
@click.option("--size", type=SIZE, default=100, show_default=True, help="Size of a value in bytes.")
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of partitions of the topic.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=100),
    default=3000,
    show_default=True,
    help="Number of latencies to measure.",
)
@acks_option("all", "1")
@compression_option
@broker_options
def command(
    records: int,
    size: int,
    partitions: int,
    samples: int,
    acks: str,
    compression: str,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Measure produce and consume rates and latencies with one Python client.

    Creates a topic of its own and deletes it. The client is usually the bottleneck: compare results of this
    command only with each other.
    """
    topic = f"headrace-bench-{time.time_ns():x}"
    with administer(bootstrap, timeout) as admin:
        admin.create_topic(topic, partitions=partitions)
        try:
            with (
                Writer(bootstrap, timeout, acks=acks, compression=compression) as producer,
                reader(bootstrap, timeout) as consumer,
            ):
                rates = [
                    _produce(producer, topic, records, size),
                    _consume(consumer, topic, partitions, records, size),
                ]
                latencies = [
                    _acknowledge(producer, topic, samples, size),
                    _end_to_end(consumer, producer, topic, samples, size),
                ]
        finally:
            admin.delete_topic(topic)
    if as_json:
        print_json(_as_json(rates, latencies))
        return
    print_table(
        ("", "RECORDS/S", "BYTES/S", "SECONDS"),
        [
            (
                r.what,
                f"{r.per_second:,.0f}",
                f"{bytes_text(r.per_second * r.record_bytes)}",
                f"{r.seconds:.2f}",
            )
            for r in rates
        ],
        right=("RECORDS/S", "BYTES/S", "SECONDS"),
    )
    say()
    print_table(
        ("", "P50 µs", "P99 µs", "P99.9 µs"),
        [(lag.what, f"{lag.p50_us:,.0f}", f"{lag.p99_us:,.0f}", f"{lag.p999_us:,.0f}") for lag in latencies],
        right=("P50 µs", "P99 µs", "P99.9 µs"),
    )
    say(
        f"\none Python client, {records:,} records of {size} bytes, {partitions} partition(s), acks={acks}, "
        f"compression {compression}; the client itself is usually the bottleneck"
    )


def _payload(size: int) -> bytes:
    """Text, which compresses as typical values do."""
    words = b"the quick brown fox jumps over the lazy dog and runs along the head race to the mill "
    return (words * (size // len(words) + 1))[:size]


def _produce(producer: Writer, topic: str, records: int, size: int) -> Rate:
    value = _payload(size)
    with ProgressBar("produce", records, is_kept=False) as progress:
        for _ in range(records):
            producer.send(topic, value)
            progress.advance(1)
        producer.flush()
        return Rate("produce", records, size, progress.seconds)


def _consume(consumer: Consumer, topic: str, partitions: int, records: int, size: int) -> Rate:
    consumer.assign({TopicPartition(topic, partition): 0 for partition in range(partitions)})
    count = 0
    with ProgressBar("consume", records, is_kept=False) as progress:
        while count < records:
            found = consumer.poll(IDLE_S)
            if not found:
                raise click.ClickException(
                    f"only {count:,} of {records:,} records could be read: no more arrived for {IDLE_S:g} s."
                )
            count += len(found)
            progress.advance(len(found))
        return Rate("consume", count, size, progress.seconds)


def _acknowledge(producer: Writer, topic: str, samples: int, size: int) -> Latency:
    """One record at a time: from `send` to its acknowledgement."""
    value = _payload(size)
    taken: list[int] = []
    for _ in range(samples + WARM_UP_RECORDS):
        began = time.perf_counter_ns()
        producer.send(topic, value, partition=0)
        producer.flush()
        taken.append(time.perf_counter_ns() - began)
    return _latency("acknowledged", taken[WARM_UP_RECORDS:])


def _end_to_end(consumer: Consumer, producer: Writer, topic: str, samples: int, size: int) -> Latency:
    """One record at a time: from `send` to its arrival in a consumer that waits for it."""
    value = _payload(size)
    at = TopicPartition(topic, 0)
    producer.send(topic, value, partition=0)
    producer.flush()
    consumer.assign({at: producer.end_offsets[at]})
    taken: list[int] = []
    for _ in range(samples + WARM_UP_RECORDS):
        consumer.poll(0.0)  # the fetch is on its way before the record is
        began = time.perf_counter_ns()
        producer.send(topic, value, partition=0)
        producer.flush()
        if not consumer.poll(IDLE_S):
            raise click.ClickException(
                f"a record that the broker had acknowledged could not be read within {IDLE_S:g} s."
            )
        taken.append(time.perf_counter_ns() - began)
    return _latency("arrived", taken[WARM_UP_RECORDS:])


def _latency(what: str, taken_ns: list[int]) -> Latency:
    ordered = sorted(taken_ns)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000

    return Latency(what, at(0.5), at(0.99), at(0.999), len(ordered))


def _as_json(rates: list[Rate], latencies: list[Latency]) -> dict[str, object]:
    return {
        "client": "one Python process",
        "rates": {
            rate.what: {
                "records_per_s": round(rate.per_second),
                "bytes_per_s": round(rate.per_second * rate.record_bytes),
                "seconds": round(rate.seconds, 3),
            }
            for rate in rates
        },
        "latencies_us": {
            latency.what: {
                "p50": round(latency.p50_us),
                "p99": round(latency.p99_us),
                "p99.9": round(latency.p999_us),
                "samples": latency.samples,
            }
            for latency in latencies
        },
    }
