"""AlterConfigs, key 33, versions 0–2: the old form, which replaces all that a resource overrides."""

from headrace.machines.metadata.controller.alter_configs import KeyChange, Operation, ResourceChange
from headrace.node.config_changes import ConfigChanges
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


class AlterConfigs:
    def __init__(self, changes: ConfigChanges) -> None:
        self._changes = changes

    def handle(self, request: Request) -> AlterConfigsResponse | Parked:
        wanted = changes_of(request.body)
        return self._changes.alter(request, wanted, AlterConfigsResponse, AlterConfigsResourceResponse)


def changes_of(body: AlterConfigsRequest) -> list[ResourceChange]:
    return [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [KeyChange(config.name, Operation.SET, config.value) for config in resource.configs],
            replaces_all=True,
        )
        for resource in body.resources
    ]
