"""`headrace consume`: prints records of a topic, from one offset or time to another, in any format."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from headrace.base.moments import Edge, Moment, parse_moment
from headrace.cli.administer import administer
from headrace.cli.client_settings import client_options
from headrace.cli.completers import groups as complete_groups
from headrace.cli.completers import topics as complete_topics
from headrace.cli.formats import compile_format, for_terminal
from headrace.cli.group_reading import read_as_member
from headrace.cli.options import DEFAULT_REGISTRY, optional_registry_option, partitions_option, timeout_option
from headrace.cli.progress import ProgressBar
from headrace.cli.reading import reader
from headrace.cli.suggestions import describe_topic
from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput, TimedOut
from headrace.client.threads.admin import Admin
from headrace.client.threads.consumer import Consumer
from headrace.client.threads.ranges import resolve
from headrace.records._messages import Message
from headrace.records.json_lines import write_json_line

if TYPE_CHECKING:
    from headrace.cli.decoding import Decoder

POLL_S = 0.5
# what --decode may be → the parts of a record that it means
PARTS = {"value": ("value",), "key": ("key",), "both": ("key", "value")}


@click.command("consume")
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--from", "begin", metavar="WHERE", help="Where to begin [default: earliest; with --follow: latest]"
)
@click.option("--to", "end", metavar="WHERE", help="Where to stop, exclusive [default: the current end]")
@partitions_option
@click.option("--follow", "-F", is_flag=True, help="Wait for new records and print them, until Ctrl-C.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--format", "-f", "form", metavar="FORMAT", help=r"Such as '%p %o %k %s\n'; see above.")
@click.option("--key-separator", "-K", metavar="TEXT", help="Print the key and this before each value.")
@click.option(
    "--group",
    "-g",
    metavar="NAME",
    help="Read as a member of this group, from its committed offsets, and commit.",
    shell_complete=complete_groups,
)
@click.option(
    "--decode",
    type=click.Choice(list(PARTS)),
    help="What to decode with the registry: Avro, Protobuf and JSON.  [default: value, with --registry]",
)
@optional_registry_option
@click.option("--committed", is_flag=True, help="Skip records of open and aborted transactions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per record and line.")
@client_options
@timeout_option
def command(
    topic: str,
    begin: str | None,
    end: str | None,
    partitions: tuple[int, ...],
    follow: bool,
    limit: int | None,
    form: str | None,
    key_separator: str | None,
    group: str | None,
    decode: str | None,
    registry: str | None,
    committed: bool,
    as_json: bool,
    bootstrap: str,
    timeout: float,
) -> None:
    """Print records of TOPIC, by default their values, one per line.

    \b
    WHERE is one of
      earliest, latest   1234 (an offset)   -100 (before the end)
      -90s -15m -1h -7d (ago)   2026-01-31T12:00:00Z   @1767225600000 (ms)

    \b
    Letters in FORMAT, as in kcat:
      %t topic  %p partition  %o offset  %T timestamp  %I the same in ISO 8601
      %k key    %s value      %h headers  %K %S lengths  %R header count
    """
    if sum((form is not None, key_separator is not None, as_json)) > 1:
        raise click.UsageError("Give only one of --format, --key-separator and --json.")
    if follow and end is not None:
        raise click.UsageError("--to cannot be used with --follow, which has no end.")
    if group is not None and (partitions or end is not None):
        raise click.UsageError(
            "--partition and --to cannot be used with --group: the group assigns whole partitions, and reads "
            "them to their ends."
        )
    decoder = _decoder(registry, decode, timeout)
    render = _renderer(form, key_separator, as_json, decoder)
    first = _moment(begin, "--from") or (Edge.LATEST if follow else Edge.EARLIEST)
    if group is not None and not isinstance(first, Edge):
        raise click.UsageError(
            "--from with --group must be earliest or latest, for partitions without a committed offset. "
            "`headrace group reset` changes the committed offsets."
        )
    last = None if follow else _moment(end, "--to") or Edge.LATEST
    level = "read_committed" if committed else "read_uncommitted"
    with administer(bootstrap, timeout) as admin:
        chosen = _chosen(admin, topic, partitions)
        starts = {} if group is not None else resolve(admin, chosen, first, isolation_level=level)
        ends = None if last is None else resolve(admin, chosen, last, isolation_level=level)
    try:
        if group is not None:
            assert isinstance(first, Edge)
            with reader(bootstrap, timeout, committed=committed, group=group, first=first.value) as consumer:
                read_as_member(consumer, group, topic, ends, render, limit=limit, patience_s=timeout)
            return
        with reader(bootstrap, timeout, committed=committed) as consumer:
            consumer.assign({at: start for at, start in starts.items() if ends is None or start < ends[at]})
            _copy(consumer, ends, starts, render, limit, None if follow else timeout)
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        sys.stdout.buffer.flush()
        if decoder is not None and not as_json:
            decoder.finish()


def _decoder(registry: str | None, decode: str | None, timeout_s: float) -> "Decoder | None":
    """None if there is only an address in the environment: other commands use that, too."""
    source = click.get_current_context().get_parameter_source("registry")
    if decode is None and source is not ParameterSource.COMMANDLINE:
        return None
    from headrace.cli.decoding import Decoder  # what reads schemas need not be loaded for plain bytes

    return Decoder(registry or DEFAULT_REGISTRY, PARTS[decode or "value"], timeout_s)


def _moment(text: str | None, option: str) -> Moment | None:
    if text is None:
        return None
    try:
        return parse_moment(text, wall_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _renderer(
    form: str | None, key_separator: str | None, as_json: bool, decoder: "Decoder | None"
) -> Callable[[Message], bytes]:
    if as_json:
        line = _json_line if decoder is None else decoder.json_line
        return for_terminal(line) if sys.stdout.isatty() else line
    render = _format(form, key_separator)
    return render if decoder is None else decoder.renderer(render)


def _json_line(record: Message) -> bytes:
    return write_json_line(record) + b"\n"


def _format(form: str | None, key_separator: str | None) -> Callable[[Message], bytes]:
    if key_separator is not None:
        form = "%k" + key_separator.replace("%", "%%") + "%s\\n"
        return compile_format(form, is_terminal=sys.stdout.isatty())
    try:
        return compile_format("%s\\n" if form is None else form, is_terminal=sys.stdout.isatty())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None


def _chosen(admin: Admin, topic: str, partitions: tuple[int, ...]) -> list[TopicPartition]:
    count = len(describe_topic(admin, topic).partitions)
    for partition in partitions:
        if partition >= count:
            raise InvalidInput(
                f"topic {topic!r} has no partition {partition}: it has partitions 0 to {count - 1}"
            )
    return [TopicPartition(topic, partition) for partition in sorted(set(partitions)) or range(count)]


def _copy(
    consumer: Consumer,
    ends: dict[TopicPartition, int] | None,
    starts: dict[TopicPartition, int],
    render: Callable[[Message], bytes],
    limit: int | None,
    patience_s: float | None,
) -> None:
    """Copies from the topic to stdout, until every partition is at its end or the limit is reached. Raises
    TimedOut if no record arrives for `patience_s`.
    """
    out = sys.stdout.buffer
    left = limit
    ends_by_number = {at.partition: end for at, end in (ends or {}).items()}  # all of one topic
    total = None if ends is None else sum(max(0, ends[at] - starts[at]) for at in starts)
    # a bar beside records that scroll by on the same terminal would tear them apart
    is_shown = sys.stderr.isatty() and not sys.stdout.isatty() and patience_s is not None
    heard_at = time.monotonic()
    with ProgressBar(
        "read", total if limit is None else min(limit, total or limit), is_shown=is_shown
    ) as progress:
        while consumer.assignment:
            records = consumer.poll(POLL_S)
            if records:
                heard_at = time.monotonic()
            elif patience_s is not None and time.monotonic() >= heard_at + patience_s:
                raise TimedOut(f"no record arrived for {patience_s:g} s")
            if ends is not None:
                records = [each for each in records if each.offset < ends_by_number[each.partition]]
            if left is not None:
                records = records[:left]
                left -= len(records)
            out.write(b"".join(map(render, records)))
            progress.advance(len(records))
            if left == 0:
                return
            if ends is None:
                out.flush()
            else:
                _leave_what_is_read(consumer, ends)


def _leave_what_is_read(consumer: Consumer, ends: dict[TopicPartition, int]) -> None:
    unread = [at for at in consumer.assignment if consumer.position(at) < ends[at]]
    if len(unread) < len(consumer.assignment):
        consumer.assign(unread)
