"""Changes of settings on their way to the controller: who may, what is refused at the door, what is answered.

AlterConfigs and IncrementalAlterConfigs say the same in two shapes, and are answered in shapes that differ by
name only.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headrace.machines.metadata.controller.alter_configs import AlteredResource, ResourceChange
from headrace.machines.metadata.controller.names import name_fault
from headrace.machines.metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE
from headrace.node.authorization import CLUSTER_NAME, Operation, Resource
from headrace.node.committed_reply import CommittedReply, propose, when_committed
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode

R = TypeVar("R")


def alter_configs(
    node: Node,
    request: Request,
    wanted: Sequence[ResourceChange],
    response: Callable[..., R],
    result: Callable[..., Any],
) -> R | CommittedReply:
    """`response` and `result` are the message and its item per resource."""
    altered, offset = alter(node, request, wanted)
    reply = response(
        responses=[
            result(
                error_code=resource.error,
                error_message=resource.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in altered
        ]
    )
    return when_committed(node, request, offset, reply)


def alter(
    node: Node, request: Request, wanted: Sequence[ResourceChange]
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
    validate_only: bool = request.body.validate_only
    decision = node.metadata.controller.alter_configs(granted, validate_only=validate_only)
    offset = propose(node, request.now, decision)
    return refused + decision.reply, offset


def refusal_of(node: Node, request: Request, resource: ResourceChange) -> AlteredResource | None:
    """What this door refuses before the controller is asked."""
    kind, name = resource.resource_type, resource.resource_name
    denied = denial(node, request, kind, name)
    if denied is not None:
        return AlteredResource(kind, name, denied, "Authorization failed.")
    if kind != TOPIC_RESOURCE:
        return None
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


def denial(node: Node, request: Request, kind: int, name: str) -> ErrorCode | None:
    if kind == TOPIC_RESOURCE:
        allowed = node.allows(request, Operation.ALTER_CONFIGS, Resource.TOPIC, name)
        return None if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if kind == GROUP_RESOURCE:
        allowed = node.allows(request, Operation.ALTER_CONFIGS, Resource.GROUP, name)
        return None if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
    allowed = node.allows(request, Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)
    return None if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
