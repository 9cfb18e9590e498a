"""Consumers' machines before a node, with a network between them that the test has in its hands.

Requests travel as bytes, over a connection per lane as real clients have them; a connection may be cut before
or after the node has seen what is in it. A `Reader` is an application: it polls, listens and acknowledges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from harness.desk import Desk, joined
from harness.producer_stage import FEW_SHARDS, Letter, Link
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import TopicPartition
from headrace.client.consumer.position import ConsumerEvent
from headrace.client.consumer.session import ConsumerSession
from headrace.client.errors import ClientError, ConnectionLost
from headrace.client.membership.events import Assigned, Lost, Revoked
from headrace.client.membership.subscription import Subscription
from headrace.client.network.connection import ByVersion
from headrace.client.pending import Pending
from headrace.client.request_queue import Outgoing
from headrace.client.settings.consumer import ConsumerSettings, GroupSettings, parse_reset
from headrace.protocol.api import APIS, request_codec
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.records._messages import Message
from headrace.records.builder import build_batch

TOPIC = "t"
T = TypeVar("T")


class World:
    """One node and the clock that all live by."""

    def __init__(self, seed: int = 1, *, partitions: int = 2, **settings: str) -> None:
        self.dice = Random(seed)
        self.desk = Desk(FEW_SHARDS | settings, seed=seed)
        self.partitions = partitions
        self.desk.create_topic(TOPIC, partitions)
        self.readers: list[Reader] = []
        self.boots = 0

    @property
    def now(self) -> Instant:
        return Instant(self.desk.clock.mono)

    def all_at(self, topic: str = TOPIC) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for partition in range(self.partitions)]

    def write(
        self, partition: int, *values: bytes, topic: str = TOPIC, timestamp_ms: int | None = None
    ) -> None:
        """One batch."""
        stamp = int(self.desk.clock.wall_ms) if timestamp_ms is None else timestamp_ms
        batch = bytearray(build_batch([(stamp, None, value, ()) for value in values]))
        request = self.desk.produce_request(topic, batch, partition=partition)
        (told,) = self.desk.ask(request, 9).responses[0].partition_responses
        assert told.error_code == 0, told

    def delete_topic(self, name: str = TOPIC) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
        (told,) = self.desk.ask(request, 6).responses
        assert told.error_code == 0, told

    def reader(self, group: str | None = None, reset: str = "earliest", **settings: Any) -> Reader:
        of_group = {key: each for key, each in settings.items() if key in GroupSettings.__dataclass_fields__}
        own = {key: each for key, each in settings.items() if key in ConsumerSettings.__dataclass_fields__}
        assert of_group.keys() | own.keys() == settings.keys()
        membership = None if group is None else GroupSettings(group, **of_group)
        reader = Reader(self, ConsumerSettings(group=membership, reset=parse_reset(reset), **own))
        self.readers.append(reader)
        return reader

    def crash(self) -> None:
        """The node dies and starts again on the same disk."""
        for reader in self.readers:
            reader.cut_all()
        self.boots += 1
        self.desk = Desk(
            FEW_SHARDS,
            disks=self.desk.disks,
            seed=self.boots,
            boot_id=f"boot-{self.boots}",
            clock=self.desk.clock,
        )

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Time passes, the network is well, and every application polls; whether `until` came true."""
        end = self.now + seconds
        while True:
            while sum(reader.exchange() for reader in self.readers):  # each of them
                pass
            for reader in self.readers:
                reader.poll()
            if until():
                return True
            if self.now >= end:
                return False
            wake_at = min((reader.session.deadline() for reader in self.readers), default=NEVER)
            self.desk.advance(max(0.001, min(wake_at - self.now, 0.05, end - self.now)))

    def finish(self, pending: Pending[T]) -> T:
        assert self.run(120.0, lambda: pending.is_done), f"timed out while {pending.what}"
        return pending.result()


