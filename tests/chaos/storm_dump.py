"""A group that does not settle, as far as it can be seen from outside: what its members do, what the broker
says of it, and the records that it has written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from headrace.protocol.coordinator_records import GROUP_RECORDS, decode
from headrace.protocol.coordinator_records.groups import OffsetCommitKey

if TYPE_CHECKING:
    from chaos.storm import Storm

ANSWER_S = 20
LINES_OF_LOG = 25  # of each client
RECORDS = 30
OFFSETS_TOPIC = "__consumer_offsets"


def dump(storm: Storm) -> str:
    """Every part is asked for by itself: one that fails says so in its place."""
    parts = {
        "members": _members,
        "errors that members noticed": lambda storm: iter(storm.journal.notices[-40:]),
        "the group, as the broker describes it": _described,
        "the group's records": _records,
        "logs of the members' clients": _logs,
    }
    lines: list[str] = []
    for title, part in parts.items():
        lines.append(f"--- {title}")
        try:
            lines += part(storm)
        except Exception as error:
            lines.append(f"cannot be told: {error!r}")
    return "\n".join(lines)


def _members(storm: Storm) -> Iterator[str]:
    journal = storm.journal
    journal.states.clear()
    running = [hand for crew in storm.crews for hand in crew.hands.values() if hand.is_running()]
    for hand in running:
        hand.ask_state()
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end:
        if all(hand.name in journal.states for hand in running if hand.is_running()):
            break
        time.sleep(0.05)
    for hand in running:
        where = "ordered to leave" if hand.is_leaving else "aboard"
        if hand.name in journal.states:
            yield f"{hand.name} ({where}): {journal.states[hand.name]}"
        elif hand.is_running():
            yield f"{hand.name} ({where}): the process does not answer\n{hand.stacks_told()}"
        else:
            yield f"{hand.name} ({where}): the process has ended"
    owners = journal.owners()
    yield f"unowned: {[place for place, names in owners.items() if not names]}"
    yield f"owned twice: { {place: names for place, names in owners.items() if len(names) > 1} }"


def describe(storm: Storm) -> ConsumerGroupDescription:
    group_id = str(storm.settings["group.id"])
    admin = AdminClient({"bootstrap.servers": storm.bootstrap, "log_level": 0})
    asked = admin.describe_consumer_groups([group_id], request_timeout=ANSWER_S)
    return asked[group_id].result(ANSWER_S)


def _described(storm: Storm) -> Iterator[str]:
    described = describe(storm)
    yield f"{described.state}, assignor {described.partition_assignor}, {len(described.members)} members"
    for member in described.members:
        assigned = member.assignment.topic_partitions if member.assignment else []
        yield f"{member.client_id} {member.member_id}: {sorted(each.partition for each in assigned)}"


def _records(storm: Storm) -> Iterator[str]:
    """Without commits of offsets; a record of a classic group is written with each generation."""
    reader = Consumer(
        {
            "bootstrap.servers": storm.bootstrap,
            "group.id": "dump",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        count = len(reader.list_topics(OFFSETS_TOPIC, ANSWER_S).topics[OFFSETS_TOPIC].partitions)
        reader.assign([TopicPartition(OFFSETS_TOPIC, number, 0) for number in range(count)])
        found: list[str] = []
        unread, end = count, time.monotonic() + ANSWER_S
        while unread and time.monotonic() < end:
            for message in reader.consume(1000, 1.0):
                if message.error() is not None:
                    unread -= 1  # the end of a partition
                    continue
                record = decode(GROUP_RECORDS, message.key() or b"", message.value())
                if record is not None and not isinstance(record.key, OffsetCommitKey):
                    found.append(f"{message.timestamp()[1]} {record.key} {record.value}")
    finally:
        reader.close()
    yield f"{len(found)} records, {unread} partitions not read to their end; the last ones:"
    yield from found[-RECORDS:]


def _logs(storm: Storm) -> Iterator[str]:
    for hand in [hand for crew in storm.crews for hand in crew.hands.values()]:
        lines = hand.log.read_text(errors="replace").splitlines()
        yield f"{hand.name}: {len(lines)} lines, the last ones:"
        yield from lines[-LINES_OF_LOG:]
