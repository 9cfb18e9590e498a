"""Assignments of partitions to log directories: keeps the metadata right about where each partition lies.

The controller chooses a directory for a new partition. The log is in another directory if the chosen one was
offline, or after a move. A start that cannot read a directory relies on the metadata: if the metadata places
a missing partition in that directory, the partition is offline; otherwise it begins empty. So this part
corrects the metadata at the start and whenever they become wrong, and repeats that until they are written.
"""

from collections.abc import Callable, Iterable
from typing import Any

from headrace.base.ids import TopicId
from headrace.base.time import Now
from headrace.node.broker_lifecycle import BrokerLifecycle
from headrace.node.controller_channel import ControllerChannel
from headrace.node.group_commit import RETRY_MS
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partition_locations import assigned_directory
from headrace.node.ports import Once, Ports
from headrace.protocol.errors import ErrorCode


class DirectoryAssignments:
    __slots__ = (
        "_broker_id",
        "_channel",
        "_deadlines",
        "_directories",
        "_is_asking",
        "_lifecycle",
        "_metadata",
        "_reports",
        "_told",
        "_untold",
    )

    def __init__(
        self,
        broker_id: int,
        directories: LogDirectories,
        metadata: MetadataLog,
        lifecycle: BrokerLifecycle,
        channel: ControllerChannel,
        ports: Ports,
    ) -> None:
        self._broker_id = broker_id
        self._directories = directories
        self._metadata = metadata
        self._lifecycle = lifecycle
        self._channel = channel
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._is_asking = False  # or pausing, before what could not be written is tried again
        self._untold: dict[Partition, None] = {}
        self._told: list[Callable[[Now], None]] = []  # called once all of these are written

    def correct(self, now: Now, partitions: Iterable[Partition]) -> None:
        """Tell of those that lie elsewhere than the metadata says."""
        misplaced = [one for one in partitions if not one.is_offline and self._is_misplaced(one)]
        if misplaced:
            self._untold.update(dict.fromkeys(misplaced))
            self._propose(now)

    def _is_misplaced(self, partition: Partition) -> bool:
        topic = self._metadata.image.topics_by_id.get(TopicId(partition.topic_id))
        if topic is None:  # it is about to go
            return False
        said = assigned_directory(topic.partitions.get(partition.index), self._broker_id)
        return said is not None and said != self._directory_id(partition)

    def _directory_id(self, partition: Partition) -> bytes:
        return self._directories[partition.directory].directory_id

    def tell(self, now: Now, partition: Partition, then: Callable[[Now], None]) -> None:
        """The partition has come to another directory; `then` is called once that is written."""
        self._untold[partition] = None
        self._told.append(then)
        self._propose(now)

    def _propose(self, now: Now) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        if self._lifecycle.epoch < 0:  # it is not registered yet
            Once(self._deadlines, now.after_ms(RETRY_MS), self._go_on)
            return
        from headrace.protocol.messages.assign_replicas_to_dirs import (
            AssignReplicasToDirsRequest,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        places: dict[bytes, dict[bytes, list[int]]] = {}
        for one in self._untold:
            topics = places.setdefault(self._directory_id(one), {})
            topics.setdefault(one.topic_id, []).append(one.index)
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._lifecycle.epoch,
            directories=[
                DirectoryData(
                    id=directory,
                    topics=[
                        TopicData(
                            topic_id=topic_id,
                            partitions=[PartitionData(partition_index=index) for index in indexes],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in places.items()
            ],
        )
        untold, self._untold = self._untold, {}
        told, self._told = self._told, []
        self._channel.send(now, request, lambda now, response: self._answered(now, untold, told, response))

    def _answered(
        self,
        now: Now,
        untold: dict[Partition, None],
        told: list[Callable[[Now], None]],
        response: Any,
    ) -> None:
        if response.error_code != ErrorCode.NONE:
            reason = ErrorCode(response.error_code).text
            self._reports.report("error", "assignment_postponed", partitions=len(untold), error=reason)
            self._untold = untold | self._untold
            self._told = told + self._told
            Once(self._deadlines, now.after_ms(RETRY_MS), self._go_on)
            return
        for then in told:
            then(now)
        self._go_on(now)

    def _go_on(self, now: Now) -> None:
        self._is_asking = False
        if self._untold:
            self._propose(now)
