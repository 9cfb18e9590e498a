"""Epoch checks, and KIP-951: whoever asks the wrong leader is told the right one in the same answer."""

from typing import Any

from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode

NO_EPOCH = -1
_STALE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def epoch_fault(partition: Partition, current_leader_epoch: int) -> ErrorCode | None:
    """KIP-320: a client that knows another epoch than ours is told so."""
    if current_leader_epoch == NO_EPOCH or current_leader_epoch == partition.leader.epoch:
        return None
    if current_leader_epoch < partition.leader.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def tell_leader(node: Node, request: Request, response: Any, leader_type: Any, endpoint_type: Any) -> None:
    """Add the current leader to each refused partition, and the leaders' addresses to the response."""
    leaders: set[int] = set()
    for topic in response.responses:
        partitions = node.partitions.of_id(topic.topic_id) or node.partitions.of_name(
            topic.name if hasattr(topic, "name") else topic.topic
        )
        if partitions is None:
            continue
        for result in topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions:
            if result.error_code not in _STALE:
                continue
            index = result.index if hasattr(result, "index") else result.partition_index
            leader = partitions[index].leader
            result.current_leader = leader_type(leader_id=leader.id, leader_epoch=leader.epoch)
            leaders.add(leader.id)
    for id in sorted(leaders):
        host, port = node.endpoint(id, request.connection.listener)
        response.node_endpoints.append(endpoint_type(node_id=id, host=host, port=port))
