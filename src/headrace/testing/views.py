"""What the nodes of a cluster under test know: leaders, in-sync replicas, the active controller.

Each node is asked on a connection of its own, with a timeout. Nodes that are cut off from each other may
know different things; the one with the highest epoch knows best.
"""

import socket
from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.notation import Request

CLIENT_ID = "headrace-testing"
ANSWER_S_MAX = 2.0
SIZE_BYTES = 4
METADATA_VERSION = 12
QUORUM_VERSION = 1
NOBODY = -1


class PartitionView(NamedTuple):
    leader: int  # -1: nobody
    leader_epoch: int
    replicas: list[int]
    isr: list[int]

    def __str__(self) -> str:
        return f"leader {self.leader}, in sync {sorted(self.isr)} of {sorted(self.replicas)}"

    @property
    def is_in_sync(self) -> bool:
        return self.leader != NOBODY and set(self.isr) == set(self.replicas)


class Leadership(NamedTuple):
    """Of the quorum, in one epoch."""

    epoch: int
    node: int


def ask(port: int, request: Request, version: int) -> Any:
    """The response; OSError: the node does not answer."""
    key = request.KEY
    parts = request_frame(key, version, 1, CLIENT_ID, request_codec(key, version).encode_parts(request))
    with socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX) as connection:
        connection.sendall(b"".join(parts))  # type: ignore[arg-type]  # there is no data in files
        size = int.from_bytes(_received(connection, SIZE_BYTES))
        frame = memoryview(_received(connection, size))
    codec = response_codec(key, version)
    _, position = decode_response_header(frame, codec.header_version)
    return codec.decode(frame, position)


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the node closed the connection")
        data += more
    return bytes(data)


def partitions(ports: Iterable[int]) -> dict[tuple[str, int], PartitionView]:
    """All partitions, as the nodes that answer at these ports know them."""
    found: dict[tuple[str, int], PartitionView] = {}
    for port in ports:
        try:
            answer = ask(
                port, MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA_VERSION
            )
        except OSError:
            continue
        for topic in answer.topics:
            for one in topic.partitions:
                at = (topic.name, one.partition_index)
                view = PartitionView(one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes)
                if at not in found or found[at].leader_epoch < view.leader_epoch:
                    found[at] = view
    return found


def active_controller(controller_ports: Iterable[int]) -> int | None:
    """The node that leads the quorum in the highest epoch; None: no node at these ports does."""
    asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    found: list[Leadership] = []
    for port in controller_ports:
        try:
            answer = ask(port, DescribeQuorumRequest(topics=[asked]), QUORUM_VERSION)
        except OSError:
            continue
        told = [one for topic in answer.topics for one in topic.partitions]  # none: it does not lead
        found.extend(Leadership(one.leader_epoch, one.leader_id) for one in told if not one.error_code)
    return max(found).node if found else None
