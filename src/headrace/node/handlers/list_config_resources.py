"""ListConfigResources, key 74, versions 0–1: the resources that have settings, or could have them.

Topics and brokers are listed whether or not they override anything, groups only when they do. Version 0 asks
for client-metrics subscriptions alone, of which there are none here.
"""

from headrace.machines.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
)
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.metadata_replies import CommittedReply
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

CLIENT_METRICS_RESOURCE = 16
LISTED = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE)


class ListConfigResources:
    def __init__(
        self,
        metadata: MetadataLog,
        access: Access,
    ) -> None:
        self._metadata = metadata
        self._access = access

    def handle(self, request: Request) -> ListConfigResourcesResponse | CommittedReply:
        body: ListConfigResourcesRequest = request.body
        if not self._access.allows(request, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
            return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.version == 0:
            return ListConfigResourcesResponse()
        asked = set(body.resource_types) or set(LISTED)
        if not asked <= set(LISTED):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        image = self._metadata.image
        response = ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_name=name, resource_type=kind)
                for kind in LISTED
                if kind in asked
                for name in sorted(names(image, kind))
            ]
        )
        return self._metadata.when_durable(request, response)


def names(image: ClusterImage, kind: int) -> list[str]:
    match kind:
        case _ if kind == TOPIC_RESOURCE:
            return list(image.topics)
        case _ if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
            return [str(broker) for broker in image.brokers]
        case _:
            return [name for resource_type, name in image.configs if resource_type == kind]
