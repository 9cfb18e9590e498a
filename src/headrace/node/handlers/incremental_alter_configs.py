"""IncrementalAlterConfigs, key 44, versions 0–1: set, delete, append to and subtract from single settings."""

from collections.abc import Sequence

from headrace.machines.metadata.controller.alter_configs import AlteredResource, KeyChange, ResourceChange
from headrace.machines.metadata.controller.names import name_fault
from headrace.machines.metadata.image import TOPIC_RESOURCE
from headrace.node.authorization import CLUSTER_NAME, Operation, Resource
from headrace.node.committed_reply import CommittedReply, when_committed
from headrace.node.faults import FAULTS, code_of
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
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
    altered, offset = alter(node, request, wanted, validate_only=body.validate_only)
    response = IncrementalAlterConfigsResponse(
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


def alter(
    node: Node, request: Request, wanted: Sequence[ResourceChange], *, validate_only: bool
) -> tuple[list[AlteredResource], int]:
    """The result of each resource, and the metadata offset that makes them true."""
    refused: list[AlteredResource] = []
    granted: list[ResourceChange] = []
    for resource in wanted:
        refusal = refusal_of(node, request, resource)
        if refusal is None:
            granted.append(resource)
        else:
            refused.append(refusal)
    decision = node.metadata.controller.alter_configs(granted, validate_only=validate_only)
    try:
        offset = node.metadata.propose(request.now, decision)
    except FAULTS as fault:
        for altered in decision.reply:
            if altered.error is ErrorCode.NONE:
                altered.error, altered.message = code_of(fault), str(fault)
        offset = node.metadata.end_offset
    return refused + decision.reply, offset


def refusal_of(node: Node, request: Request, resource: ResourceChange) -> AlteredResource | None:
    """What this door refuses before the controller is asked."""
    kind, name = resource.resource_type, resource.resource_name
    if kind != TOPIC_RESOURCE:
        if node.allows(request, Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
            return None
        return AlteredResource(kind, name, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    if not node.allows(request, Operation.ALTER_CONFIGS, Resource.TOPIC, name):
        return AlteredResource(kind, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    if not name:
        return AlteredResource(
            kind, name, ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
        )
    fault = name_fault(name)
    if fault is not None:
        return AlteredResource(
            kind, name, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}"
        )
    return None
