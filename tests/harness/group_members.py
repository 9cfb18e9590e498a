"""Members of a group around a node on a desk: a network that delays and loses, one seed, no sockets.

`World.run` lets time pass from event to event. An application is part of each member: it polls, reads what it
owns, commits and acknowledges, unless the test tells it not to. After every event the judge looks at who owns
what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from harness.desk import Desk
from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition
from headrace.client.connection import ByVersion
from headrace.client.errors import ConnectionLost, TimedOut
from headrace.client.membership.events import Assigned, Failed, Left, Lost, PolledTooLate, Revoked
from headrace.client.membership.group import Group
from headrace.client.membership.identity import NO_EPOCH
from headrace.client.membership.mailbox import Outgoing
from headrace.client.membership.settings import GroupSettings
from headrace.client.membership.subscription import Subscription
from headrace.node.connection import Connection
from headrace.protocol.api import APIS

QUICK = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


@dataclass
class Faults:
    """How bad the network is."""

    delay_s: float = 0.001  # at the least
    jitter_s: float = 0.0
    loss: float = 0.0  # of requests, and as much of answers


@dataclass
class Application:
    """What the user of one member does."""

    poll_every_s: float = 0.1
    acknowledges: bool = True
    polls: bool = True


class Member:
    """One client: its machine, and the application that uses it."""

    def __init__(self, world: World, name: str, settings: GroupSettings, application: Application) -> None:
        self.world, self.name, self.settings = world, name, settings
        self.application = application
        self.group = Group(settings, Random(f"{world.seed}-{name}"))
        self.is_alive = True
        self.wishes: frozenset[str] = frozenset()
        self.owned: frozenset[TopicPartition] = frozenset()  # as the application was told
        self.events: list[Any] = []
        self.failure: Exception | None = None

    @property
    def is_content(self) -> bool:
        membership = self.group.membership
        return membership.is_stable and self.owned == membership.owned and not membership.revoking

    def subscribe(self, *topics: str) -> None:
        self.wishes = frozenset(topics)
        self.group.subscribe(self.world.now, Subscription(frozenset(topics)))
        self.world.touch(self)

    def leave(self) -> None:
        self.wishes = frozenset()
        self.group.leave(self.world.now)
        self.world.touch(self)

    def crash(self) -> None:
        self.is_alive = False
        self.owned = frozenset()

    def hear(self) -> None:
        for event in self.group.take_events():
            self.events.append(event)
            match event:
                case Assigned():
                    assert not event.partitions & self.owned, "told twice"
                    self.owned |= event.partitions
                case Revoked():
                    assert event.partitions <= self.owned, "revoked what it did not have"
                case Lost():
                    assert event.partitions <= self.owned, "lost what it did not have"
                    self.owned -= event.partitions
                case Failed():
                    self.failure = event.error
                case PolledTooLate() | Left():
                    pass

    def poll(self) -> None:
        if not self.is_alive:
            return
        if self.application.polls:
            self.group.polled(self.world.now)
            if self.application.acknowledges and self.group.membership.revoking:
                self.acknowledge()
            self.world.touch(self)
        self.world.after(self.application.poll_every_s, self.poll)

    def acknowledge(self) -> None:
        self.owned -= self.group.membership.revoking
        self.group.acknowledge(self.world.now)


@dataclass
class Travelling:
    member: Member
    outgoing: Outgoing
    connection: Connection | None = None
    is_answered: bool = False


class World:
    """Invariant: everything that happens is an entry of `_agenda`, a deadline of the node or of a member."""

    def __init__(self, seed: int = 1, faults: Faults | None = None, **settings: str) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.faults = faults or Faults()
        self.desk = Desk({**QUICK, **settings}, seed=seed)
        self.members: list[Member] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._parked: list[Travelling] = []
        self._boots = 1
        self.topics: dict[str, int] = {}

    @property
    def now(self) -> Instant:
        return self.desk.clock.now().mono

    def member(
        self, *topics: str, application: Application | None = None, name: str | None = None, **settings: Any
    ) -> Member:
        """A new member that subscribes at once."""
        values = {
            "group_id": "g",
            "session_timeout_s": 6.0,
            "heartbeat_interval_s": 0.5,
            "max_poll_interval_s": 20.0,
            "request_timeout_s": 3.0,
            **settings,
        }
        member = Member(
            self,
            name or f"m{len(self.members) + 1}",
            GroupSettings(**values),
            application or Application(),
        )
        self.members.append(member)
        self.after(member.application.poll_every_s, member.poll)
        if topics:
            member.subscribe(*topics)
        return member

    # --- time ----------------------------------------------------------------------------------------------

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        heappush(self._agenda, (self.now + delay_s, next(self._order), action))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Lets time pass; True as soon as `until` holds."""
        end = self.now + seconds
        while True:
            if until is not None and until():
                return True
            at = min(
                [
                    end,
                    *(entry[0] for entry in self._agenda[:1]),
                    *([self.desk.node.deadline()] if self.desk.node.deadline() is not None else []),
                    *(member.group.deadline() for member in self.members if member.is_alive),
                ]
            )
            if at >= end:
                self.desk.advance(max(0.0, end - self.now))
                self._collect()
                return until is not None and until()
            self.desk.advance(max(0.0, at - self.now))
            self._collect()
            while self._agenda and self._agenda[0][0] <= self.now:
                heappop(self._agenda)[2]()
            for member in self.members:
                if member.is_alive and member.group.deadline() <= self.now:
                    self.touch(member)
            self._collect()
            self.judge()

    def settle(self, seconds: float = 120.0) -> None:
        """Time passes until every live member is content; an assertion if that does not come."""
        assert self.run(seconds, self.is_settled), "the group does not settle: " + ", ".join(
            f"{member.name} {member.group.membership.phase}" for member in self.members if member.is_alive
        )

    def is_settled(self) -> bool:
        """Every partition that somebody wants has one owner, and nobody is about to change that."""
        live = [member for member in self.members if member.is_alive and member.wishes]
        wanted = {
            TopicPartition(topic, index)
            for topic in {topic for member in live for topic in member.wishes}
            for index in range(self.topics.get(topic, 0))
        }
        owned = [at for member in live for at in member.owned]
        return sorted(owned) == sorted(wanted) and all(member.is_content for member in live)

    def create_topic(self, name: str, partitions: int) -> None:
        self.desk.create_topic(name, partitions)
        self.topics[name] = partitions

    # --- the network ----------------------------------------------------------------------------------------

    def touch(self, member: Member) -> None:
        """Sends what the member wants to send, and lets its application hear."""
        for outgoing in member.group.requests(self.now):
            travelling = Travelling(member, outgoing)
            self.after(outgoing.timeout_s, lambda t=travelling: self._answer(t, TimedOut("no answer")))
            if self.dice.random() >= self.faults.loss:
                self.after(self._delay(), lambda t=travelling: self._arrive(t))
        member.hear()

    def _delay(self) -> float:
        return self.faults.delay_s + self.dice.random() * self.faults.jitter_s

    def _arrive(self, travelling: Travelling) -> None:
        question, version_max = travelling.outgoing.question, travelling.outgoing.version_max
        kind = question.kind if isinstance(question, ByVersion) else type(question)
        version = APIS[kind.KEY].last if version_max is None else min(version_max, APIS[kind.KEY].last)
        request = question.make(version) if isinstance(question, ByVersion) else question
        travelling.connection = self.desk.connect()
        self.desk.send(travelling.connection, request, version)
        self._parked.append(travelling)
        self._collect()

    def _collect(self) -> None:
        """Takes the answers that the node has given."""
        waiting = []
        for travelling in self._parked:
            assert travelling.connection is not None
            answer = self.desk.receive(travelling.connection)
            if answer is None:
                waiting.append(travelling)
            elif self.dice.random() >= self.faults.loss:
                self.after(self._delay(), lambda t=travelling, a=answer: self._answer(t, a))
        self._parked = waiting

    def _answer(self, travelling: Travelling, answer: Any) -> None:
        if travelling.is_answered or not travelling.member.is_alive:
            return
        travelling.is_answered = True
        travelling.member.group.answered(self.now, travelling.outgoing.ticket, answer)
        self.touch(travelling.member)

    def restart_node(self) -> None:
        """The node dies and comes back with what it had written; whoever waits for an answer hears of it."""
        self._boots += 1
        parked, self._parked = self._parked, []
        for travelling in parked:
            self.after(0.0, lambda t=travelling: self._answer(t, ConnectionLost("the node died")))
        desk = self.desk
        texts = {key: value for key, value in desk.texts.items() if key not in ("node.id", "listeners")}
        self.desk = Desk(
            texts, disks=desk.disks, seed=self.seed, boot_id=f"boot-{self._boots}", clock=desk.clock
        )

    # --- the judge ------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """group_owns_partition_once: of two that own a partition, one is of an older generation."""
        holders: dict[tuple[TopicPartition, int], str] = {}
        for member in self.members:
            if not member.is_alive:
                continue
            epoch = member.group.membership.identity().epoch
            if epoch == NO_EPOCH:
                continue
            for at in member.owned:
                other = holders.setdefault((at, epoch), member.name)
                assert other == member.name, f"{at} is {other}'s and {member.name}'s in generation {epoch}"
