"""Changes of in-sync sets that this broker, as a leader, asks the controller for (AlterPartition).

One request is under way at a time; what is proposed meanwhile goes with the next. A proposal stays with its
`PartitionLeader` until the controller has answered it: a leader of a later epoch makes its own.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from headrace.base.ids import BrokerId
from headrace.base.time import Now
from headrace.machines.replication.leader import (
    REJECTED_SECONDS,
    Fact,
    IsrCommitted,
    IsrOutdated,
    IsrRejected,
    PartitionLeader,
    ProposeIsr,
    Woke,
)
from headrace.node.partition import Partition
from headrace.node.peers import Completion
from headrace.node.ports import Once, Ports
from headrace.node.waiting import Waiter
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)
from headrace.protocol.notation import Request

# Before a request that the controller refused as a whole is sent again.
RETRY_MS = 100

REJECTED_MS = int(REJECTED_SECONDS * 1000) + 1

# The controller looked at the proposal and has something against it.
REJECTED = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))

# It was not looked at: the controller that was asked is behind, or is none.
NOT_TRIED = frozenset((ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT))


class Channel(Protocol):
    """The way to the active controller, which asks until it has an answer."""

    def send(self, now: Now, body: Request, then: Completion, /) -> None: ...


class Proposal:
    __slots__ = ("leader", "order", "partition")

    def __init__(self, partition: Partition, leader: PartitionLeader, order: ProposeIsr) -> None:
        self.partition = partition
        self.leader = leader
        self.order = order

    @property
    def is_wanted(self) -> bool:
        leader = self.leader
        return (
            self.partition.leader is leader
            and leader.proposed is not None
            and leader.partition_epoch == self.order.partition_epoch
        )


class IsrChanges(Waiter):
    __slots__ = (
        "_broker_epoch",
        "_broker_id",
        "_channel",
        "_deadlines",
        "_is_asking",
        "_proposals",
        "_waiting",
    )

    def __init__(
        self, broker_id: int, broker_epoch: Callable[[], int], channel: Channel, ports: Ports
    ) -> None:
        super().__init__()
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._deadlines = ports.deadlines
        self._waiting = ports.waiting
        self._proposals: dict[Partition, Proposal] = {}  # not sent yet
        self._is_asking = False

    def propose(self, now: Now, partition: Partition, order: ProposeIsr) -> None:
        leader = partition.leader
        assert leader is not None, "only a leader proposes"
        self._proposals[partition] = Proposal(partition, leader, order)
        self._waiting.wake_one(self)

    def woken(self, now: Now) -> None:
        if self._is_asking or not self._proposals:
            return
        proposals = [one for one in self._proposals.values() if one.is_wanted]
        self._proposals.clear()
        if not proposals:
            return
        self._is_asking = True
        body = AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=_topics(proposals)
        )
        self._channel.send(now, body, partial(self._answered, proposals))

    def _answered(self, proposals: list[Proposal], now: Now, answer: Any) -> None:
        self._is_asking = False
        results: dict[tuple[bytes, int], PartitionResult] = {}
        if isinstance(answer, AlterPartitionResponse):
            results = {
                (bytes(topic.topic_id), result.partition_index): result
                for topic in answer.topics
                for result in topic.partitions
            }
        again: list[Proposal] = []
        for proposal in proposals:
            partition = proposal.partition
            result = results.get((partition.topic_id, partition.index))
            if not proposal.is_wanted:
                continue
            if result is None or result.error_code in NOT_TRIED:
                again.append(proposal)
                continue
            fact = _fact(proposal.order, result)
            partition.carry_out(now, proposal.leader.step(now.mono, fact))
            if isinstance(fact, IsrRejected):
                Once(self._deadlines, now.after_ms(REJECTED_MS), partial(self._look_again, proposal))
        if again:
            Once(self._deadlines, now.after_ms(RETRY_MS), partial(self._propose_again, again))
        elif self._proposals:
            self._waiting.wake_one(self)

    def _look_again(self, proposal: Proposal, now: Now) -> None:
        """After a rejection: a replica that is in sync may not fetch again before something is appended."""
        if proposal.partition.leader is proposal.leader:
            proposal.partition.carry_out(now, proposal.leader.step(now.mono, Woke()))

    def _propose_again(self, proposals: list[Proposal], now: Now) -> None:
        for proposal in proposals:
            self._proposals.setdefault(proposal.partition, proposal)
        self._waiting.wake_one(self)


def _fact(order: ProposeIsr, result: PartitionResult) -> Fact:
    asked_in = order.partition_epoch
    if result.error_code == ErrorCode.NONE:
        return IsrCommitted(asked_in, result.partition_epoch, tuple(map(BrokerId, result.isr)))
    if result.error_code in REJECTED:
        # the way to the controller may have been tried twice, and the other copy may still arrive
        return IsrRejected(asked_in, is_final=False)
    return IsrOutdated(asked_in)


def _topics(proposals: list[Proposal]) -> list[TopicData]:
    topics: dict[bytes, TopicData] = {}
    for proposal in proposals:
        partition, order = proposal.partition, proposal.order
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = TopicData(topic_id=partition.topic_id, partitions=[])
        topic.partitions.append(
            PartitionData(
                partition_index=partition.index,
                leader_epoch=proposal.leader.epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=replica, broker_epoch=epoch) for replica, epoch in order.isr
                ],
                partition_epoch=order.partition_epoch,
            )
        )
    return list(topics.values())
