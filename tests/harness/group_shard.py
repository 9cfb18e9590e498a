"""One shard of groups, driven as its node does it: records are logged and replayed at once, and requests and
responses translated by the handlers.

The log holds encoded records, so that whatever survives a restart has been through the bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from harness.group_requests import Asked, response_of
from harness.refused_first import RefusedGroups
from headrace.base.time import ManualClock, Now
from headrace.machines.coordination import Caller, Decision
from headrace.machines.groups.groups import Groups
from headrace.machines.groups.settings import GroupSettings
from headrace.protocol.coordinator_records import GROUP_RECORDS, Record, decode, encode
from headrace.protocol.notation import Request

HOST = "/127.0.0.1"
Place = tuple[bytes, int]  # topic id and partition


class FakeTopics:
    """Topics that come and go, by their number of partitions."""

    def __init__(self, **partitions: int) -> None:
        self.version = 0
        self.awaited: set[tuple[str, str]] = set()  # topic and group
        self._topics: dict[str, tuple[bytes, int]] = {}
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        self.version += 1
        self._topics[name] = (
            name.encode()[-12:].rjust(12, b".") + self.version.to_bytes(4, "big"),
            partitions,
        )

    def grow(self, name: str, partitions: int) -> None:
        self.version += 1
        self._topics[name] = (self._topics[name][0], partitions)

    def delete(self, name: str) -> None:
        self.version += 1
        del self._topics[name]

    def partition_count(self, topic: str, /) -> int | None:
        return self._topics[topic][1] if topic in self._topics else None

    def id_of(self, topic: str, /) -> bytes | None:
        return self._topics[topic][0] if topic in self._topics else None

    def name_of(self, topic_id: bytes, /) -> str | None:
        return next((name for name, (found, _) in self._topics.items() if found == topic_id), None)

    def names(self) -> list[str]:
        return sorted(self._topics)

    def awaits(self, topic: str, group_id: str, /) -> bool:
        return (topic, group_id) in self.awaited

    def places(self, *names: str) -> set[Place]:
        """All partitions of these topics."""
        known = [self._topics[name] for name in names if name in self._topics]
        return {(topic_id, number) for topic_id, count in known for number in range(count)}


# One line of the log: an encoded record with the producer in whose transaction it was written, or the end of
# a transaction.
Line = tuple[bytes, bytes | None, Any] | tuple[int, bool]


class GroupShard:
    def __init__(
        self,
        settings: GroupSettings | None = None,
        topics: FakeTopics | None = None,
        *,
        after_records: Callable[[Groups, list[Record]], None] = lambda machine, records: None,
    ) -> None:
        self.settings = settings or GroupSettings()
        self.topics = topics or FakeTopics(t=4, u=2)
        self._after_records = after_records
        self.clock = ManualClock(mono=1000.0)
        self.rng = random.Random(7)
        self.lines: list[Line] = []
        self.answers: list[tuple[Any, Any]] = []  # of tickets, in order, as values of the machine
        self.can_write = True
        self.machine = self.new_machine()
        self.apply(self.machine.loaded(self.now))

    def new_machine(self) -> Groups:
        return RefusedGroups(self.settings, self.topics, self.rng)

    @property
    def now(self) -> Now:
        return self.clock.now()

    # --- the node's part ------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Any:
        for record in decision.records:
            key, value = encode(record)
            self.lines.append((key, value, decision.writer))
            self.machine.replay(_read(key, value), decision.writer)
        self.answers += decision.answers
        if decision.records:
            self._after_records(self.machine, decision.records)
        self.machine.check()
        return decision.reply

    def take_answers(self) -> list[tuple[Any, Any]]:
        """Tickets that were answered since the last call, each with its response."""
        answers = [(ticket, response_of(answer)) for ticket, answer in self.answers]
        self.answers.clear()
        return answers

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        self.lines.append((producer_id, is_committed))
        self.machine.replay_end(producer_id, is_committed)

    def advance(self, milliseconds: float) -> None:
        """Time passes, and every timer rings in its moment."""
        end = self.clock.mono + milliseconds / 1000
        while (deadline := self.machine.deadline()) is not None and deadline <= end:
            self.clock.advance(max(0.0, deadline - self.clock.mono))
            for decision in self.machine.wake(self.now, can_write=self.can_write):
                assert self.can_write or not decision.records
                self.apply(decision)
            self.machine.check()
        self.clock.advance(max(0.0, end - self.clock.mono))

    def rebuilt(self) -> Groups:
        """What another coordinator makes of the log."""
        machine = self.new_machine()
        for line in self.lines:
            if len(line) == 2:
                machine.replay_end(*line)
            else:
                key, value, writer = line
                machine.replay(_read(key, value), writer)
        return machine

    def crash(self) -> list[Any]:
        """The coordinator is gone, and with it whoever waited; another one takes over."""
        waiting = self.machine.abandon()
        self.machine = self.rebuilt()
        self.apply(self.machine.loaded(self.now))
        return waiting

    def compact(self) -> None:
        """Keeps the last record of every key, as the cleaner does: nothing of an aborted transaction, and
        nothing is touched from where the first open one begins.
        """
        ends: dict[int, bool] = {}  # of the producers whose transaction ends later on
        aborted: set[int] = set()
        end = len(self.lines)
        for index, line in reversed(list(enumerate(self.lines))):
            if len(line) == 2:
                ends[line[0]] = line[1]
            elif line[2] is not None and line[2].producer_id not in ends:
                end = index
            elif line[2] is not None and not ends[line[2].producer_id]:
                aborted.add(index)
        newest: dict[bytes, int] = {}
        for index, line in enumerate(self.lines[:end]):
            if len(line) == 3 and index not in aborted:
                newest[line[0]] = index
        self.lines = [
            line
            for index, line in enumerate(self.lines)
            if index >= end or len(line) == 2 or newest.get(line[0]) == index
        ]

    # --- requests -------------------------------------------------------------------------------------------

    def ask(self, request: Request, version: int, client: str = "client", ticket: Any = None) -> Any:
        """The answer, or None if it comes later, with the ticket."""
        asked = Asked(self.machine, self.now, self.apply, version, Caller(client, HOST), ticket)
        return asked.response(request)

    def records(self) -> list[Record]:
        return [_read(line[0], line[1]) for line in self.lines if len(line) == 3]


def _read(key: bytes, value: bytes | None) -> Record:
    record = decode(GROUP_RECORDS, key, value)
    assert record is not None
    return record
