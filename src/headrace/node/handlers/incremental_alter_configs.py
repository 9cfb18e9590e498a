"""IncrementalAlterConfigs, key 44, versions 0–1: set, delete, append to and subtract from single settings."""

from headrace.machines.metadata.controller.alter_configs import KeyChange, ResourceChange
from headrace.node.committed_reply import CommittedReply
from headrace.node.config_changes import alter_configs
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(node: Node, request: Request) -> IncrementalAlterConfigsResponse | CommittedReply:
    body: IncrementalAlterConfigsRequest = request.body
    wanted = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [KeyChange(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in body.resources
    ]
    return alter_configs(node, request, wanted, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse)
