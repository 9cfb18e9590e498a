"""`headrace redrive`: sends dead letters back to the topics they came from."""

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field

import click

from headrace.base.moments import Edge, Moment, parse_moment
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options, settings_of
from headrace.cli.completers import topics as complete_topics
from headrace.cli.progress import ProgressBar
from headrace.cli.reading import reader
from headrace.cli.suggestions import describe_topic
from headrace.cli.terminal import say
from headrace.client.cluster import TopicPartition
from headrace.client.errors import TimedOut
from headrace.client.threads.admin import Admin
from headrace.client.threads.consumer import Consumer
from headrace.client.threads.producer import Producer
from headrace.client.threads.ranges import resolve
from headrace.records._messages import Message
from headrace.schemas.dead_letters import DeadLetter, NotADeadLetter, read_dead_letter

POLL_S = 0.5
# Letters of one transaction: after a crash as many are read again, and none is sent twice.
PER_TRANSACTION = 1_000
ATTEMPTS_MAX = 3
REASONS_SHOWN = 10


@dataclass(slots=True)
class Tally:
    """What was found, and what became of it."""

    redriven: Counter[str] = field(default_factory=Counter)  # by topic
    reasons: Counter[str] = field(default_factory=Counter)  # of those redriven
    too_often: int = 0
    not_chosen: int = 0
    not_letters: int = 0


@dataclass(slots=True)
class Choice:
    """Which letters go back."""

    sources: frozenset[str]  # empty: of all topics
    reason: re.Pattern[str] | None
    attempts_max: int

    def letter_of(self, message: Message, tally: Tally) -> DeadLetter | None:
        """The letter if it goes back; if not, the tally knows why."""
        try:
            letter = read_dead_letter(message.key, message.value, message.headers)
        except NotADeadLetter:
            tally.not_letters += 1
            return None
        is_other = bool(self.sources) and letter.topic not in self.sources
        if is_other or (self.reason is not None and not self.reason.search(letter.reason)):
            tally.not_chosen += 1
        elif letter.attempt >= self.attempts_max:
            tally.too_often += 1
        else:
            tally.redriven[letter.topic] += 1
            tally.reasons[letter.reason] += 1
            return letter
        return None


