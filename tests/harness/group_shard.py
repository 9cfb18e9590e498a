"""One shard of groups, driven as its node does it: records are logged and replayed at once.

The log holds encoded records, so that whatever survives a restart has been through the bytes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from headrace.base.time import ManualClock, Now
from headrace.machines.coordination import Caller, Decision
from headrace.machines.groups.groups import Groups
from headrace.machines.groups.settings import GroupSettings
from headrace.protocol.coordinator_records import GROUP_RECORDS, Record, decode, encode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headrace.protocol.messages.describe_groups import DescribeGroupsResponse
from headrace.protocol.messages.list_groups import ListGroupsResponse
from headrace.protocol.messages.offset_fetch import OffsetFetchResponse
from headrace.protocol.notation import Request

HOST = "/127.0.0.1"


class FixedTopics:
    """Topics that are there, by their number of partitions; an id is the name, filled up with zeros."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        self.version = 1

    def partition_count(self, topic: str, /) -> int | None:
        return self.counts.get(topic)

    def id_of(self, topic: str, /) -> bytes | None:
        return topic.encode().ljust(16, b"\0") if topic in self.counts else None

    def name_of(self, topic_id: bytes, /) -> str | None:
        name = topic_id.rstrip(b"\0").decode()
        return name if name in self.counts else None

    def names(self) -> list[str]:
        return sorted(self.counts)


# One line of the log: an encoded record with the producer in whose transaction it was written, or the end of
# a transaction.
Line = tuple[bytes, bytes | None, Any] | tuple[int, bool]


class GroupShard:
    def __init__(
        self, settings: GroupSettings | None = None, topics: Mapping[str, int] | None = None
    ) -> None:
        self.settings = settings or GroupSettings()
        self.topics = FixedTopics(topics or {"t": 4, "u": 2})
        self.clock = ManualClock(mono=1000.0)
        self.dice = random.Random(7)
        self.lines: list[Line] = []
        self.answers: list[tuple[Any, Any]] = []  # of tickets, in order
        self.machine = self._new_machine()
        self.apply(self.machine.loaded(self.now))

    def _new_machine(self) -> Groups:
        return Groups(self.settings, self.topics, self.dice)

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
        self.machine.check()
        return decision.reply

    def take_answers(self) -> list[tuple[Any, Any]]:
        """Tickets that were answered since the last call, each with its reply."""
        answers, self.answers = self.answers, []
        return answers

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        self.lines.append((producer_id, is_committed))
        self.machine.replay_end(producer_id, is_committed)

    def advance(self, milliseconds: float) -> None:
        """Time passes, and every timer rings in its moment."""
        end = self.clock.mono + milliseconds / 1000
        while (deadline := self.machine.deadline()) is not None and deadline <= end:
            self.clock.advance(max(0.0, deadline - self.clock.mono))
            for decision in self.machine.wake(self.now):
                self.apply(decision)
            self.machine.check()
        self.clock.advance(max(0.0, end - self.clock.mono))

    def rebuilt(self) -> Groups:
        """What another coordinator makes of the log."""
        machine = self._new_machine()
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
        handler = getattr(self, f"_{type(request).__name__.removesuffix('Request')}")
        return handler(request, version, Caller(client, HOST), ticket)

    def _JoinGroup(self, request: Any, version: int, caller: Caller, ticket: Any) -> Any:
        return self.apply(self.machine.join(self.now, request, version, caller, ticket))

    def _SyncGroup(self, request: Any, version: int, caller: Caller, ticket: Any) -> Any:
        return self.apply(self.machine.sync(self.now, request, version, caller, ticket))

    def _Heartbeat(self, request: Any, *_: Any) -> Any:
        return self.apply(self.machine.heartbeat(self.now, request))

    def _LeaveGroup(self, request: Any, version: int, *_: Any) -> Any:
        return self.apply(self.machine.leave(self.now, request, version))

    def _ConsumerGroupHeartbeat(self, request: Any, version: int, caller: Caller, _: Any) -> Any:
        return self.apply(self.machine.consumer_heartbeat(self.now, request, version, caller))

    def _OffsetCommit(self, request: Any, version: int, *_: Any) -> Any:
        return self.apply(self.machine.commit_offsets(self.now, request, version))

    def _TxnOffsetCommit(self, request: Any, version: int, *_: Any) -> Any:
        return self.apply(self.machine.commit_transactional(self.now, request, version))

    def _OffsetFetch(self, request: Any, *_: Any) -> Any:
        groups = [
            self.machine.fetch_offsets(self.now, each, request.require_stable) for each in request.groups
        ]
        return OffsetFetchResponse(groups=groups)

    def _OffsetDelete(self, request: Any, *_: Any) -> Any:
        return self.apply(self.machine.delete_offsets(self.now, request))

    def _DescribeGroups(self, request: Any, version: int, *_: Any) -> Any:
        groups = [self.machine.describe(self.now, each, version) for each in request.groups]
        return DescribeGroupsResponse(groups=groups)

    def _ListGroups(self, request: Any, *_: Any) -> Any:
        return ListGroupsResponse(
            groups=self.machine.list_groups(request.states_filter, request.types_filter)
        )

    def _DeleteGroups(self, request: Any, *_: Any) -> Any:
        errors: dict[str, ErrorCode] = {
            name: self.apply(self.machine.delete_group(self.now, name)) for name in request.groups_names
        }
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=error) for name, error in errors.items()]
        )

    def records(self) -> list[Record]:
        return [_read(line[0], line[1]) for line in self.lines if len(line) == 3]


def _read(key: bytes, value: bytes | None) -> Record:
    record = decode(GROUP_RECORDS, key, value)
    assert record is not None
    return record
