"""A member made of our own machine over sockets, in the smallest shell there can be; it reads no records."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from harness.members import HEARTBEAT_MS, REFRESH_MS, SESSION_TIMEOUT_MS, Committed, Member, Place
from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition, parse_bootstrap
from headrace.client.errors import ClientError
from headrace.client.mailbox import Outgoing
from headrace.client.membership.events import (
    Assigned,
    AutoCommitFailed,
    CommitEnded,
    CommittedOffset,
    Failed,
    Left,
    Lost,
    OffsetsFetched,
    PolledTooLate,
    Revoked,
)
from headrace.client.membership.group import Group
from headrace.client.membership.settings import GroupSettings
from headrace.client.membership.subscription import Subscription
from headrace.client.network import Call, Network, clock

TURN_S = 0.02


class HeadraceMember(Member):
    """`settings` are those of GroupSettings."""

    def _subscribe(self, shell: Shell) -> None:
        shell.group.subscribe(clock(), Subscription(frozenset(self.subscription)))

    def _live(self) -> None:
        values = {
            "session_timeout_s": SESSION_TIMEOUT_MS / 1000,
            "heartbeat_interval_s": HEARTBEAT_MS / 1000,
            "metadata_max_age_s": REFRESH_MS / 1000,
            "instance_id": self.instance,
            **self.settings,
        }
        shell = Shell(Group(GroupSettings(self.group, **values), Random()), self.bootstrap)
        self._subscribe(shell)
        try:
            while not self._leaving.is_set():
                self._turn(shell)
                while (order := self._take_order()) is not None:
                    action, answer = order
                    try:
                        answer.set_result(action(shell))
                    except ClientError as error:
                        answer.set_exception(error)
            shell.group.leave(clock())
            while not shell.has_left:
                self._turn(shell)
        finally:
            shell.network.close()

    def _turn(self, shell: Shell) -> None:
        for event in shell.turn():
            match event:
                case Assigned():
                    self._gained(event.partitions)
                case Revoked():
                    self._gave_up(event.partitions)
                    shell.group.acknowledge(clock())
                case Lost():
                    self._lost(event.partitions)
                case Failed():
                    raise event.error
                case _:
                    self.errors.append(event)

    def commit(self, offsets: dict[Place, Committed]) -> None:
        told = {
            TopicPartition(*at): CommittedOffset(each.offset, -1, each.metadata)
            for at, each in offsets.items()
        }
        self.ask(lambda shell: shell.ended(shell.group.commit(clock(), told)))

    def committed(self, place: Place) -> Committed | None:
        at = TopicPartition(*place)
        fetched = self.ask(lambda shell: shell.ended(shell.group.fetch_committed(clock(), [at])))
        found = fetched.offsets[at]
        return found and Committed(found.offset, found.metadata)

    def seek(self, place: Place, offset: int) -> None:
        raise AssertionError("it reads no records")


class Shell:
    """Carries a group's requests, on the caller's thread."""

    def __init__(self, group: Group, bootstrap: str) -> None:
        self.group = group
        self.network = Network("headrace")
        self.has_left = False
        self._addresses = deque(parse_bootstrap(bootstrap))
        self._settled: list[tuple[int, Call]] = []
        self._ended: dict[int, CommitEnded | OffsetsFetched] = {}

    def turn(self) -> list[Any]:
        now = clock()
        self.group.polled(now)
        for outgoing in self.group.requests(now):
            self._send(outgoing)
        self.network.poll(min(Instant(now + TURN_S), self.group.deadline()))
        settled, self._settled = self._settled, []
        for ticket, call in settled:
            self.group.answered(clock(), ticket, call.result if call.error is None else call.error)
        moves: list[Any] = []
        for event in self.group.take_events():
            match event:
                case CommitEnded() | OffsetsFetched():
                    self._ended[event.number] = event
                case Left():
                    self.has_left = True
                case PolledTooLate() | AutoCommitFailed():
                    raise AssertionError(event)
                case _:
                    moves.append(event)
        return moves

    def _send(self, outgoing: Outgoing) -> None:
        def settled(call: Call) -> None:
            self._settled.append((outgoing.ticket, call))

        self._addresses.rotate()
        self.network.submit(
            outgoing.to or self._addresses[0],
            outgoing.question,
            timeout_s=outgoing.timeout_s,
            lane=outgoing.lane,
            version_max=outgoing.version_max,
            then=settled,
        )

    def ended(self, number: int) -> Any:
        """Waits for a commit or a lookup; nothing else may happen to the group meanwhile."""
        while number not in self._ended:
            assert not self.turn()
        event = self._ended.pop(number)
        if event.error is not None:
            raise event.error
        return event
