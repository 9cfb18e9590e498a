"""Decision about changes of settings: of a topic, of a group, of one broker, or of all brokers at once.

The incremental form sets, deletes, appends and subtracts single keys; the old form replaces all overrides of
a resource. Both are checked as a whole: a resource changes completely or not at all.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from headrace.base.limits import CONFIG_CHARACTERS_MAX
from headrace.base.numbers import INT32_MAX, whole_number
from headrace.base.values import Value
from headrace.machines.configs.definition import (
    ConfigType,
    broker_config_keys,
    group_config_keys,
    topic_config_keys,
)
from headrace.machines.configs.group import check_group_overrides
from headrace.machines.configs.reloaded_keys import dynamic_key
from headrace.machines.configs.topic import Layers, check_topic_overrides
from headrace.machines.configs.unserved import check_promise
from headrace.machines.configs.values import (
    ConfigValue,
    InvalidConfig,
    appended,
    parse_value,
    subtracted,
    unknown_key,
)
from headrace.machines.metadata.controller.brokers import tracks_eligible
from headrace.machines.metadata.controller.decision import MetadataDecision, Refusal
from headrace.machines.metadata.controller.topic_rules import MIN_INSYNC_REPLICAS
from headrace.machines.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import ClearElrRecord, ConfigRecord
from headrace.protocol.notation import Data


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


CheckSettings = Callable[[str, Mapping[str, str]], None]


class KeyChange(Value):
    name: str
    operation: int
    value: str | None


class ResourceChange(Value):
    resource_type: int
    resource_name: str
    changes: list[KeyChange]
    replaces_all: bool = False  # the old form: what is not named is deleted


class AlteredResource(Value):
    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_configs(
    image: ClusterImage,
    resources: Sequence[ResourceChange],
    topic_defaults: Mapping[str, ConfigValue],
    layers: Layers,
    check_settings: CheckSettings,
    *,
    validate_only: bool = False,
) -> MetadataDecision[list[AlteredResource]]:
    """`topic_defaults` are the broker's values under a topic's overrides: appending begins from them.
    `layers` are the broker's own settings, which bound those of groups. `check_settings` raises InvalidConfig
    at settings of a broker that its node could not take.
    """
    records: list[Data] = []
    altered: list[AlteredResource] = []
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for resource in resources:
        result = AlteredResource(resource.resource_type, resource.resource_name)
        altered.append(result)
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            changes = alter(image, resource, topic_defaults, layers, check_settings)
            records += [*changes, *forget_eligible(image, changes)]
        except Refusal as refusal:
            result.error, result.message = refusal.code, refusal.message
    return MetadataDecision(altered, [] if validate_only else records)


def forget_eligible(image: ClusterImage, changes: Sequence[Data]) -> list[Data]:
    """Another min.insync.replicas: whoever left a small ISR may lack what a smaller one acknowledges, so
    nobody is eligible any more (KIP-966).
    """
    if not tracks_eligible(image):
        return []
    return [
        ClearElrRecord(topic_name=change.resource_name if change.resource_type == TOPIC_RESOURCE else "")
        for change in changes
        if isinstance(change, ConfigRecord) and change.name == MIN_INSYNC_REPLICAS
    ]


def alter(
    image: ClusterImage,
    resource: ResourceChange,
    topic_defaults: Mapping[str, ConfigValue],
    layers: Layers,
    check_settings: CheckSettings,
) -> list[Data]:
    before = image.configs.get((resource.resource_type, resource.resource_name), {})
    match resource.resource_type:
        case _ if resource.resource_type == TOPIC_RESOURCE:
            after = changed(before, resource, topic_list_value(before, topic_defaults))
            check_topic(image, resource.resource_name, after, topic_defaults)
        case _ if resource.resource_type == BROKER_RESOURCE:
            after = changed(before, resource, broker_list_value(before))
            check_broker(image, resource.resource_name, before, after)
            try:
                check_settings(resource.resource_name, after)
            except InvalidConfig as fault:
                raise Refusal(ErrorCode.INVALID_REQUEST, str(fault)) from fault
        case _ if resource.resource_type == GROUP_RESOURCE:
            after = changed(before, resource, group_list_value(before))
            check_group(resource.resource_name, after, layers)
        case other:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {other}")
    return [
        ConfigRecord(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            name=name,
            value=after.get(name),
        )
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


class ListValues:
    """The text a list has now, asked for by key when something is appended or subtracted."""

    def __init__(self, types: Mapping[str, ConfigType], texts: Mapping[str, str]) -> None:
        self.types = types
        self.texts = texts


def topic_list_value(before: Mapping[str, str], defaults: Mapping[str, ConfigValue]) -> ListValues:
    texts = {name: ",".join(value) for name, value in defaults.items() if isinstance(value, list)}
    return ListValues({key.name: key.type for key in topic_config_keys().values()}, texts | dict(before))


def broker_list_value(before: Mapping[str, str]) -> ListValues:
    keys = broker_config_keys().values()
    texts = {key.name: key.default or "" for key in keys if key.type is ConfigType.LIST}
    return ListValues({key.name: key.type for key in keys}, texts | dict(before))


def group_list_value(before: Mapping[str, str]) -> ListValues:
    return ListValues({key.name: key.type for key in group_config_keys().values()}, before)


def changed(before: Mapping[str, str], resource: ResourceChange, lists: ListValues) -> dict[str, str]:
    """The overrides after the changes, not checked yet."""
    after = {} if resource.replaces_all else dict(before)
    seen: set[str] = set()
    for change in resource.changes:
        if change.name in seen:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        seen.add(change.name)
        if change.operation == Operation.DELETE:
            after.pop(change.name, None)
            continue
        if change.value is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
        check_length(change.name, change.value)
        if change.operation == Operation.SET:
            after[change.name] = change.value
            continue
        if change.operation not in (Operation.APPEND, Operation.SUBTRACT):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.operation}")
        verb = Operation(change.operation)
        if lists.types.get(change.name) is not ConfigType.LIST:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Can't {verb.name} to key {change.name} because its type is not LIST.",
            )
        combine = appended if verb is Operation.APPEND else subtracted
        after[change.name] = combine(lists.texts.get(change.name), change.value)
    return after


def check_length(name: str, value: str) -> None:
    if len(name) > CONFIG_CHARACTERS_MAX or len(value) > CONFIG_CHARACTERS_MAX:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"The configuration {name[:100]} exceeds the maximum size of {CONFIG_CHARACTERS_MAX} characters.",
        )


def check_topic(
    image: ClusterImage, name: str, after: Mapping[str, str], defaults: Mapping[str, ConfigValue]
) -> None:
    try:
        check_topic_overrides(after, defaults)
    except InvalidConfig as fault:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(fault)) from fault
    if name not in image.topics:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def check_group(name: str, after: Mapping[str, str], layers: Layers) -> None:
    """The group itself need not be there: its settings may wait for it."""
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    try:
        check_group_overrides(after, layers)
    except InvalidConfig as fault:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(fault)) from fault


def check_broker(image: ClusterImage, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    if name != ALL_BROKERS:
        node_id = whole_number(name, INT32_MAX)
        if node_id is None:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Node id must be an integer, but it is: {name}",
            )
        if node_id not in image.brokers:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unexpected broker id: no broker {name} is registered")
    keys = broker_config_keys()
    if tracks_eligible(image) and after.get(MIN_INSYNC_REPLICAS) != before.get(MIN_INSYNC_REPLICAS):
        # the controller and every leader must agree about it
        if name != ALL_BROKERS:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled.",
            )
        if MIN_INSYNC_REPLICAS not in after:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled.",
            )
    for key_name in sorted(after):
        if after[key_name] == before.get(key_name):
            continue
        key = keys.get(dynamic_key(key_name))
        if key is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, str(unknown_key("broker", key_name, keys)))
        if key.is_read_only:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{key_name}]")
        if name == ALL_BROKERS and key.update == "broker":
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update these configs for all brokers at once, only for one: [{key_name}]",
            )
        try:
            parse_value(key, after[key_name])
            check_promise(key_name, after[key_name])
        except InvalidConfig as fault:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(fault)) from fault
