"""Who leads a partition, and what a client is told that asks the wrong broker or knows the wrong epoch.

KIP-951: a refusal carries the leader and its address, so that the client need not ask for metadata first.
"""

from collections.abc import Iterable
from typing import Any

from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode

NO_EPOCH = -1


def leadership_fault(partition: Partition, known_epoch: int = NO_EPOCH) -> ErrorCode | None:
    """KIP-320: only the leader answers, and only to clients of its own epoch (-1: not checked)."""
    if partition.leader_id != partition.node.id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if known_epoch == NO_EPOCH or known_epoch == partition.leader.epoch:
        return None
    if known_epoch < partition.leader.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def endpoints(node: Node, request: Request, leaders: Iterable[int], endpoint_type: Any) -> list[Any]:
    """Addresses of these brokers on the listener that the request came in by."""
    found = []
    for id in sorted(set(leaders)):
        endpoint = node.endpoint(id, request.connection.listener)
        if endpoint is not None:
            found.append(endpoint_type(node_id=id, host=endpoint.host, port=endpoint.port))
    return found
