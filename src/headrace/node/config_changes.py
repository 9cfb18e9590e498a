"""AlterConfigs and IncrementalAlterConfigs: authorization, checks before the controller is asked, the reply.

Both requests mean the same in two forms, and their responses differ only in names.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headrace.machines.configs.describe import BrokerLayers
from headrace.machines.metadata.controller.alter_configs import AlteredResource, ResourceChange
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.names import name_fault
from headrace.machines.metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.proposals import propose
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode

R = TypeVar("R")


class ConfigChanges:
    def __init__(self, metadata: MetadataLog, decisions: ControllerDecisions, access: Access) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._access = access

    def alter(
        self,
        request: Request,
        wanted: Sequence[ResourceChange],
        response: Callable[..., R],
        result: Callable[..., Any],
    ) -> R | Parked:
        """`response` and `result` are the message and its item per resource."""
        altered, offset = self._alter(request, wanted)
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
        return self._metadata.when_known(request, offset, reply)

    def _alter(self, request: Request, wanted: Sequence[ResourceChange]) -> tuple[list[AlteredResource], int]:
        """The result of each resource, and the metadata offset that makes them true."""
        refused: list[AlteredResource] = []
        granted: list[ResourceChange] = []
        for resource in wanted:
            refusal = self._refusal(request, resource)
            if refusal is None:
                granted.append(resource)
            else:
                refused.append(refusal)
        validate_only: bool = request.body.validate_only
        decision = self._decisions.alter_configs(granted, validate_only=validate_only)
        offset = propose(self._metadata, request.now, decision)
        return refused + decision.reply, offset

    def _refusal(self, request: Request, resource: ResourceChange) -> AlteredResource | None:
        """What is refused before the controller is asked."""
        kind, name = resource.resource_type, resource.resource_name
        denied = self._denial(request, kind, name)
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

    def _denial(self, request: Request, kind: int, name: str) -> ErrorCode | None:
        if kind == TOPIC_RESOURCE:
            allowed = self._access.allows(request, Operation.ALTER_CONFIGS, Resource.TOPIC, name)
            return None if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if kind == GROUP_RESOURCE:
            allowed = self._access.allows(request, Operation.ALTER_CONFIGS, Resource.GROUP, name)
            return None if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
        allowed = self._access.allows(request, Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)
        return None if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def broker_layers(broker_id: int, metadata: MetadataLog, settings: LiveSettings) -> BrokerLayers:
    """The settings of this broker, layer by layer, for descriptions."""
    image = metadata.image
    return BrokerLayers(image.broker_config(broker_id), image.cluster_config, settings.current.told_texts)
