"""`headrace produce`: records from stdin or files to a topic."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from headrace.cli.administer import administer
from headrace.cli.client_settings import client_options
from headrace.cli.completers import topics as complete_topics
from headrace.cli.lines import LineTooLong, read_lines
from headrace.cli.options import KEY_VALUE, SIZE, timeout_option
from headrace.cli.progress import ProgressBar
from headrace.cli.suggestions import describe_topic
from headrace.cli.terminal import count_text, note, print_json
from headrace.cli.writing import BATCH_BYTES, Writer, acks_option, compression_option
from headrace.client.errors import KafkaError
from headrace.client.threads.admin import Admin
from headrace.protocol.errors import ErrorCode
from headrace.records.json_lines import Header, NewRecord, read_json_line

PAUSE_S = 0.02  # without input for this long, the records read so far are sent
LINGER_MS = 100  # while input arrives, batches may wait to be filled; a pause sends them in any case

Parse = Callable[[bytes], NewRecord]


@click.command("produce")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", nargs=-1, type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--key-separator", "-K", metavar="TEXT", help="Split each line into key and value at this text."
)
@click.option("--key", "-k", metavar="TEXT", help="The same key for all records.")
@click.option("--header", "-H", "headers", type=KEY_VALUE, multiple=True, help="A header for all records.")
@click.option(
    "--partition",
    "-p",
    type=click.IntRange(min=0),
    help="Partition for all records.  [default: by key, or any]",
)
@click.option("--null", "null_text", metavar="TEXT", help="A key or value of exactly this text is null.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="At most this many records per second."
)
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Stop after this many records.")
@acks_option("all", "-1", "1", "0")
@compression_option
@click.option(
    "--batch-bytes", type=SIZE, default=BATCH_BYTES, show_default=True, help="Size of the largest batch."
)
@click.option("--create", is_flag=True, help="Create the topic if it does not exist.")
@click.option("--whole-file", is_flag=True, help="One record per file instead of one per line.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each line is a record as a JSON object; the summary is JSON, too.",
)
@client_options
@timeout_option
def command(
    topic: str,
    files: tuple[str, ...],
    key_separator: str | None,
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    partition: int | None,
    null_text: str | None,
    rate: float | None,
    limit: int | None,
    acks: str,
    compression: str,
    batch_bytes: int,
    create: bool,
    whole_file: bool,
    as_json: bool,
    bootstrap: str,
    timeout: float,
) -> None:
    """Write records to TOPIC, one per line of stdin or of FILES.

    \b
    headrace produce orders < lines.txt
    headrace produce orders --create < lines.txt
    headrace produce orders -K : -H source=import orders.txt
    headrace consume orders --json | headrace produce copy --json
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("Give only one of --key and --key-separator.")
    if as_json and (key_separator is not None or whole_file):
        raise click.UsageError(
            "--key-separator and --whole-file cannot be used with --json: each line is a JSON object."
        )
    if key_separator == "":
        raise click.BadParameter("must not be empty", param_hint="--key-separator")
    fixed: tuple[Header, ...] = tuple((name, os.fsencode(value)) for name, value in headers)
    parse = read_json_line if as_json else _line_parser(key, key_separator, null_text)
    records = _whole_files(files, parse) if whole_file else _records(files, parse)
    with administer(bootstrap, timeout) as admin:
        _find(admin, topic, create=create)
    with Writer(
        bootstrap,
        timeout,
        acks=acks,
        compression=compression,
        batch_bytes=batch_bytes,
        linger_ms=LINGER_MS,
    ) as producer:
        producer.find(topic)
        is_typed = sys.stdin.isatty() and not files
        if is_typed:
            note("type one record per line; Ctrl-D ends the input")
        paced = records if rate is None else _paced(records, rate, producer)
        with ProgressBar(f"to {topic}", None, is_shown=False if is_typed else None) as progress:
            try:
                for record in paced:
                    if record is None:
                        producer.flush()
                        continue
                    producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        headers=record.headers + fixed,
                        partition=record.partition if partition is None else partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    progress.advance(1)
                    if progress.count == limit:
                        break
            except (BadLine, KeyboardInterrupt):
                producer.flush()  # what came before it is sent
                raise
            producer.flush()
    if as_json:
        ends = {str(at.partition): end for at, end in sorted(producer.end_offsets.items())}
        print_json({"topic": topic, "records": progress.count, "end_offsets": ends})
    else:
        note(f"wrote {count_text(progress.count, 'record')} to {topic}")


def _find(admin: Admin, topic: str, *, create: bool) -> None:
    """Checks that the topic exists: a broker that creates topics on demand would create one for a typo."""
    try:
        describe_topic(admin, topic)
    except KafkaError as error:
        if not error.is_unknown_topic:
            raise
        if create:
            _create(admin, topic)
            return
        error.advice += " To create the topic, give --create."
        raise


def _create(admin: Admin, topic: str) -> None:
    try:
        admin.create_topic(topic)
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # somebody else was quicker
            raise


class BadLine(click.ClickException):
    """A line that is not a record; the message names it."""


def _line_parser(key: str | None, separator: str | None, null_text: str | None) -> Parse:
    fixed = None if key is None else os.fsencode(key)
    null = None if null_text is None else os.fsencode(null_text)
    split = None if separator is None else os.fsencode(separator.replace("\\t", "\t"))

    def nullable(data: bytes) -> bytes | None:
        return None if data == null else data

    def parse(line: bytes) -> NewRecord:
        if split is None:
            return NewRecord(fixed, nullable(line), (), None, None)
        head, found, value = line.partition(split)
        if not found:
            raise ValueError(f"the line does not contain the key separator {separator!r}")
        return NewRecord(nullable(head), nullable(value), (), None, None)

    return parse


def _records(files: tuple[str, ...], parse: Parse) -> Iterator[NewRecord | None]:
    for name in files or ("-",):
        with _opened(name) as descriptor:
            number = 0
            try:
                for line in read_lines(descriptor, PAUSE_S):
                    if line is None:
                        yield None
                        continue
                    number += 1
                    yield parse(line)
            except ValueError as error:
                _refuse(name, number + isinstance(error, LineTooLong), error)


def _whole_files(files: tuple[str, ...], parse: Parse) -> Iterator[NewRecord | None]:
    for name in files or ("-",):
        with _opened(name) as descriptor, open(descriptor, "rb", closefd=False) as file:
            try:
                yield parse(file.read())
            except ValueError as error:
                _refuse(name, 1, error)


@contextmanager
def _opened(name: str) -> Iterator[int]:
    if name == "-":
        yield sys.stdin.fileno()
        return
    descriptor = os.open(name, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse(name: str, line: int, error: ValueError) -> NoReturn:
    where = "stdin" if name == "-" else name
    raise BadLine(f"{where}, line {line}: {error}. The lines before it were sent.") from error


def _paced(records: Iterator[NewRecord | None], rate: float, producer: Writer) -> Iterator[NewRecord | None]:
    """Holds a rate against the clock: record n does not leave before n/rate seconds after the first."""
    count = 0
    started_at = 0.0
    for record in records:
        if record is not None:
            if count == 1:
                started_at = time.monotonic()  # the first record also had to find its topic
            due_at = started_at + count / rate if count else 0.0
            while (left := due_at - time.monotonic()) > 0:
                producer.flush()
                time.sleep(min(left, 0.05))
            count += 1
        yield record
