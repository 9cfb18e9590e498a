"""Certificates that a client sets for this broker (AlterConfigs): they are tried before the change is made.

Only the broker itself can read the files. A client sends such a change to the broker that it is about, and
the broker either decides itself, or tries the files and then forwards the request to the active controller.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.base.numbers import INT32_MAX, whole_number
from headrace.machines.configs.reloaded_keys import reloaded_key
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.metadata.controller.alter_configs import (
    ResourceChange,
    broker_list_value,
    changed,
)
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.image import BROKER_RESOURCE, ClusterImage
from headrace.node.settings import LiveSettings
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import alter_configs, incremental_alter_configs

# As Kafka's answer begins.
FAILED: Final = "Validation of dynamic config update of SSLFactory failed: "


def check_certificates(
    live: LiveSettings, before: Mapping[str, str], after: Mapping[str, str], cluster: Mapping[str, str]
) -> None:
    """InvalidConfig: this node could not take these settings of its own instead of those before, or could
    not use the certificates that they name. Those that were there before are not tried again: they must not
    keep anybody from changing something else.
    """
    wanted = live.current.overlaid(after, cluster)
    if _certificates(after) != _certificates(before):
        try:
            live.check_files(wanted)
        except InvalidConfig as fault:
            raise InvalidConfig(f"{FAILED}{fault}") from fault


def _certificates(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in settings.items() if reloaded_key(key) is not None}


def refusal(
    api_key: int,
    body: Any,
    node_id: int,
    image: ClusterImage,
    live: LiveSettings,
    is_allowed: Callable[[], bool],
) -> Any:
    """The answer to a request that is about this broker alone, if its certificates cannot be used; None: the
    active controller answers it. `is_allowed`: whether the client may make the change. If not, no file is
    touched for it.
    """
    wanted = _changes(api_key)(body)
    if len(wanted) != 1 or not _is_own(wanted[0], node_id):
        return None
    before = image.broker_config(node_id)
    try:
        after = changed(before, wanted[0], broker_list_value(before))
        if _certificates(after) == _certificates(before) or not is_allowed():
            return None
        check_certificates(live, before, after, image.cluster_config)
    except Refusal:
        return None  # the controller says so, too
    except InvalidConfig as fault:
        facts: dict[str, Any] = {
            "error_code": ErrorCode.INVALID_REQUEST,
            "error_message": str(fault),
            "resource_type": wanted[0].resource_type,
            "resource_name": wanted[0].resource_name,
        }
        if api_key == ApiKey.ALTER_CONFIGS:
            result = alter_configs.AlterConfigsResourceResponse(**facts)
            return alter_configs.AlterConfigsResponse(responses=[result])
        item = incremental_alter_configs.AlterConfigsResourceResponse(**facts)
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=[item])
    return None


def _is_own(resource: ResourceChange, node_id: int) -> bool:
    is_broker = resource.resource_type == BROKER_RESOURCE
    return is_broker and whole_number(resource.resource_name, INT32_MAX) == node_id


def _changes(api_key: int) -> Callable[[Any], list[ResourceChange]]:
    if api_key == ApiKey.ALTER_CONFIGS:
        from headrace.node.handlers.alter_configs import changes_of

        return changes_of
    from headrace.node.handlers.incremental_alter_configs import changes_of as incremental

    return incremental