@click.command("redrive")
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--execute", is_flag=True, help="Send them; without this the command only says what it would do."
)
@click.option(
    "--from",
    "begin",
    metavar="WHERE",
    help="Where to begin, as in consume [default: after the last redrive]",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="TOPIC",
    help="Only dead letters from this topic.",
    shell_complete=complete_topics,
)
@click.option("--reason", metavar="REGEX", help="Only dead letters whose reason matches.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Read at most this many dead letters.")
@click.option(
    "--attempts",
    "attempts_max",
    type=click.IntRange(min=1),
    default=ATTEMPTS_MAX,
    show_default=True,
    help="Skip dead letters that have failed this often.",
)
@click.option(
    "--group",
    metavar="NAME",
    help="Consumer group that stores the progress [default: headrace-redrive-TOPIC]",
)
@broker_options
def command(
    topic: str,
    execute: bool,
    begin: str | None,
    sources: tuple[str, ...],
    reason: str | None,
    limit: int | None,
    attempts_max: int,
    group: str | None,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Send the dead letters of TOPIC back to the topics they came from.

    Each goes to its original partition with its key, value, headers and timestamp. A header counts how
    often it has failed, so that a record that fails every time is not sent for ever. Each transaction
    contains records and the progress in TOPIC, so that no record is sent twice. Dead letters that are
    skipped stay in TOPIC; --from earliest reads them again.
    """
    choice = Choice(frozenset(sources), _pattern(reason), attempts_max)
    name = group or f"headrace-redrive-{topic}"
    tally = Tally()
    with administer(bootstrap, timeout) as admin:
        starts, ends, counts = _range(admin, topic, name, _moment(begin))
    total = sum(max(0, ends[at] - starts[at]) for at in starts)
    with (
        reader(bootstrap, timeout, committed=True) as consumer,
        ProgressBar("redriven" if execute else "read", min(total, limit or total)) as progress,
    ):
        consumer.assign({at: start for at, start in starts.items() if start < ends[at]})
        batches = _Batches(consumer, ends, limit, timeout)
        if execute:
            with Producer(settings_of("producer", bootstrap, transactional_id=name)) as producer:
                while messages := batches.take():
                    _redrive(producer, messages, choice, tally, name, counts)
                    progress.advance(len(messages))
        else:
            while messages := batches.take():
                for message in messages:
                    choice.letter_of(message, tally)
                progress.advance(len(messages))
    _tell(tally, execute=execute, as_json=as_json)


def _pattern(reason: str | None) -> re.Pattern[str] | None:
    try:
        return None if reason is None else re.compile(reason)
    except re.error as error:
        raise click.BadParameter(str(error), param_hint="--reason") from None


def _moment(text: str | None) -> Moment | None:
    try:
        return None if text is None else parse_moment(text, wall_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from None


def _range(
    admin: Admin, topic: str, group: str, begin: Moment | None
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[str, int]]:
    """Where to begin and to end in each partition, and how many partitions each topic has."""
    partitions = [
        TopicPartition(topic, index) for index in range(len(describe_topic(admin, topic).partitions))
    ]
    starts = resolve(admin, partitions, begin or Edge.EARLIEST, isolation_level="read_committed")
    if begin is None:
        for at, committed in admin.list_group_offsets(group).items():
            if at in starts:  # what was deleted meanwhile is not there to be read
                starts[at] = max(starts[at], committed.offset)
    ends = resolve(admin, partitions, Edge.LATEST, isolation_level="read_committed")
    counts = {one.name: len(one.partitions) for one in admin.list_topics()}
    return starts, ends, counts


class _Batches:
    """Messages up to the ends as of the start: what fails again meanwhile is for the next time."""

    def __init__(
        self, consumer: Consumer, ends: dict[TopicPartition, int], limit: int | None, patience_s: float
    ) -> None:
        self._consumer = consumer
        self._ends = ends
        self._left = limit
        self._patience_s = patience_s

    def take(self) -> list[Message]:
        """Empty: that was all."""
        consumer = self._consumer
        give_up_at = time.monotonic() + self._patience_s
        while consumer.assignment and self._left != 0:
            room = PER_TRANSACTION if self._left is None else min(self._left, PER_TRANSACTION)
            messages = [
                message
                for message in consumer.poll(POLL_S, max_records=room)
                if message.offset < self._ends[TopicPartition(message.topic, message.partition)]
            ]
            unread = [at for at in consumer.assignment if consumer.position(at) < self._ends[at]]
            if len(unread) < len(consumer.assignment):
                consumer.assign({at: consumer.position(at) for at in unread})
            if messages:
                if self._left is not None:
                    self._left -= len(messages)
                return messages
            if time.monotonic() > give_up_at:
                raise TimedOut(f"no record arrived for {self._patience_s:g} s")
        return []


def _redrive(
    producer: Producer,
    messages: list[Message],
    choice: Choice,
    tally: Tally,
    group: str,
    counts: dict[str, int],
) -> None:
    """These letters, and that they are done, as one transaction."""
    with producer.transaction():
        done: dict[TopicPartition, int] = {}
        for message in messages:
            done[TopicPartition(message.topic, message.partition)] = message.offset + 1
            letter = choice.letter_of(message, tally)
            if letter is not None:
                is_there = letter.partition < counts.get(letter.topic, 0)
                producer.send(
                    letter.topic,
                    letter.value,
                    letter.key,
                    # a topic that was created again with fewer partitions gets it by its key
                    partition=letter.partition if is_there else None,
                    timestamp_ms=letter.timestamp_ms if letter.timestamp_ms >= 0 else None,
                    headers=letter.redriven_headers(),
                )
        producer.send_offsets(done, group)


def _tell(tally: Tally, *, execute: bool, as_json: bool) -> None:
    count = sum(tally.redriven.values())
    if as_json:
        shown = {
            "executed": execute,
            "redriven": dict(sorted(tally.redriven.items())),
            "reasons": dict(tally.reasons.most_common()),
            "too_often": tally.too_often,
            "not_chosen": tally.not_chosen,
            "not_letters": tally.not_letters,
        }
        say(json.dumps(shown))
        return
    say(f"{count} dead letters {'were sent back' if execute else 'would be sent back'}.")
    for topic, number in sorted(tally.redriven.items()):
        say(f"  {number:>8}  to {topic}")
    for reason, number in tally.reasons.most_common(REASONS_SHOWN):
        say(f"  {number:>8}  because: {reason}")
    for number, why in (
        (tally.too_often, "dead letters were skipped because they have failed too often (--attempts)."),
        (tally.not_chosen, "dead letters were skipped by --source or --reason."),
        (tally.not_letters, "records were skipped because they are not dead letters."),
    ):
        if number:
            say(f"{number} {why}")
    if not execute and count:
        say("Nothing was sent; give --execute to send them.")
