"""A member of a group of the new protocol (KIP-848), which does the same as a member of a classic group.

Each heartbeat says which epoch the member is in. When the member gets another assignment, it first stops
using the partitions that it lost, then reports that. Only then may another member get them.
"""

from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.simulator.clients.member import REBALANCE_TIMEOUT_MS, Membership, Step
from headrace.simulator.clients.simulated_client import Ask, Pause
from headrace.simulator.history import Assigned, JoinAsked, PartitionKey, PartitionsHeld
from headrace.simulator.partition_holders import held

CONSUMER_GROUP_HEARTBEAT = 68
JOINING, LEAVING = 0, -1

# It is no longer a member; perhaps it was the last of its protocol, and the group is a classic one again.
OUTSIDE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class NewMembership(Membership):
    """Its generation is the member's epoch; 0: not a member."""

    def forget(self) -> None:
        self.member_id, self.generation, self.partitions = "", JOINING, []
        self._is_told = False  # its partitions
        self._has_missed_one = False  # an answer

    def joined(self) -> Step:
        """Heartbeats until the group has nothing new to tell."""
        while True:
            if not self.member_id or self.generation <= JOINING:
                self.forget()
                self.member_id = f"{self._client.name}-{self._client.world.rng.getrandbits(64):x}"
            answer = yield self._heartbeat(self.generation, self.partitions)
            if answer is None or not self._learned(answer):
                self._has_missed_one = True
                yield Pause(0.1)
                continue
            self._has_missed_one = False
            had, was_told = self.partitions, self._is_told
            if answer.assignment is not None:
                self.partitions, self._is_told = self._keys_of(answer.assignment), True
            if was_told and self.partitions == had:
                return
            if not self._is_told:
                yield Pause(0.1)

    def alive(self) -> Step:
        answer = yield self._heartbeat(self.generation, self.partitions if self._has_missed_one else None)
        self._has_missed_one = answer is None or answer.error_code != ErrorCode.NONE
        if answer is None:
            return True
        if not self._learned(answer):
            return answer.error_code in (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )
        if answer.assignment is None:
            return True
        told = self._keys_of(answer.assignment)
        if told == self.partitions:
            return True
        self.partitions = told
        return False

    def left(self) -> Step:
        yield self._heartbeat(LEAVING, None)
        self.forget()

    def _heartbeat(self, epoch: int, owned: list[PartitionKey] | None) -> Ask:
        # whoever says all about itself is told what it should have: news, after an answer that was lost
        is_full = epoch == JOINING or (owned is not None and self._has_missed_one)
        partitions = None
        if owned is not None:
            numbers = [key.number for key in owned]
            partitions = (
                [TopicPartitions(topic_id=self._topic.topic_id, partitions=numbers)] if numbers else []
            )
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=[self._topic.name] if is_full else None,
            topic_partitions=partitions,
        )
        identity = self.identity
        if epoch == JOINING:
            self._client.history.add(JoinAsked(self.group, is_classic=False))

        def promised(answer: Any) -> None:
            client = self._client
            if answer.error_code == ErrorCode.NONE and answer.assignment is not None:
                partitions = tuple(self._keys_of(answer.assignment))
                client.history.add(
                    Assigned(self.group, identity, answer.member_epoch, partitions, is_classic=False)
                )
            if (node := client.host.reach(None).node) is not None:
                client.history.add(PartitionsHeld(self.group, held(node, self.group)))

        return Ask(CONSUMER_GROUP_HEARTBEAT, 1, request, promised)

    def _learned(self, answer: Any) -> bool:
        """Take the epoch over; False when the answer is an error."""
        code = answer.error_code
        if code in OUTSIDE:
            self.forget()
        if code != ErrorCode.NONE:
            return False
        self.generation = answer.member_epoch
        return True

    def _keys_of(self, assignment: Any) -> list[PartitionKey]:
        return [
            self._topic.keys[number]
            for topic in assignment.topic_partitions
            if topic.topic_id == self._topic.topic_id
            for number in sorted(topic.partitions)
        ]
