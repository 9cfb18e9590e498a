"""What the requests of the metadata quorum have in common: who may send them, and the way to the quorum.

A node of another cluster is refused: with its epochs and records this one would lose its own.
"""

from collections.abc import Callable
from typing import Any

from headrace.machines.raft import messages as raft
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode


class QuorumRequests:
    def __init__(self, node_id: int, cluster_id: str, metadata: MetadataLog, access: Access) -> None:
        self.node_id = node_id
        self._metadata = metadata
        self._cluster_id = cluster_id
        self._access = access

    def error(self, request: Request, cluster_id: str | None) -> ErrorCode:
        """Of the whole request; NONE: the quorum answers it."""
        if not self._access.allows(request, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if cluster_id is not None and cluster_id != self._cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return ErrorCode.NONE

    def ask(self, request: Request, message: raft.Message, respond: Callable[[raft.Answer], Any]) -> Any:
        return self._metadata.ask(request, message, respond)