class Reader:
    """An application with a consumer."""

    def __init__(self, world: World, settings: ConsumerSettings) -> None:
        self.world = world
        self.session = ConsumerSession(settings, world.dice, wall_ms=lambda: int(world.desk.clock.wall_ms))
        self.messages: list[Message] = []  # all that were handed out
        self.events: list[ConsumerEvent] = []
        self.errors: list[ClientError] = []
        self.links: dict[tuple[bool, str], Link] = {}
        self.polls = True
        self.max_records = 1000
        self.on_assigned: Callable[[Assigned], None] = lambda event: None

    def subscribe(self, *topics: str) -> None:
        self.session.subscribe(self.world.now, Subscription(frozenset(topics or {TOPIC})))

    def poll(self) -> list[Message]:
        if not self.polls:
            return []
        now = self.world.now
        self.session.polled(now)
        for event in self.session.take_events():
            self.events.append(event)
            if isinstance(event, Revoked):
                self.session.acknowledge(now)
            elif isinstance(event, Assigned):
                self.on_assigned(event)
        try:
            found = self.session.take_records(now, self.max_records)
        except ClientError as error:
            self.errors.append(error)
            found = []
        self.messages += found
        self.session.check()
        return found

    def values(self, partition: int | None = None) -> list[bytes]:
        return [each.value for each in self.messages if partition is None or each.partition == partition]

    def offsets(self, partition: int) -> list[int]:
        return [each.offset for each in self.messages if each.partition == partition]

    def moves(self) -> list[ConsumerEvent]:
        return [event for event in self.events if isinstance(event, Assigned | Revoked | Lost)]

    # The network

    def pump(self) -> None:
        for outgoing in self.session.requests(self.world.now):
            self._post(outgoing)

    def _post(self, outgoing: Outgoing) -> None:
        question = outgoing.question
        api = APIS[question.kind.KEY if isinstance(question, ByVersion) else question.KEY]
        version = api.last if outgoing.version_max is None else min(api.last, outgoing.version_max)
        request = question.make(version) if isinstance(question, ByVersion) else question
        body = request_codec(api.key, version).encode(request)
        frame = joined(request_frame(api.key, version, outgoing.ticket, "c", [body]))
        link = self.links.get((outgoing.to is not None, outgoing.lane))
        if link is None:
            link = Link(self.world.desk.connect())
            self.links[outgoing.to is not None, outgoing.lane] = link
        link.letters.append(Letter(frame[4:], outgoing.ticket, api.key, version, True))

    def deliver(self, link: Link) -> bool:
        """The next request reaches the node."""
        if not link.letters:
            return False
        letter = link.letters.popleft()
        self.world.desk.asked[link.connection.id].append((letter.api_key, letter.version))
        link.awaiting.append(letter.ticket)
        self.world.desk.send_frame(link.connection, letter.frame)
        return True

    def hear(self, link: Link) -> bool:
        """The next answer reaches the machine."""
        answer = self.world.desk.receive(link.connection)
        if answer is None:
            return False
        self.session.answered(self.world.now, link.awaiting.popleft(), answer)
        return True

    def cut(self, link: Link) -> None:
        self.links = {key: other for key, other in self.links.items() if other is not link}
        tickets = [*link.awaiting, *(letter.ticket for letter in link.letters)]
        link.awaiting.clear()
        link.letters = deque()
        for ticket in tickets:
            self.session.answered(self.world.now, ticket, ConnectionLost("the connection was cut"))

    def cut_all(self) -> None:
        for link in list(self.links.values()):
            self.cut(link)

    def exchange(self) -> bool:
        """All that is under way arrives; whether anything did."""
        self.pump()
        moved = False
        for link in list(self.links.values()):
            while self.deliver(link):
                moved = True
            while self.hear(link):
                moved = True
        return moved

    def mischief(self, dice: Random) -> None:
        """One random thing happens to this consumer's network."""
        link = dice.choice(list(self.links.values())) if self.links else None
        roll = dice.randrange(100)
        if roll < 30 or link is None:
            self.pump()
        elif roll < 60:
            self.deliver(link)
        elif roll < 95:
            self.hear(link)
        else:
            self.cut(link)
