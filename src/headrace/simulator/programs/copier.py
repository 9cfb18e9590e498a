"""Program that reads one topic in a group and writes each value to another topic, in transactions.

After an error it continues from the offsets that the group has committed. When its producer cannot be used
any more, the program ends, and another one takes over its transactional id.
"""

from collections.abc import Callable

from headrace.base.time import NEVER
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, TimedOut
from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.membership.subscription import Subscription
from headrace.client.producer.core import ProducerCore
from headrace.client.steps import Steps, Wait
from headrace.records._messages import Message
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import CommitOfTransactionAsked, TransactionBegun, TransactionEnded
from headrace.simulator.nodes import Nodes
from headrace.simulator.programs.reading import GroupKind, Reading
from headrace.simulator.programs.shell import Driven
from headrace.simulator.programs.writing import call_listeners, new_core

TRANSACTION_TIMEOUT_MS = 3_000


class Copier(Reading):
    def __init__(
        self,
        host: Nodes,
        name: str,
        source: Topic,
        target: Topic,
        kind: GroupKind,
        *,
        leaves_ghosts: bool = True,
    ) -> None:
        super().__init__(host, name, source, kind, leaves_ghosts=leaves_ghosts)
        self._target = target
        self._number = 0  # of its transactions, over all its lives
        self._core: ProducerCore
        self._work: Steps[None]
        self._awaits: Wait | None = None

    def sessions(self) -> list[Driven]:
        consumer = self.new_consumer(**self.group_settings(), **{"isolation.level": "read_committed"})
        consumer.subscribe(self.now, Subscription(frozenset({self.topic.name})))
        settings = {"transactional.id": self.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        self._core = new_core(self.world, **settings)
        self._work = self._live()
        self._awaits = None
        return [consumer, self._core.sender]

    def step(self) -> None:
        """Takes the next step of the work, as a shell would, if what it waits for is over."""
        if self._core.transaction.is_fatal:
            self.die()
            return
        is_over = True
        if self._awaits is not None:
            is_over = self._awaits.is_over()
            if not is_over and self.now < self._awaits.until:
                return
        asked = next(self._work) if self._awaits is None else self._work.send(is_over)
        assert isinstance(asked, Wait)
        self._awaits = asked

    def heard(self) -> None:
        call_listeners(self._core)

    # --- the work -------------------------------------------------------------------------------------

    def _live(self) -> Steps[None]:
        yield from self._insisting(lambda: self._core.init_transactions(None))
        while True:
            messages = self.poll(self.world.rng.randint(1, 12))
            if not messages:
                yield from self._pause()
                continue
            member = self.consumer.group_metadata()
            yield from self._pause()  # the work takes its time
            try:
                yield from self._copy(messages, member)
            except ClientError:
                yield from self._abort()
                yield from self._go_back()

    def _pause(self) -> Steps[None]:
        yield Wait(lambda: True, NEVER)

    def _copy(self, messages: list[Message], member: GroupMembership) -> Steps[None]:
        self._number += 1
        number = self._number
        values = tuple(
            f"{self.name}.{number}:{index}/{len(messages)}:".encode() + message.value
            for index, message in enumerate(messages)
        )
        self.history.add(TransactionBegun(self.name, number, values))
        core, accumulator = self._core, self._core.accumulator
        yield from core.begin_transaction(None)
        for value in values:
            partition = self.world.rng.randrange(self._target.partitions)
            wall_ms = self.world.now().wall_ms
            yield from core.send(self._target.name, None, value, (), partition, wall_ms)
            self.holds("buffer.memory", accumulator.buffered_bytes, accumulator.buffer_bytes)
        ends = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in messages}
        offsets = {at: CommittedOffset(offset) for at, offset in ends.items()}
        yield from core.send_offsets(offsets, member, None)
        if not self.is_careful and self.world.chance(0.15):
            yield from self._abort()
            yield from self._go_back()
            return
        self.history.add(CommitOfTransactionAsked(self.name, number))
        yield from self._insisting(lambda: core.commit_transaction(None))
        self.history.add(TransactionEnded(self.name, number, is_commit=True))

    def _abort(self) -> Steps[None]:
        yield from self._end_if_fatal()
        yield from self._insisting(lambda: self._core.abort_transaction(None))
        self.history.add(TransactionEnded(self.name, self._number, is_commit=False))

    def _insisting(self, call: Callable[[], Steps[None]]) -> Steps[None]:
        """What timed out is called again, and goes on where it was."""
        while True:
            try:
                yield from call()
            except TimedOut:
                continue
            except ClientError:
                yield from self._end_if_fatal()
                raise
            return

    def _end_if_fatal(self) -> Steps[None]:
        """The producer is of no more use: the next step ends the program."""
        while self._core.transaction.is_fatal:
            yield from self._pause()

    def _go_back(self) -> Steps[None]:
        """Nothing is read before it is known where to go on."""
        pending = self.consumer.committed(self.now, self.consumer.assignment)
        yield Wait(lambda: pending.is_done, NEVER)
        if pending.error is not None:
            yield from self._go_back()
            return
        for at, committed in pending.result().items():
            if at in self.consumer.assignment:
                offset = 0 if committed is None else committed.offset
                self.consumer.seek(self.now, at, offset)
                self.begin_stretch(self.key_of(at), offset)
