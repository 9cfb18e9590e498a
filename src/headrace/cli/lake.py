"""`headrace lake`: topics as tables of Delta or Iceberg that prove that they have every record once."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.base.extras import MissingExtra, require
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options, settings_of
from headrace.cli.completers import topics as complete_topics
from headrace.cli.lake_values import typed_options, typed_rows, value_format
from headrace.cli.options import SIZE, Seconds, json_option, partitions_option, registry_option
from headrace.cli.progress import ProgressBar
from headrace.cli.suggestions import describe_topic
from headrace.cli.terminal import bytes_text, count_text, note, print_json, print_table, say, say_marked
from headrace.client.threads.admin import Admin
from headrace.machines.configs.values import parse_list
from headrace.machines.lake.forecast import time_left_ms, time_left_text
from headrace.machines.lake.ledger import Span

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.lake.copying import Copied
    from headrace.lake.report import Report
    from headrace.lake.table import LakeTable, Snapshot
    from headrace.lake.topic import LakeTopic
    from headrace.machines.lake.plan import Log

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_INTERVAL_S = 10.0

table_argument = click.argument("table", type=click.Path(file_okay=False, path_type=Path))


@click.group()
def lake() -> None:
    """Copy topics into tables of Delta or Iceberg, and prove that they are complete.

    \b
    headrace lake enable clicks --table lake/clicks   copies what is there
    headrace lake verify lake/clicks --full           proves it
    """
    try:
        for library in ("pyarrow", "numpy", "deltalake"):
            require(library, "`headrace lake`")
    except MissingExtra as error:
        raise click.ClickException(f"{error}.") from error


command = lake


def _loss_option(function: F) -> F:
    return click.option(
        "--allow-loss",
        is_flag=True,
        help="Go on if the topic deleted records before they were copied. The table says which ones.",
    )(function)


@contextmanager
def _topic(admin: Admin, bootstrap: str, name: str) -> "Iterator[LakeTopic]":
    from headrace.lake.topic import LakeTopic

    describe_topic(admin, name)  # suggests the closest name if there is none
    yield LakeTopic(admin, settings_of("consumer", bootstrap), name)  # type: ignore[arg-type]


def _table(path: Path, format: str | None = None) -> "LakeTable":
    from headrace.lake.formats import table_at

    try:
        return table_at(path.resolve(), format)
    except MissingExtra as error:
        raise click.ClickException(f"{error}.") from error


# --- copying ---------------------------------------------------------------------------------------------


@lake.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--table",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the table; it is created.",
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["delta", "iceberg"]),
    help="Format of a new table.  [default: delta]",
)
@click.option(
    "--from",
    "begin",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where a partition begins of which the table has nothing yet.",
)
@typed_options
@registry_option
@click.option("--group", help="Group that shows the table's progress.  [default: lake-TOPIC]")
@click.option("--follow", "-F", is_flag=True, help="Go on copying new records, until Ctrl-C.")
@click.option(
    "--interval",
    default=DEFAULT_INTERVAL_S,
    show_default=True,
    type=Seconds(0.1),
    metavar="SECONDS",
    help="With --follow: time between commits.",
)
@_loss_option
@broker_options
def enable(
    topic: str,
    table: Path,
    table_format: str | None,
    begin: str,
    format: str | None,
    schema_file: Path | None,
    message: str | None,
    keep_values: bool,
    dead_letters: Path | None,
    upsert: bool,
    registry: str,
    group: str | None,
    follow: bool,
    interval: float,
    allow_loss: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Make a table of TOPIC, and copy the topic into it up to its current end.

    The table knows which offsets it has. Run the command again, at any time and as often as you like: it
    continues where the table ends. Only committed records are copied.
    """
    from headrace.lake.copying import Copier
    from headrace.lake.enabling import enable as enable_table

    if upsert and begin == "latest":
        raise click.UsageError("--upsert needs all keys: leave --from latest out.")
    values = value_format(format, schema_file, message, keeps_value=keep_values)
    dead = None if dead_letters is None else dead_letters.resolve()
    place = _table(table, table_format)
    with administer(bootstrap, timeout) as admin, _topic(admin, bootstrap, topic) as source:
        snapshot = enable_table(place, source, group, values=values, dead_letters=dead, upsert=upsert)
        typed = typed_rows(place, snapshot, registry)
        copier = Copier(place, source, from_end=begin == "latest", allows_loss=allow_loss, typed=typed)
        if not follow:
            _tell_copied(copier.copy_available(), table, snapshot.group, as_json=as_json)
            return

        def tell(copied: "Copied") -> None:
            if copied.commits:
                _tell_copied(copied, table, snapshot.group, as_json=as_json)

        try:
            copier.follow(interval, tell)
        except KeyboardInterrupt:
            pass


