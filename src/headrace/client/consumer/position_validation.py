"""Position validation (KIP-320): asks a new leader with OffsetForLeaderEpoch before the next fetch.

A position remembers under which leader epoch the record before it was written. When the partition has a
leader of a later epoch, that one says where the records of our epoch end in its log; if that is before our
position, what we read was lost with the old leader, and the logs part there.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.consumer.fetch_buffer import FetchBuffer
from headrace.client.consumer.position import NO_EPOCH, NO_OFFSET, Phase, Position
from headrace.client.errors import ClientError, KafkaError, UnsupportedByBroker
from headrace.client.request_queue import Answer, RequestQueue
from headrace.client.settings.consumer import ConsumerSettings
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER_REPLICA_ID = -1


class _Asked(NamedTuple):
    position: Position
    round: int
    leader_epoch: int  # of the leader that is asked


class PositionValidation:
    """Invariant: a position is CHECKING only with a fetch epoch; its fetch offset is what is checked."""

    def __init__(
        self,
        settings: ConsumerSettings,
        positions: dict[TopicPartition, Position],
        buffer: FetchBuffer,
        cluster: Cluster,
        request_queue: RequestQueue,
        dice: Dice,
        *,
        passed: Callable[[], None],
        truncated: Callable[[Position, int, int], None],
    ) -> None:
        """`passed` hears that something may be fetched; `truncated` decides what to do with a position of
        which only what lies before an offset is there, written under that epoch; NO_OFFSET: nothing is.
        """
        self._settings = settings
        self._positions = positions
        self._buffer = buffer
        self._cluster = cluster
        self._request_queue = request_queue
        self._dice = dice
        self._passed = passed
        self._truncated = truncated
        self.is_due = True  # something has changed
        self._wake_at = NEVER

    def advance(self, now: Instant) -> None:
        if not self.is_due and now < self._wake_at:
            return
        self.is_due = False
        self._wake_at = NEVER
        loads: dict[int, list[_Asked]] = {}
        for position in self._positions.values():
            epoch = self._cluster.leader_epoch_of(position.at)
            if position.phase is Phase.READY and epoch > position.leader_epoch:
                self._meet(position, epoch)
            if position.phase is Phase.CHECKING and position.is_idle:
                leader = self._leader(now, position, epoch)
                if leader is not None:
                    loads.setdefault(leader, []).append(_Asked(position, position.round, epoch))
        for leader, load in loads.items():
            self._ask(leader, load)

    def _meet(self, position: Position, epoch: int) -> None:
        """The partition has a leader that we have not read from."""
        if NO_EPOCH < position.fetch_epoch < epoch:
            position.round += 1  # what the old leader may still answer is no longer wanted
            position.phase = Phase.CHECKING
        else:
            position.leader_epoch = epoch

    def _leader(self, now: Instant, position: Position, epoch: int) -> int | None:
        """Who is to be asked now, if that is necessary."""
        leader = self._cluster.leader_of(position.at)
        if leader is None or position.at.topic in self._cluster.stale:
            self._cluster.mark_stale(position.at.topic)
        elif epoch == NO_EPOCH or position.fetch_epoch >= epoch:
            self._pass(position, epoch)  # epochs are not counted here, or within one nothing is taken back
        elif now < position.retry_at:
            self._wake_at = min(self._wake_at, position.retry_at)
        else:
            return leader
        return None

    def deadline(self) -> Instant:
        return self._wake_at

    def _pass(self, position: Position, leader_epoch: int) -> None:
        position.phase = Phase.READY
        position.leader_epoch = leader_epoch
        position.settled()
        self._passed()

    def _ask(self, leader: int, load: list[_Asked]) -> None:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for asked in load:
            position = asked.position
            position.is_asked = True
            topic = topics.setdefault(position.at.topic, OffsetForLeaderTopic(topic=position.at.topic))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=position.at.partition,
                    current_leader_epoch=asked.leader_epoch,
                    leader_epoch=position.fetch_epoch,
                )
            )
        self._request_queue.post(
            self._cluster.brokers[leader],
            OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values())),
            partial(self._answered, load),
            timeout_s=self._settings.request_timeout_s,
        )

    def _answered(self, load: list[_Asked], now: Instant, answer: Answer) -> None:
        self.is_due = True
        still = {asked.position.at: asked for asked in load if asked.position.round == asked.round}
        for asked in still.values():
            asked.position.is_asked = False
        if isinstance(answer, UnsupportedByBroker):
            for asked in still.values():
                self._pass(asked.position, asked.leader_epoch)
            return
        if isinstance(answer, ClientError):
            for asked in still.values():
                self._set_back(now, asked.position, answer)
            return
        assert isinstance(answer, OffsetForLeaderEpochResponse)
        for topic in answer.topics:
            for told in topic.partitions:
                found = still.pop(TopicPartition(topic.topic, told.partition), None)
                if found is not None:
                    self._judge(now, found, told)
        for asked in still.values():  # left out
            self._set_back(now, asked.position, None)

    def _judge(self, now: Instant, asked: _Asked, told: EpochEndOffset) -> None:
        position = asked.position
        if told.error_code:
            error = KafkaError(told.error_code, subject=f"partition {position.at}")
            self._set_back(now, position, error)
        elif NO_OFFSET < position.fetch_offset <= told.end_offset:
            self._pass(position, asked.leader_epoch)
        elif position.chunks:
            # What was fetched ahead is not what the log holds; is it so for what was handed out, too?
            self._buffer.drop(position)
            position.rewind()
        elif told.end_offset == NO_OFFSET or told.leader_epoch == NO_EPOCH:
            self._truncated(position, NO_OFFSET, NO_EPOCH)
        else:
            self._truncated(position, told.end_offset, told.leader_epoch)

    def _set_back(self, now: Instant, position: Position, error: ClientError | None) -> None:
        position.retry_at = Instant(now + self._settings.backoff(position.failures, self._dice))
        position.failures += 1
        self._cluster.mark_stale(position.at.topic)
        if error is not None and not error.is_retriable:
            self._buffer.fail(position, error)
