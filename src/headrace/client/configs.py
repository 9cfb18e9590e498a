"""Settings of topics, brokers and groups: reading them with where each value comes from, and changing them
one by one.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from headrace.client.client import Client
from headrace.client.errors import InvalidInput, KafkaError
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


class Kind(IntEnum):
    """What has settings, by Kafka's number of it."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Operation(IntEnum):
    SET = 0
    DELETE = 1  # back to the default
    APPEND = 2
    SUBTRACT = 3


SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "server settings",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
_OVERRIDES = {1, 2, 3, 8}  # set at run time by somebody


class Resource(NamedTuple):
    """A topic or group by name, or a broker by id; a broker named "" stands for all of them."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        if self.kind is Kind.BROKER:
            return f"broker {self.name}" if self.name else "all brokers"
        return f"{self.kind.name.lower()} {self.name!r}"


class Setting(NamedTuple):
    name: str
    value: str | None  # None where it is secret, or not set
    source: str
    is_override: bool
    is_read_only: bool
    is_secret: bool
    default: str | None  # what would hold without the override, as far as the broker says
    documentation: str | None


def get_settings(client: Client, resource: Resource, keys: Iterable[str] | None = None) -> list[Setting]:
    """The settings of a resource by name; all that it has, or those asked for."""
    names = None if keys is None else list(keys)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource.kind, resource_name=resource.name, configuration_keys=names
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )

    def check(answer: Any) -> None:
        for result in answer.results:
            if result.error_code:
                raise KafkaError(result.error_code, result.error_message, subject=str(resource))

    answer = client.call(
        request,
        what=f"asking for the settings of {resource}",
        broker=lambda: _owner(client, resource),
        check=check,
    )
    settings = [_setting(told) for result in answer.results for told in result.configs]
    missing = set(names or ()) - {setting.name for setting in settings}
    if missing:
        raise InvalidInput(f"{resource} has no setting {min(missing)!r}")
    return sorted(settings, key=lambda setting: setting.name)


def _setting(told: Any) -> Setting:
    is_override = told.config_source in _OVERRIDES
    # synonyms come in the order in which they count; the first behind the override would hold without it
    behind = [synonym.value for synonym in told.synonyms if synonym.source not in _OVERRIDES]
    return Setting(
        name=told.name,
        value=None if told.is_sensitive else told.value,
        source=SOURCES.get(told.config_source, "unknown"),
        is_override=is_override,
        is_read_only=told.read_only,
        is_secret=told.is_sensitive,
        default=(behind[0] if behind else None) if is_override else told.value,
        documentation=told.documentation,
    )


def change_settings(
    client: Client,
    resource: Resource,
    changes: Mapping[str, tuple[Operation, str | None]],
    *,
    validate_only: bool = False,
) -> None:
    """All of the changes or none; a key that is not named keeps its value."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.kind,
                resource_name=resource.name,
                configs=[
                    AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, (operation, value) in changes.items()
                ],
            )
        ],
        validate_only=validate_only,
    )

    def check(answer: Any) -> None:
        for result in answer.responses:
            if result.error_code:
                raise KafkaError(result.error_code, result.error_message, subject=str(resource))

    client.call(
        request,
        what=f"changing the settings of {resource}",
        broker=lambda: _owner(client, resource) or client.controller(),
        check=check,
    )


def _owner(client: Client, resource: Resource) -> int | None:
    """A broker's settings are that broker's business; those of topics and groups anybody's."""
    if resource.kind is not Kind.BROKER or not resource.name:
        return None
    if not client.cluster.brokers:
        client.contact()
    if not resource.name.isdecimal() or int(resource.name) not in client.cluster.brokers:
        known = ", ".join(map(str, sorted(client.cluster.brokers)))
        raise InvalidInput(f"there is no broker {resource.name!r}; the brokers are {known}")
    return int(resource.name)
