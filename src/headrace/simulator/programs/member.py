"""Program that is a member of a group: it handles records one step after it got them, and commits them
itself or automatically. It leaves the group, crashes, or sleeps for too long.
"""

from typing import Any

from headrace.client.cluster import TopicPartition
from headrace.client.membership.events import CommittedOffset, Partitions
from headrace.client.membership.subscription import Subscription
from headrace.client.steps import Pending
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from headrace.protocol.notation import Request
from headrace.records._messages import Message
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import GroupCommitted, Handled, PartitionKey
from headrace.simulator.nodes import Nodes
from headrace.simulator.programs.reading import MAX_POLL_INTERVAL_S, GroupKind, Reading, by_partition
from headrace.simulator.programs.shell import Driven


class Member(Reading):
    def __init__(
        self,
        host: Nodes,
        name: str,
        topic: Topic,
        handled: set[tuple[PartitionKey, int]],
        *,
        kind: GroupKind,
        is_static: bool,
        is_auto: bool,
    ) -> None:
        super().__init__(host, name, topic, kind)
        self._group = kind.group
        self._handled = handled  # by the whole group
        self._instance_id = name if is_static else None
        self._is_auto = is_auto  # commits are made for it
        self._taken: list[Message] = []  # and not handled yet
        self._done: dict[TopicPartition, CommittedOffset] = {}  # handled, and not committed by us yet
        self._leaving: Pending[None] | None = None
        self._sleeps_until = 0.0

    def sessions(self) -> list[Driven]:
        self._taken, self._done, self._leaving = [], {}, None
        consumer = self.new_consumer(
            **self.group_settings(self._instance_id),
            **{"enable.auto.commit": self._is_auto, "auto.commit.interval.ms": 400},
        )
        consumer.subscribe(self.now, Subscription(frozenset({self.topic.name})))
        return [consumer]

    # --- one step -----------------------------------------------------------------------------------

    def step(self) -> None:
        if not self.is_careful and self.world.chance(0.01):
            self._sleeps_until = self.world.mono + MAX_POLL_INTERVAL_S * self.world.between(0.5, 1.7)
        if self.world.mono < self._sleeps_until:
            return
        self._handle()
        if self._leaving is not None:
            self.listen()
            if self._leaving.is_done:
                self.die()  # in good order: a new process comes
            return
        if not self.is_careful and self.world.chance(0.01):
            self._leaving = self.consumer.close(self.now)
            return
        if not self._is_auto and self.world.chance(0.5):
            self._commit()
        self._taken = self.poll(self.world.rng.randint(1, 20))

    def _handle(self) -> None:
        taken, self._taken = self._taken, []
        for key, messages in by_partition(self, taken).items():
            offsets = [message.offset for message in messages]
            self.history.add(Handled(self._group, key, offsets))
            self._handled.update((key, offset) for offset in offsets)
            self._done[self.place_of(key)] = CommittedOffset(messages[-1].offset + 1)

    def _commit(self) -> None:
        done, self._done = self._done, {}
        ours = {at: committed for at, committed in done.items() if at in self.consumer.assignment}
        if ours:
            self.consumer.commit(self.now, ours)  # if it fails, somebody does the work again

    def revoked(self) -> None:
        if not self._is_auto:
            self._commit()

    def lost(self, partitions: Partitions) -> None:
        for at in partitions:
            self._done.pop(at, None)

    # --- what the judges hear -----------------------------------------------------------------------

    def promised(self, request: Request, answer: Any) -> None:
        if not isinstance(request, OffsetCommitRequest):
            return
        assert isinstance(answer, OffsetCommitResponse)
        refused = {
            (topic.name, told.partition_index)
            for topic in answer.topics
            for told in topic.partitions
            if told.error_code != ErrorCode.NONE
        }
        for topic in request.topics:
            for told in topic.partitions:
                if (topic.name, told.partition_index) not in refused:
                    key = self.topic.keys[told.partition_index]
                    self.history.add(GroupCommitted(self._group, key, told.committed_offset))
