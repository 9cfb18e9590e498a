"""AlterConfigs, key 33, versions 0–2: the old form, which replaces all that a resource overrides."""

from headrace.machines.metadata.controller.alter_configs import KeyChange, Operation, ResourceChange
from headrace.node.committed_reply import CommittedReply
from headrace.node.config_changes import alter_configs
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
            [KeyChange(config.name, Operation.SET, config.value) for config in resource.configs],
            replaces_all=True,
        )
        for resource in body.resources
    ]
    return alter_configs(node, request, wanted, AlterConfigsResponse, AlterConfigsResourceResponse)