@lake.command()
@table_argument
@click.option("--from", "down_to", type=click.IntRange(min=0), help="First offset to copy.")
@registry_option
@broker_options
def backfill(
    table: Path, down_to: int | None, registry: str, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """Copy the records before those that TABLE has, as far as the topic still has them.

    For a table that was enabled with --from latest. It may run while another process copies new records.
    """
    from headrace.lake.copying import Copier

    place = _table(table)
    snapshot = place.load()
    with administer(bootstrap, timeout) as admin, _topic(admin, bootstrap, snapshot.topic) as source:
        copied = Copier(place, source, typed=typed_rows(place, snapshot, registry)).backfill(down_to)
    _tell_copied(copied, table, snapshot.group, as_json=as_json)


def _tell_copied(copied: "Copied", table: Path, group: str, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "table": str(table),
                "group": group,
                "rows": copied.rows,
                "dead_letters": copied.dead_letters,
                "files": copied.files,
                "bytes": copied.file_bytes,
                "commits": copied.commits,
                "lost": [span._asdict() for span in copied.lost],
            }
        )
        return
    size = bytes_text(copied.file_bytes)
    say(
        f"{table}: added {count_text(copied.rows, 'row')} in {count_text(copied.files, 'file')} ({size}), "
        f"{count_text(copied.commits, 'commit')}"
    )
    if copied.dead_letters:
        say_marked("dead letters", "yellow", f"{copied.dead_letters:,} records could not be rows")
    for span in copied.lost:
        say_marked("lost", "red", f"{span}: the topic deleted them before they were copied")


# --- looking ---------------------------------------------------------------------------------------------


