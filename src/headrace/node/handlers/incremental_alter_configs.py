"""IncrementalAlterConfigs, key 44, versions 0–1: set, delete, append to and subtract from single settings."""

from headrace.machines.metadata.controller.alter_configs import KeyChange, ResourceChange
from headrace.node.config_changes import ConfigChanges
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class IncrementalAlterConfigs:
    def __init__(self, changes: ConfigChanges) -> None:
        self._changes = changes

    def handle(self, request: Request) -> IncrementalAlterConfigsResponse | Parked:
        wanted = changes_of(request.body)
        return self._changes.alter(
            request, wanted, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
        )


def changes_of(body: IncrementalAlterConfigsRequest) -> list[ResourceChange]:
    return [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [KeyChange(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in body.resources
    ]
