"""Ordinary consumer of a group: it polls, commits what it has read, leaves and joins again.

It crashes, and is another member afterwards, or the same one if it has an instance id. It sleeps for longer
than its session timeout, and commits afterwards as if nothing had happened.
"""

from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.simulator.clients.member import GROUP, PASSING, SESSION_TIMEOUT_MS, Membership, Step, found
from headrace.simulator.clients.polling import polled
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import OffsetCommitted, PartitionKey, Polled
from headrace.simulator.host import Host

OFFSET_COMMIT = 8
STRAY_S = 0.5  # beyond the delay of any frame: what was sent before has arrived, or never will


class PlainConsumer(Script):
    def __init__(
        self, host: Host, name: str, topic: Topic, membership: type[Membership], *, is_static: bool
    ) -> None:
        super().__init__(host, name)
        self._topic = topic
        self._member = membership(self, "plain", topic, name if is_static else None)
        self._assignment = 0  # number of the present one
        self.ends: dict[PartitionKey, int] = {}  # how far it has polled, in all its lives
        self.is_careful = False  # stays from now on

    def story(self) -> Story:
        yield from found(GROUP, self._member.group)
        while True:
            yield from self._member.joined()
            self._assignment += 1
            yield from self._consumed_for_an_assignment()

    def _consumed_for_an_assignment(self) -> Step:
        positions: dict[PartitionKey, int] | None = None
        while True:
            if not (yield from self._lived_on()) or not (yield from self._member.alive()):
                return
            if not self._member.partitions:
                yield Pause(0.5)
                continue
            if positions is None:
                positions = yield from self._member.committed()
                if positions is None:
                    yield Pause(0.2)
                    continue
            poll = yield from polled(self._topic, positions)
            for key, rows in poll.rows.items():
                offsets = [offset for offset, _ in rows]
                self.history.add(Polled(self.name, self._assignment, key, positions[key], offsets))
                self.ends[key] = max(self.ends.get(key, 0), poll.ends[key])
            positions = poll.ends
            if not (yield from self._lived_on()):
                return
            if self.world.chance(0.5) and not (yield from self._committed(positions)):
                return
            yield Pause(self.world.between(0.2, 0.6))

    def _lived_on(self) -> Step:
        """Time for a mishap; False: it is no longer a member, as far as it knows."""
        if self.is_careful:
            return True
        if self.world.chance(0.02):
            self._member.forget()
            yield Pause(self.world.between(0.1, 1.0))
            return False
        if self.world.chance(0.02):
            yield from self._member.left()
            yield Pause(self.world.between(0.1, 1.0))
            return False
        if self.world.chance(0.02):
            yield Pause(SESSION_TIMEOUT_MS / 1000 * self.world.between(0.5, 2.5))
        return True

    def _committed(self, positions: dict[PartitionKey, int]) -> Step:
        """False: the group does not know this member any more, or not in this generation."""
        member = self._member
        request = OffsetCommitRequest(
            group_id=member.group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=self._topic.name,
                    topic_id=self._topic.topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=key.number, committed_offset=offset, committed_metadata=""
                        )
                        for key, offset in positions.items()
                    ],
                )
            ],
        )
        accepted = member.commit_asked(positions)

        def promised(answer: Any) -> None:
            if _code(answer) == ErrorCode.NONE:
                accepted()
                for key, offset in positions.items():
                    self.history.add(OffsetCommitted(member.group, key, offset))

        answer = yield Ask(OFFSET_COMMIT, self.world.rng.choice((9, 10)), request, promised)
        if answer is None:
            yield Pause(STRAY_S)  # it must not overtake the next commit, nor come after the next fetch
            return True
        return _code(answer) == ErrorCode.NONE or _code(answer) in PASSING


def _code(answer: Any) -> int:
    codes: list[int] = [one.error_code for topic in answer.topics for one in topic.partitions]
    return max(codes)
