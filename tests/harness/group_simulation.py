"""Members of a group around one node, in simulated time: a network that delays and loses, from one seed.

`GroupSimulation.run` lets time pass from event to event. An application is part of each member: it polls,
reads on from what the group had committed, commits and acknowledges, unless the test tells it not to. Judges
look at who owns what after every event, and at every offset that somebody fetches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, TimedOut
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
    TopicRefused,
)
from headrace.client.membership.group import Group
from headrace.client.membership.subscription import Subscription
from headrace.client.session import Outgoing
from headrace.client.settings.consumer import GroupSettings
from headrace.simulator.manual_host import ManualHost
from headrace.simulator.manual_network import Link, ManualNetwork
from headrace.simulator.world import World

QUICK = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}


def partitions(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


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
    polls: bool = True
    acknowledges: bool = True
    commits: bool = False  # now and then, by itself


class Member:
    """One client: its machine, and the application that uses it."""

    def __init__(
        self, simulation: GroupSimulation, name: str, settings: GroupSettings, application: Application
    ) -> None:
        self.simulation, self.name, self.settings = simulation, name, settings
        self.application = application
        self.group = Group(settings, Random(f"{simulation.seed}-{name}"))
        self.network = ManualNetwork(simulation.host, self.group, is_unordered=True)
        self.is_alive = True
        self.subscription: Subscription | None = None
        self.owned: frozenset[TopicPartition] = frozenset()  # as the application was told
        self.positions: dict[TopicPartition, int] = {}  # of what it reads
        self.moves: list[Any] = []  # events of the membership
        self.ended: list[CommitEnded] = []
        self.unsaved: list[AutoCommitFailed] = []
        self.refusals: list[TopicRefused] = []
        self.failure: ClientError | None = None
        self._promised: dict[int, dict[TopicPartition, int]] = {}  # by the number of the fetch

    @property
    def is_content(self) -> bool:
        membership = self.group.membership
        return membership.is_stable and self.owned == membership.owned and not membership.revoking

    @property
    def epoch(self) -> int | None:
        identity = self.group.membership.identity()
        return identity and identity.epoch

    # --- what the application does --------------------------------------------------------------------------

    def subscribe(self, *topics: str, **otherwise: Any) -> None:
        self.subscription = Subscription(frozenset(topics), **otherwise)
        self.group.subscribe(self.simulation.now, self.subscription)
        self.simulation.touch(self)

    def leave(self) -> None:
        self.subscription = None
        self.group.leave(self.simulation.now)
        self.simulation.touch(self)

    def crash(self) -> None:
        self.is_alive = False
        self.owned = frozenset()

    def commit(self, offsets: Mapping[TopicPartition, int], **more: Any) -> int:
        told = {at: CommittedOffset(offset) for at, offset in offsets.items()}
        number = self.group.commit(self.simulation.now, told, **more)
        self.simulation.touch(self)
        return number

    def poll(self) -> None:
        if not self.is_alive:
            return
        if self.application.polls:
            self.group.polled(self.simulation.now)
            self._read()
            if self.application.acknowledges and self.group.membership.revoking:
                self.acknowledge()
            self.simulation.touch(self)
        self.simulation.after(self.application.poll_every_s, self.poll)

    def _read(self) -> None:
        rng = self.simulation.rng
        for at in sorted(self.positions.keys() & self.owned - self.group.membership.revoking):
            self.positions[at] += rng.randrange(3)
        read = {at: CommittedOffset(self.positions[at]) for at in self.positions.keys() & self.owned}
        self.group.consumed(self.simulation.now, read)
        if self.application.commits and read and rng.random() < 0.3:
            self.group.commit(self.simulation.now, read)

    def acknowledge(self) -> None:
        revoked = self.group.membership.revoking
        self.owned -= revoked
        for at in revoked:
            self.positions.pop(at, None)
        self.group.acknowledge(self.simulation.now)
        self.simulation.touch(self)

    # --- what it hears --------------------------------------------------------------------------------------

    def hear(self) -> None:
        for event in self.group.take_events():
            match event:
                case CommitEnded():
                    self.ended.append(event)
                    if event.error is None:
                        self.simulation.acknowledged(event.offsets)
                case AutoCommitFailed():
                    self.unsaved.append(event)
                case OffsetsFetched():
                    self._resume(event)
                case TopicRefused():
                    self.refusals.append(event)
                case _:
                    self.moves.append(event)
                    self._move(event)

    def _move(self, event: Assigned | Revoked | Lost | PolledTooLate | Left | Failed) -> None:
        match event:
            case Assigned():
                assert not event.partitions & self.owned, "told twice"
                self.owned |= event.partitions
                if event.partitions:
                    self._fetch(event.partitions)
            case Revoked():
                assert event.partitions <= self.owned, "revoked what it did not have"
            case Lost():
                assert event.partitions <= self.owned, "lost what it did not have"
                self.owned -= event.partitions
                for at in event.partitions:
                    self.positions.pop(at, None)
            case Failed():
                self.failure = event.error
            case PolledTooLate() | Left():
                pass

    def _fetch(self, wanted: frozenset[TopicPartition]) -> None:
        number = self.group.fetch_committed(self.simulation.now, wanted)
        self._promised[number] = {at: self.simulation.committed.get(at, 0) for at in wanted}

    def _resume(self, event: OffsetsFetched) -> None:
        promised = self._promised.pop(event.number)
        if event.error is not None:
            if again := self.owned & promised.keys():
                self._fetch(again)
            return
        for at, committed in event.offsets.items():
            found = 0 if committed is None else committed.offset
            assert found >= promised[at], f"{at} was committed at {promised[at]}, and is at {found} now"
            if at in self.owned:
                self.positions.setdefault(at, found)


class GroupSimulation:
    """Invariant: what happens is planned in `world`, or due at a deadline of the node or of a member."""

    def __init__(self, seed: int = 1, faults: Faults | None = None, **settings: str) -> None:
        self.seed = seed
        self.world = World(seed)
        self.rng = self.world.rng
        self.faults = faults or Faults()
        # Two never own one partition at a time, unless somebody was thought dead.
        self.forbids_overlap = faults is None
        self.host = ManualHost({**QUICK, **settings}, seed=seed, clock=self.world.clock)
        self.members: list[Member] = []
        self.topics: dict[str, int] = {}
        self.committed: dict[TopicPartition, int] = {}  # the highest that anybody was told is
        self.requests: list[tuple[str, Any]] = []  # all that were sent, with the member's name
        self._parked: list[tuple[Member, Link]] = []  # requests that the node has not answered

    @property
    def now(self) -> Instant:
        return self.host.clock.now().mono

    def create_topic(self, name: str, partitions: int) -> None:
        self.host.create_topic(name, partitions)
        self.topics[name] = partitions

    def member(self, *topics: str, application: Application | None = None, **settings: Any) -> Member:
        """A new member; it subscribes at once if there are topics."""
        values = {
            "group_id": "g",
            "session_timeout_s": 6.0,
            "heartbeat_interval_s": 0.5,
            "max_poll_interval_s": 20.0,
            "request_timeout_s": 3.0,
            "api_timeout_s": 20.0,
            **settings,
        }
        name = f"m{len(self.members) + 1}"
        member = Member(self, name, GroupSettings(**values), application or Application())
        self.members.append(member)
        self.after(member.application.poll_every_s, member.poll)
        if topics:
            member.subscribe(*topics)
        return member

    # --- time ----------------------------------------------------------------------------------------------

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.world.after(delay_s, action)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Lets time pass; True as soon as `until` holds."""
        end = self.now + seconds
        while not until():
            at = min(end, self._next())
            self.host.advance(max(0.0, at - self.now))
            self._collect()
            if at >= end:
                return until()
            self.world.run(self.now)
            for member in self.members:
                if member.is_alive and member.group.deadline() <= self.now:
                    self.touch(member)
            self._collect()
            self.judge()
        return True

    def _next(self) -> float:
        moments = [self.world.next_at]
        moments += [member.group.deadline() for member in self.members if member.is_alive]
        node = self.host.node.deadline()
        return min(moments if node is None else [*moments, node])

    def settle(self, seconds: float = 120.0) -> None:
        """Time passes until every live member is content; an assertion if that does not come."""
        assert self.run(seconds, self.is_settled), "the group does not settle: " + ", ".join(
            f"{member.name} {member.group.membership.phase.name} {sorted(member.owned)}"
            for member in self.members
            if member.is_alive
        )

    def is_settled(self) -> bool:
        """Every partition that somebody wants has one owner, and nobody is about to change that."""
        live = [member for member in self.members if member.is_alive and member.subscription]
        wanted = {
            TopicPartition(topic, index)
            for topic in self.topics
            if any(member.subscription and member.subscription.selects(topic) for member in live)
            for index in range(self.topics[topic])
        }
        owned = [at for member in live for at in member.owned]
        are_together = len({member.epoch for member in live}) <= 1
        return sorted(owned) == sorted(wanted) and are_together and all(member.is_content for member in live)

    # --- the network ----------------------------------------------------------------------------------------

    def touch(self, member: Member) -> None:
        """Sends what the member wants to send, and lets its application hear."""
        while True:
            for outgoing in member.group.requests(self.now):
                self._send(member, outgoing)
            before = len(member.moves)
            member.hear()
            if len(member.moves) == before:
                return

    def _send(self, member: Member, outgoing: Outgoing) -> None:
        link = member.network.post(outgoing)
        self.after(outgoing.timeout_s, lambda: self._lose(member, link, TimedOut("no answer")))
        if self.rng.random() >= self.faults.loss:
            self.after(self._delay(), lambda: self._arrive(member, link))

    def _delay(self) -> float:
        return self.faults.delay_s + self.rng.random() * self.faults.jitter_s

    def _arrive(self, member: Member, link: Link) -> None:
        if not link.sent:
            return  # lost with the node
        (sent,) = link.sent
        self.requests.append((member.name, sent.request))
        member.network.deliver(link)
        self._parked.append((member, link))
        self._collect()

    def _collect(self) -> None:
        """Takes the answers that the node has given."""
        parked, self._parked = self._parked, []
        for member, link in parked:
            if not member.network.has_answer(link):
                self._parked.append((member, link))
            elif self.rng.random() >= self.faults.loss:
                self._hear_later(member, link)

    def _hear_later(self, member: Member, link: Link) -> None:
        def hear() -> None:
            if member.is_alive and member.network.is_open(link):
                member.network.hear(link)
                self.touch(member)

        self.after(self._delay(), hear)

    def _lose(self, member: Member, link: Link, error: ClientError) -> None:
        if member.is_alive and member.network.is_open(link):
            member.network.cut(link, error)
            self.touch(member)

    def restart_node(self) -> None:
        """The node dies and comes back with what it had written; its connections are lost."""
        self.forbids_overlap = False
        self._parked.clear()
        for member in self.members:
            member.network.cut_all()
        self.host.restart()
        for member in self.members:
            if member.is_alive:
                self.touch(member)

    # --- judges ---------------------------------------------------------------------------------------------

    def acknowledged(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        for at, committed in offsets.items():
            self.committed[at] = max(self.committed.get(at, 0), committed.offset)

    def judge(self) -> None:
        """group_owns_partition_once: of two that own a partition, one is of an older generation."""
        holders: dict[Any, Member] = {}
        for member in self.members:
            if not member.is_alive or (member.epoch is None and not self.forbids_overlap):
                continue
            for at in member.owned:
                key = at if self.forbids_overlap else (at, member.epoch)
                other = holders.setdefault(key, member)
                # a static member that was replaced learns of it with its next heartbeat
                instance = member.settings.instance_id
                is_replaced = instance is not None and instance == other.settings.instance_id
                assert other is member or is_replaced, f"{key} is {other.name}'s and {member.name}'s at once"