@lake.command()
@table_argument
@broker_options
def status(table: Path, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show which offsets TABLE has, and how far it is behind its topic."""
    from headrace.machines.lake.plan import behind

    place = _table(table)
    snapshot = place.load()
    with administer(bootstrap, timeout) as admin, _topic(admin, bootstrap, snapshot.topic) as source:
        logs = source.logs(snapshot.topic_id)
        lag = behind(snapshot.ledger, logs)
        time_left = _time_left(source, snapshot, logs, lag)
    rows = []
    for partition in sorted({*logs, *snapshot.ledger}):
        held, log = snapshot.ledger.get(partition), logs.get(partition)
        rows.append(
            {
                "partition": partition,
                "start": None if held is None else held.start,
                "next": None if held is None else held.next,
                "log_start": None if log is None else log.start,
                "log_end": None if log is None else log.end,
                "behind": lag.get(partition),
                "loss_in_ms": time_left.get(partition),
            }
        )
    size = sum(snapshot.files.values())
    if as_json:
        facts = {"format": place.store.format, "location": snapshot.stored.location}
        facts |= {"topic": snapshot.topic, "topic_id": snapshot.topic_id, "group": snapshot.group}
        more = {"version": snapshot.version, "files": len(snapshot.files), "bytes": size}
        print_json({"table": str(table), **facts, **more, "partitions": rows})
        return
    files = f"{count_text(len(snapshot.files), 'file')}, {bytes_text(size)}"
    version = f"{place.store.format}, version {snapshot.version}"
    say(f"{table}: topic {snapshot.topic}, {version}, {files}, group {snapshot.group}")
    if snapshot.stored.location != str(place.path):
        say(f"newest metadata: {snapshot.stored.location}")
    headings = ("PARTITION", "START", "NEXT", "LOG START", "LOG END", "BEHIND")
    cells = [["-" if cell is None else cell for cell in row.values()][: len(headings)] for row in rows]
    print_table(headings, cells, right=headings)
    for partition, left_ms in sorted(time_left.items()):
        where = f"{snapshot.topic}-{partition}"
        say(
            f"{where} loses records in {time_left_text(left_ms)}, by its retention.ms, if they are not copied"
        )


def _time_left(
    source: "LakeTopic", snapshot: "Snapshot", logs: "dict[int, Log]", lag: dict[int, int]
) -> dict[int, int]:
    """For each partition with records that the table lacks, when the topic may delete the first of them."""
    late = [partition for partition, count in lag.items() if count]
    if not late:
        return {}
    retention_ms, policy = int(source.config("retention.ms") or -1), source.config("cleanup.policy")
    waits_for = parse_list(source.config("headrace.retention.waits.for") or "")
    waits_max_ms = source.config("headrace.retention.waits.max.ms") if snapshot.group in waits_for else None
    found = {}
    for partition in late:
        log, held = logs[partition], snapshot.ledger.get(partition)
        first = log.start if held is None else max(log.start, held.next)
        left = time_left_ms(
            source.first_time_ms(snapshot.topic_id, Span(partition, first, log.end)),
            retention_ms=retention_ms,
            cleanup_policy=policy,
            now_ms=time.time_ns() // 1_000_000,
            waits_max_ms=None if waits_max_ms is None else int(waits_max_ms),
        )
        if left is not None:
            found[partition] = left
    return found


@lake.command()
@table_argument
@click.option("--full", is_flag=True, help="Also compare with the topic, as far as it still reaches.")
@registry_option
@broker_options
def verify(table: Path, full: bool, registry: str, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Prove that TABLE has every record once; exit code 1 if it has not.

    It reads every row, and compares number and hash of the rows with the proofs in the files, and the files
    with the table's ledger. Without --full no broker is needed.
    """
    from headrace.lake.typed_rows import table_decoder
    from headrace.lake.verifying import verify as verify_table

    place = _table(table)
    snapshot = place.load()
    if full and snapshot.is_dead_letters:
        raise click.UsageError("--full is for the table to which these dead letters belong.")
    with ProgressBar("verify", len(snapshot.files), is_kept=False) as progress:
        if full:
            with administer(bootstrap, timeout) as admin, _topic(admin, bootstrap, snapshot.topic) as source:
                decoder = table_decoder(snapshot, registry)
                report = verify_table(place.path, snapshot, source, lambda: progress.advance(1), decoder)
        else:
            report = verify_table(place.path, snapshot, on_file=lambda: progress.advance(1))
    _tell_report(report, snapshot, table, full=full, as_json=as_json)
    if not report.is_clean:
        raise click.exceptions.Exit(1)


def _tell_report(report: "Report", snapshot: "Snapshot", table: Path, *, full: bool, as_json: bool) -> None:
    if as_json:
        counts = {"rows": report.rows, "dead_letters": report.dead_letters, "files": report.files}
        counts |= {"missing_offsets": report.missing_offsets, "lost": report.lost}
        if full:
            counts |= {"compared": report.compared, "aborted": report.aborted}
            counts |= {"control": report.control, "compacted": report.compacted}
        findings = [
            {
                "fault": str(found.fault),
                "text": found.text,
                "file": found.file,
                "range": None if found.span is None else found.span._asdict(),
            }
            for found in report.findings
        ]
        print_json({"table": str(table), "clean": report.is_clean, **counts, "findings": findings})
        return
    for found in report.findings:
        say_marked(found.fault, "red", f"{found.file + ' ' if found.file else ''}{found.text}")
    if snapshot.is_upsert:
        _tell_upserts(report, full=full)
        return
    held = sum(one.next - one.start for one in snapshot.ledger.values())
    say(f"{count_text(report.rows, 'row')} in {count_text(report.files, 'file')} for {held:,} offsets")
    if report.dead_letters:
        say(f"{report.dead_letters:,} offsets are dead letters, in the table {snapshot.dead_letters}")
    if report.missing_offsets:
        say(f"{report.missing_offsets:,} offsets have no row: control records, aborted or compacted records")
    if report.lost:
        say(f"{report.lost:,} offsets are lost: the topic deleted them before they were copied")
    if full:
        say(
            f"{count_text(report.compared, 'record')} of the topic compared; of the other offsets "
            f"{report.aborted:,} are aborted, {report.control:,} control records or removed by compaction; "
            f"{report.compacted:,} rows are compacted in the topic"
        )
    if report.is_clean:
        say_marked("ok", "green", "each offset once, no gap, all hashes agree")
    else:
        say(f"{count_text(len(report.findings), 'fault')} found", err=True)


def _tell_upserts(report: "Report", *, full: bool) -> None:
    say(f"{count_text(report.rows, 'row')} in {count_text(report.files, 'file')}, one for each key")
    if full:
        say(
            f"{count_text(report.compared, 'key')} compared with the topic; {report.compacted:,} rows have a "
            "newer record there, which is not copied yet"
        )
    if report.is_clean:
        say_marked("ok", "green", "each key once, all hashes agree")
    else:
        say(f"{count_text(len(report.findings), 'fault')} found", err=True)


@lake.command()
@table_argument
@click.option(
    "--target-size",
    type=SIZE,
    default="128MiB",
    show_default=True,
    metavar="SIZE",
    help="Size of the files to make.",
)
@click.option(
    "--keep",
    type=Seconds(3600.0),  # a copier needs the files that it is about to commit
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="Age from which files that the table no longer names are removed.",
)
@json_option
def optimize(table: Path, target_size: int, keep: float, as_json: bool) -> None:
    """Join small files of TABLE to large ones, and remove files that no commit names.

    It may run while copiers add rows. The proofs of the small files are added up, so `verify` finds a row
    that gets lost here. No broker is needed.
    """
    from headrace.lake.optimizing import Optimizer

    optimizer = Optimizer(_table(table), target_bytes=target_size)
    done = optimizer.compact()
    optimizer.remove_unneeded(done, keep_s=keep)
    if as_json:
        print_json({"table": str(table), **asdict(done)})
        return
    say(
        f"{table}: {done.files_before:,} files before, {done.files_after:,} now; "
        f"{bytes_text(done.written_bytes)} written; {count_text(done.removed_files, 'unneeded file')} "
        f"removed ({bytes_text(done.removed_bytes)})"
    )


@lake.command()
@table_argument
@partitions_option
@click.option("--from", "begin", type=click.IntRange(min=0), default=0, help="First offset.")
@click.option("--to", "end", type=click.IntRange(min=0), help="Offset to stop at, exclusive.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Stop after this many rows.")
@click.option("--live", is_flag=True, help="Then print what the topic has behind the table's last offsets.")
@registry_option
@broker_options
def read(
    table: Path,
    partitions: tuple[int, ...],
    begin: int,
    end: int | None,
    limit: int | None,
    live: bool,
    registry: str,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Print the values of TABLE's rows in the order of the topic: by partition, then by offset.

    With --json each row is an object as `headrace consume --json` prints it, and `headrace produce --json`
    reads it. With --live the rows are those of the table up to its last offset, and from there on the records
    of the topic: each once. Without --live no broker is needed. A row with typed columns is printed as a JSON
    object of its columns.
    """
    from headrace.lake.reading import read_rows
    from headrace.lake.stitching import read_stitched
    from headrace.lake.typed_rows import table_decoder

    place = _table(table)
    snapshot = place.load()
    if live:
        with administer(bootstrap, timeout) as admin, _topic(admin, bootstrap, snapshot.topic) as source:
            decoder = table_decoder(snapshot, registry)
            found = read_stitched(
                place.path, snapshot, source, partitions=partitions, start=begin, end=end, decoder=decoder
            )
            _print_rows(found, snapshot, limit, as_json=as_json)
    else:
        found = read_rows(place.path, snapshot, partitions=partitions, start=begin, end=end)
        _print_rows(found, snapshot, limit, as_json=as_json)
    if sys.stdout.isatty():
        note(f"{table} has {snapshot.stored.row_count():,} rows")


def _print_rows(
    tables: "Iterator[pa.Table]", snapshot: "Snapshot", limit: int | None, *, as_json: bool
) -> None:
    from headrace.lake.messages import json_rows, messages
    from headrace.records.json_lines import write_json_line

    left = limit
    for rows in tables:
        if left is not None:
            rows = rows.slice(0, left)
            left -= rows.num_rows
        if snapshot.values is not None:
            lines = json_rows(rows)
        else:
            records = messages(rows, snapshot.topic)
            lines = (write_json_line(one) if as_json else one.value or b"" for one in records)
        for line in lines:
            sys.stdout.buffer.write(line + b"\n")
        if left == 0:
            break
    sys.stdout.buffer.flush()
