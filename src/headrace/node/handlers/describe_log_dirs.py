"""DescribeLogDirs, key 35, versions 1–5: what each log directory of this broker holds, and how much is free.

Null topics are all. Only directories with a disk that answers have sizes. A partition that is moving is told
twice: where it lies, and where it is going to as a future one, with how far its copy is behind.
"""

from collections import defaultdict
from collections.abc import Callable

from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.error_codes import FAULTS
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.replica_moves import Move, ReplicaMoves
from headrace.node.routes import Request
from headrace.node.sliced_reply import Slicing, Steps, at_once
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_BYTES = -1

# More are told in slices. One whose log has to be opened for its size is a slice of its own: that takes up to
# a millisecond.
PARTITIONS_AT_ONCE = 20
UNITS_OF_OPENING = 20


class DescribeLogDirs:
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        moves: ReplicaMoves,
        access: Access,
        slicing: Slicing,
    ) -> None:
        self._partitions = partitions
        self._directories = directories
        self._moves = moves
        self._access = access
        self._slicing = slicing

    def handle(self, request: Request) -> DescribeLogDirsResponse | Parked:
        body: DescribeLogDirsRequest = request.body
        if not self._access.allows(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        partitions = self._asked_partitions(body)
        steps = self._described(request, partitions)
        if len(partitions) > PARTITIONS_AT_ONCE:
            return self._slicing.reply(request, steps, units=PARTITIONS_AT_ONCE)
        response: DescribeLogDirsResponse = at_once(steps)
        return response

    def _described(self, request: Request, partitions: list[Partition]) -> Steps:
        """The response, step by step."""
        by_directory: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
        for partition in partitions:
            if partition.is_deleted:
                continue  # since the last slice
            topics = by_directory.setdefault(partition.directory, defaultdict(list))
            units = UNITS_OF_OPENING if partition.log is None else 1
            size = size_of(request, partition)
            topics[partition.topic].append(
                DescribeLogDirsPartition(partition_index=partition.index, partition_size=size)
            )
            for _ in range(units):
                yield
        for move in self._moves.under_way():
            if request.body.topics is None or move.partition in partitions:
                topics = by_directory.setdefault(move.target, defaultdict(list))
                topics[move.partition.topic].append(coming(move))
        return DescribeLogDirsResponse(
            results=[self._directory(name, by_directory.get(name, {})) for name in self._directories]
        )

    def _asked_partitions(self, body: DescribeLogDirsRequest) -> list[Partition]:
        if body.topics is None:
            return self._partitions.all()
        found: list[Partition] = []
        for topic in body.topics:
            known = self._partitions.of_name(topic.topic)
            if known is not None:
                found += [known.replicas[index] for index in topic.partitions if index in known.replicas]
        return found

    def _directory(
        self, name: str, topics: dict[str, list[DescribeLogDirsPartition]]
    ) -> DescribeLogDirsResult:
        if self._directories[name].is_offline:
            return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=name)
        disk = self._directories.disks[name]
        return DescribeLogDirsResult(
            log_dir=name,
            topics=[DescribeLogDirsTopic(name=topic, partitions=told) for topic, told in topics.items()],
            total_bytes=asked(disk.total_bytes),
            usable_bytes=asked(disk.free_bytes),
        )


def coming(move: Move) -> DescribeLogDirsPartition:
    log = move.partition.log
    return DescribeLogDirsPartition(
        partition_index=move.partition.index,
        partition_size=move.copied_bytes,
        offset_lag=0 if log is None else max(0, log.log_end_offset - move.copied_offset),
        is_future_key=True,
    )


def size_of(request: Request, partition: Partition) -> int:
    try:
        return partition.opened(request.now).size_bytes
    except FAULTS:
        return 0  # its directory has just failed; the next answer tells so


def asked(bytes_of_disk: Callable[[], int]) -> int:
    try:
        return bytes_of_disk()
    except OSError:
        return UNKNOWN_BYTES
