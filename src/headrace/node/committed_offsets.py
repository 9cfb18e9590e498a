"""What groups have committed for a partition, wherever their coordinators are.

The coordinator of a group is on this broker, or on another one, which is asked with OffsetFetch. An answer
always comes. It has None for a group that has committed nothing, and for one whose coordinator cannot say:
one that has just moved, for example. Whether that is so, the answer tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base.time import Now
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.other_brokers import OtherBrokers
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.peers import Unanswered
from headrace.node.ports import Ports
from headrace.node.settings import LiveSettings
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.protocol.messages.offset_fetch import OffsetFetchRequest

LANE = "offsets"
TIMEOUT_MS = 10_000


class Offsets(NamedTuple):
    """What groups have committed. Where `is_known` is false, a coordinator could not say."""

    by_group: dict[str, int | None]
    is_known: bool


Completion = Callable[[Now, Offsets], None]


class CommittedOffsets:
    def __init__(
        self, groups: GroupCoordinator, metadata: MetadataLog, settings: LiveSettings, ports: Ports
    ) -> None:
        self._broker_id = settings.current.node_id
        self._groups = groups
        self._others: OtherBrokers[Question] = OtherBrokers(
            LANE, TIMEOUT_MS, request_for, answered, metadata, settings, ports
        )

    def ask(self, now: Now, group_ids: Iterable[str], partition: Partition, then: Completion) -> None:
        """`then` is called once, in this call of the node or in a later one."""
        inquiry = Inquiry(group_ids, then)
        for group_id in inquiry.group_ids:
            question = Question(inquiry, group_id, partition)
            shard = self._groups.shard_of(now, group_id)
            if not isinstance(shard, ErrorCode):
                question.answer_by(shard.machine.fetch_offsets(now, group_id, [question.place]))
                # an offset that is not committed to the coordinator's log may be lost with its leader
                if self._groups.waits_for_group(shard, group_id, with_offsets=True):
                    shard.await_commit(now, question)
                else:
                    question.settle(now)
                continue
            leader = self._leader_elsewhere(group_id) if shard is ErrorCode.NOT_COORDINATOR else None
            if leader is not None:
                self._others.ask(leader, question)
            else:
                question.refuse(now)

    def _leader_elsewhere(self, group_id: str) -> int | None:
        leader = self._groups.leader_of(group_id)
        return None if leader in (None, -1, self._broker_id) else leader


class Inquiry:
    """Complete when there is an answer for each group."""

    __slots__ = ("_is_known", "_offsets", "_then", "group_ids")

    def __init__(self, group_ids: Iterable[str], then: Completion) -> None:
        self.group_ids = tuple(dict.fromkeys(group_ids))
        self._offsets: dict[str, int | None] = {}
        self._is_known = True
        self._then = then

    def answered(self, now: Now, group_id: str, offset: int | None, *, is_known: bool) -> None:
        self._offsets[group_id] = offset
        self._is_known &= is_known
        if len(self._offsets) == len(self.group_ids):
            self._then(now, Offsets(self._offsets, self._is_known))


class Question:
    """About one group; a ticket of the coordinator's shard if the answer has to wait for a commit."""

    __slots__ = ("_inquiry", "_is_known", "_offset", "group_id", "partition")

    def __init__(self, inquiry: Inquiry, group_id: str, partition: Partition) -> None:
        self._inquiry = inquiry
        self._offset: int | None = None
        self._is_known = False
        self.group_id = group_id
        self.partition = partition

    @property
    def place(self) -> tuple[str, list[int]]:
        return self.partition.topic, [self.partition.index]

    def answer_by(self, fetched: Any) -> None:
        """What the machine of the group says; an error code does not answer."""
        if isinstance(fetched, ErrorCode):
            return
        ((_, ((_, offset, _, _, error),)),) = fetched
        if not error:
            self.learn(offset)

    def learn(self, offset: int) -> None:
        self._is_known = True
        self._offset = offset if offset >= 0 else None

    def settle(self, now: Now, reply: Any = None) -> None:
        self._inquiry.answered(now, self.group_id, self._offset, is_known=self._is_known)

    def refuse(self, now: Now, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        self._offset, self._is_known = None, False
        self.settle(now)


# --- coordinators on other brokers ------------------------------------------------------------------------


def request_for(questions: list[Question]) -> OffsetFetchRequest:
    from headrace.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopics,
    )

    groups: dict[str, dict[bytes, list[int]]] = {}
    for one in questions:
        groups.setdefault(one.group_id, {}).setdefault(one.partition.topic_id, []).append(one.partition.index)
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[
                    OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=indexes)
                    for topic_id, indexes in topics.items()
                ],
            )
            for group_id, topics in groups.items()
        ]
    )


def answered(now: Now, questions: list[Question], answer: Any) -> None:
    offsets: dict[tuple[str, bytes, int], int] = {}
    for group in () if isinstance(answer, Unanswered) else answer.groups:
        for topic in () if group.error_code else group.topics:
            for partition in topic.partitions:
                if not partition.error_code:
                    place = (group.group_id, bytes(topic.topic_id), partition.partition_index)
                    offsets[place] = partition.committed_offset
    for one in questions:
        offset = offsets.get((one.group_id, one.partition.topic_id, one.partition.index))
        if offset is not None:
            one.learn(offset)
        one.settle(now)
