"""DescribeCluster, key 60, versions 0–2: the cluster's name and its brokers, fenced ones when asked for. On
controllers' listeners: its controllers (KIP-919).
"""

from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.handlers.metadata import controller_id
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.metadata_replies import CommittedReply
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


class DescribeCluster:
    def __init__(
        self,
        broker_id: int,
        directories: LogDirectories,
        metadata: MetadataLog,
        access: Access,
    ) -> None:
        self._broker_id = broker_id
        self._directories = directories
        self._metadata = metadata
        self._access = access

    def handle(self, request: Request) -> DescribeClusterResponse | CommittedReply:
        body: DescribeClusterRequest = request.body
        if body.endpoint_type == CONTROLLERS:
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="The request was sent to an endpoint of type BROKER, "
                "but we wanted an endpoint of type CONTROLLER",
            )
        if body.endpoint_type != BROKERS:
            return DescribeClusterResponse(
                error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message=f"Unsupported endpoint type {body.endpoint_type}",
            )
        listener = request.connection.listener
        response = DescribeClusterResponse(
            cluster_id=self._directories.cluster_id,
            controller_id=controller_id(self._broker_id, self._metadata),
            brokers=[
                DescribeClusterBroker(
                    broker_id=broker.id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.is_fenced,
                )
                for _, broker in sorted(self._metadata.image.brokers.items())
                if (endpoint := broker.endpoints.get(listener)) is not None
                and (body.include_fenced_brokers or not broker.is_fenced)
            ],
        )
        if body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = self._access.cluster_operations_bits(request)
        return self._metadata.when_durable(request, response)


class DescribeControllers:
    """The same on a controller's listener."""

    def __init__(self, directories: LogDirectories, metadata: MetadataLog, access: Access) -> None:
        self._directories = directories
        self._metadata = metadata
        self._access = access

    def handle(self, request: Request) -> DescribeClusterResponse:
        body: DescribeClusterRequest = request.body
        # as in Kafka: whoever gets this far is an operator, or has to be kept away from controllers
        if not self._access.allows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            return DescribeClusterResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="Authorization failed."
            )
        if body.endpoint_type != CONTROLLERS:
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="The request was sent to an endpoint of type CONTROLLER, "
                "but we wanted an endpoint of type BROKER",
            )
        metadata = self._metadata
        response = DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=self._directories.cluster_id,
            controller_id=metadata.leader_id,
            brokers=[
                DescribeClusterBroker(broker_id=id, host=endpoints[0].host, port=endpoints[0].port)
                for id in metadata.voter_ids
                if (endpoints := metadata.endpoints(id))
            ],
        )
        if body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = self._access.cluster_operations_bits(request)
        return response
