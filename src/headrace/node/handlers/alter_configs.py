"""AlterConfigs, key 33, versions 0–2: the old form, which replaces all that a resource overrides."""

from headrace.machines.metadata.controller.alter_configs import KeyChange, ResourceChange
from headrace.machines.metadata.controller.alter_configs import Operation as Change
from headrace.node.committed_reply import CommittedReply, when_committed
from headrace.node.handlers.incremental_alter_configs import alter
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(node: Node, request: Request) -> AlterConfigsResponse | CommittedReply:
    body: AlterConfigsRequest = request.body
    wanted = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [KeyChange(config.name, Change.SET, config.value) for config in resource.configs],
            replaces_all=True,
        )
        for resource in body.resources
    ]
    altered, offset = alter(node, request, wanted, validate_only=body.validate_only)
    response = AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=resource.error,
                error_message=resource.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in altered
        ]
    )
    return when_committed(node, request, offset, response)
