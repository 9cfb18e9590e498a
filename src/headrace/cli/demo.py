"""`headrace demo`: writes a million records, kills the broker with kill -9 under load, and checks them all.

The producer keeps a checksum per partition of what it sent, in order; the consumer computes the same of what
it reads. Equal checksums and equal end offsets mean that no record is lost, duplicated or out of order.
"""

import shutil
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import click

from headrace.cli.administer import administer
from headrace.cli.local_node import LocalNode
from headrace.cli.options import SIZE, json_option
from headrace.cli.progress import ProgressBar
from headrace.cli.reading import reader
from headrace.cli.terminal import bytes_text, print_json, print_table, say
from headrace.cli.writing import Writer
from headrace.client.cluster import TopicPartition
from headrace.client.threads.ranges import ends_of

TOPIC = "demo"
PARTITIONS = 4
RECORD_BYTES = 100
READ_TIMEOUT_S = 30.0
WRITE_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Tally:
    """Records and checksums by partition, in the order in which they were written or read."""

    counts: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    checksums: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    def add(self, partition: int, value: bytes) -> None:
        self.counts[partition] += 1
        self.checksums[partition] = zlib.crc32(value, self.checksums[partition])

    @property
    def records(self) -> int:
        return sum(self.counts)


@click.command("demo")
@click.option(
    "--records", type=SIZE, default=1_000_000, show_default=True, help="Number of records before the kill."
)
@click.option("--keep", is_flag=True, help="Keep the data directory.")
@json_option
def command(records: int, keep: bool, as_json: bool) -> None:
    """Start a broker, write and read a million records, kill the broker with kill -9 under load, and show
    that nothing is lost.
    """
    directory = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    node = LocalNode(directory, 1, 0, {})
    try:
        facts = _show(node, records, quiet=as_json)
        facts["bytes_on_disk"] = _bytes_below(directory)
    finally:
        node.stop()
        if keep:
            say(f"data kept in {directory}", err=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    if as_json:
        print_json(facts)
    if not facts["intact"]:
        raise click.ClickException("the records that were read differ from those that were written.")
    if not as_json:
        say("No record is lost, duplicated or out of order.", fg="green", bold=True)


def _show(node: LocalNode, records: int, *, quiet: bool) -> dict[str, object]:
    show = _silence if quiet else say
    started_s = node.start()
    show(f"1. a broker at {node.bootstrap}, ready after {started_s * 1000:.0f} ms")
    written, read = Tally(), Tally()
    with administer(node.bootstrap, READ_TIMEOUT_S) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
        show(f"2. topic {TOPIC!r} with {PARTITIONS} partitions")

        produced_s = _produce(node.bootstrap, written, records, "3. producing", quiet=quiet)
        show(f"3. {records:,} records written, {_rate(records, produced_s)}, all acknowledged")
        consumed_s = _consume(node.bootstrap, read, written.records, "4. consuming", quiet=quiet)
        show(
            f"4. {read.records:,} records read, {_rate(read.records, consumed_s)}; {_verdict(written, read)}"
        )

        extra = max(PARTITIONS, records // 4)
        restarted_s = _produce_through_kill(node, written, extra, quiet=quiet)
        show(f"5. kill -9 while {extra:,} more are written; serves again after {restarted_s * 1000:.0f} ms")

        reread = Tally()
        _consume(node.bootstrap, reread, written.records, "6. reading all", quiet=quiet)
        at_end = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        ends = ends_of(admin, at_end)
        end_offsets = [ends[at] for at in at_end]
        intact = reread == written and end_offsets == written.counts
    show(f"6. {reread.records:,} records read after the crash; {_verdict(written, reread)}")
    if not quiet:
        _compare(written, reread, end_offsets)
    return {
        "intact": intact,
        "ready_ms": round(started_s * 1000),
        "ready_after_kill_ms": round(restarted_s * 1000),
        "records_written": written.records,
        "records_read": reread.records,
        "produce_records_per_s": round(records / produced_s),
        "consume_records_per_s": round(records / consumed_s),
        "partitions": [
            {"written": w, "read": r, "end_offset": e, "checksum": f"{c:08x}"}
            for w, r, e, c in zip(written.counts, reread.counts, end_offsets, reread.checksums, strict=True)
        ],
    }


def _silence(text: str) -> None:
    """Stands in for echo where JSON is wanted."""


def _rate(records: int, seconds: float) -> str:
    return f"{records / seconds:,.0f}/s, {bytes_text(records * RECORD_BYTES / seconds)}/s"


def _verdict(written: Tally, read: Tally) -> str:
    return "checksums agree" if written == read else "CHECKSUMS DIFFER"


def _value(number: int) -> bytes:
    return b"%0*d" % (RECORD_BYTES, number)


def _produce(bootstrap: str, written: Tally, records: int, title: str, *, quiet: bool) -> float:
    with (
        Writer(bootstrap, WRITE_TIMEOUT_S) as producer,
        ProgressBar(title, records, is_shown=False if quiet else None, is_kept=False) as progress,
    ):
        for number in range(records):
            _send(producer, written, number, number % PARTITIONS)
            progress.advance(1)
        producer.flush()
        return progress.seconds


def _send(producer: Writer, written: Tally, number: int, partition: int) -> None:
    value = _value(number)
    producer.send(TOPIC, value, partition=partition)
    written.add(partition, value)


def _produce_through_kill(node: LocalNode, written: Tally, records: int, *, quiet: bool) -> float:
    """Kills the broker with batches in flight; the producer has to notice and retry."""
    restarted_s = 0.0
    with (
        Writer(node.bootstrap, WRITE_TIMEOUT_S) as producer,
        ProgressBar("5. producing", records, is_shown=False if quiet else None, is_kept=False) as progress,
    ):
        for number in range(records):
            if number == records // 2:
                node.kill()
                restarted_s = node.start()
            _send(producer, written, number, number % PARTITIONS)
            progress.advance(1)
        producer.flush()
    return restarted_s


def _consume(bootstrap: str, read: Tally, expected: int, title: str, *, quiet: bool) -> float:
    with (
        reader(bootstrap, READ_TIMEOUT_S) as consumer,
        ProgressBar(title, expected, is_shown=False if quiet else None, is_kept=False) as progress,
    ):
        consumer.assign({TopicPartition(TOPIC, partition): 0 for partition in range(PARTITIONS)})
        while read.records < expected:
            found = consumer.poll(READ_TIMEOUT_S)
            if not found:
                break  # the comparison will tell what is missing
            for record in found:
                read.add(record.partition, record.value or b"")
            progress.advance(len(found))
        return progress.seconds


def _compare(written: Tally, read: Tally, end_offsets: list[int]) -> None:
    print_table(
        ("PARTITION", "WRITTEN", "READ", "END OFFSET", "CHECKSUM WRITTEN", "CHECKSUM READ"),
        [
            (
                partition,
                f"{written.counts[partition]:,}",
                f"{read.counts[partition]:,}",
                f"{end_offsets[partition]:,}",
                f"{written.checksums[partition]:08x}",
                f"{read.checksums[partition]:08x}",
            )
            for partition in range(PARTITIONS)
        ],
        right=("PARTITION", "WRITTEN", "READ", "END OFFSET"),
    )


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
