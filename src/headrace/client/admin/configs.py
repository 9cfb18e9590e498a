"""Settings of topics, brokers, groups and other resources: describe and alter them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.admin.operation import (
    ANY,
    CONTROLLER,
    Ask,
    OfBroker,
    Operation,
    Outcome,
    Sent,
    Target,
    Told,
    ask_all,
    ask_one,
    check,
    failed,
)
from headrace.client.errors import InvalidInput
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest


class ResourceKind(Told):
    """A type of resource that has settings, with Kafka's number.

    >>> ResourceKind.TOPIC.noun
    'topic'
    """

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @property
    def noun(self) -> str:
        return self.name.lower().replace("_", " ")


_BROKERS = (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER)


class Resource(NamedTuple):
    """A resource that has settings: `Resource.topic("orders")`, `Resource.broker(1)` and so on.

    >>> print(Resource.topic("orders"), Resource.broker(1), Resource.all_brokers())
    topic 'orders' broker 1 all brokers
    """

    kind: ResourceKind
    name: str  # a broker's is its id; "" stands for all brokers

    @classmethod
    def topic(cls, name: str) -> "Resource":
        return cls(ResourceKind.TOPIC, name)

    @classmethod
    def group(cls, name: str) -> "Resource":
        return cls(ResourceKind.GROUP, name)

    @classmethod
    def broker(cls, broker_id: int) -> "Resource":
        return cls(ResourceKind.BROKER, str(broker_id))

    @classmethod
    def all_brokers(cls) -> "Resource":
        """The cluster-wide values, for brokers without a value of their own."""
        return cls(ResourceKind.BROKER, "")

    @classmethod
    def broker_logger(cls, broker_id: int) -> "Resource":
        return cls(ResourceKind.BROKER_LOGGER, str(broker_id))

    @classmethod
    def client_metrics(cls, name: str) -> "Resource":
        return cls(ResourceKind.CLIENT_METRICS, name)

    def __str__(self) -> str:
        if self.kind in _BROKERS:
            return f"{self.kind.noun} {self.name}" if self.name else "all brokers"
        return f"{self.kind.noun} {self.name!r}"


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
_OVERRIDES = {1, 2, 3, 6, 7, 8}  # set at run time by somebody


class Setting(NamedTuple):
    """The value of one key, and its source.

    >>> retention = admin.describe_config(Resource.topic("orders"))["retention.ms"]
    >>> retention.value, retention.source, retention.is_override
    ('604800000', 'default', False)
    """

    name: str
    value: str | None  # None where it is secret, or not set
    source: str
    is_override: bool
    is_read_only: bool
    is_secret: bool
    default: str | None  # what would hold without the override, as far as the broker says
    documentation: str | None


# --- questions -------------------------------------------------------------------------------------------


def describe_config(resource: Resource, keys: Iterable[str] | None = None) -> Operation[dict[str, Setting]]:
    """The settings of one resource by key: all, or those that you name.

    >>> admin.describe_config(Resource.topic("orders"), ["cleanup.policy"])["cleanup.policy"].value
    'delete'
    """
    return (yield from describe_configs([resource], keys))[resource]


def describe_configs(
    resources: Iterable[Resource], keys: Iterable[str] | None = None
) -> Operation[dict[Resource, dict[str, Setting]]]:
    """The settings of several resources, each by key.

    >>> found = admin.describe_configs([Resource.topic("orders"), Resource.broker(1)])
    >>> [str(resource) for resource in found]
    ["topic 'orders'", 'broker 1']
    """
    names = None if keys is None else list(keys)

    def make(asked: list[Resource], _: int) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=one.kind, resource_name=one.name, configuration_keys=names
                )
                for one in asked
            ],
            include_synonyms=True,
            include_documentation=True,
        )

    def read(answer: Any, _: Sent[Resource]) -> Outcome[Resource, dict[str, Setting]]:
        outcome: Outcome[Resource, dict[str, Setting]] = {}
        for told in answer.results:
            resource = Resource(ResourceKind(told.resource_type), told.resource_name)
            error = failed(told.error_code, told.error_message, subject=str(resource))
            settings = {
                one.name: _setting(one) for one in sorted(told.configs, key=lambda one: str(one.name))
            }
            missing = set(names or ()) - settings.keys()
            if error is None and missing:
                outcome[resource] = InvalidInput(f"{resource} has no setting {min(missing)!r}")
            else:
                outcome[resource] = error or settings
        return outcome

    targets = {resource: _owner(resource, ANY) for resource in resources}
    return (yield from ask_all(Ask("asking for settings", targets, make, read)))


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


BROKER_DIGITS_MAX = 10  # of 31 bits


def _owner(resource: Resource, otherwise: Target) -> Target:
    """The broker to ask: the broker itself for its own settings, any broker for other resources."""
    if resource.kind not in _BROKERS or not resource.name:
        return otherwise
    name = resource.name
    if not (name.isascii() and name.isdecimal() and len(name) <= BROKER_DIGITS_MAX):
        raise InvalidInput(f"broker {name!r:.100}: must be a number, the broker's id")
    return OfBroker(int(resource.name))


def list_config_resources(kinds: Iterable[ResourceKind] = ()) -> Operation[list[Resource]]:
    """The resources that have settings, of some types or of all.

    >>> Resource.topic("orders") in admin.list_config_resources([ResourceKind.TOPIC])
    True
    """

    def read(answer: Any) -> list[Resource]:
        check(answer.error_code, subject="settings")
        return sorted(
            Resource(ResourceKind(told.resource_type), told.resource_name) for told in answer.config_resources
        )

    request = ListConfigResourcesRequest(resource_types=[int(kind) for kind in kinds])
    return (yield from ask_one("listing config resources", ANY, lambda _: request, read))


# --- changes ---------------------------------------------------------------------------------------------


class Append(NamedTuple):
    """A change that adds values to a list.

    >>> admin.alter_configs({Resource.topic("orders"): {"cleanup.policy": Append("compact")}})
    """

    value: object


class Subtract(NamedTuple):
    """A change that removes values from a list.

    >>> admin.alter_configs({Resource.topic("orders"): {"cleanup.policy": Subtract("compact")}})
    """

    value: object


class _Change(NamedTuple):
    operation: int
    value: str | None


def alter_config(
    resource: Resource, changes: Mapping[str, object], *, validate_only: bool = False
) -> Operation[None]:
    """Changes settings of one resource, all or none; see `alter_configs`.

    >>> admin.alter_config(Resource.topic("orders"), {"retention.ms": 3_600_000})
    >>> admin.alter_config(Resource.topic("orders"), {"retention.ms": None})
    """
    yield from alter_configs({resource: changes}, validate_only=validate_only)


def alter_configs(
    changes: Mapping[Resource, Mapping[str, object]], *, validate_only: bool = False
) -> Operation[None]:
    """Changes settings: to a value, with None to the default, with `Append` and `Subtract` in a list.

    For each resource all changes are made, or none. Other keys keep their values.

    >>> admin.alter_configs({Resource.topic("orders"): {"segment.ms": 60_000}}, validate_only=True)
    """

    def make(asked: list[Resource], _: int) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=one.kind,
                    resource_name=one.name,
                    configs=[
                        AlterableConfig(name=key, config_operation=change.operation, value=change.value)
                        for key, change in ((key, _change(value)) for key, value in changes[one].items())
                    ],
                )
                for one in asked
            ],
            validate_only=validate_only,
        )

    def read(answer: Any, _: Sent[Resource]) -> Outcome[Resource, bool]:
        outcome: Outcome[Resource, bool] = {}
        for told in answer.responses:
            resource = Resource(ResourceKind(told.resource_type), told.resource_name)
            outcome[resource] = failed(told.error_code, told.error_message, subject=str(resource)) or True
        return outcome

    targets = {resource: _owner(resource, CONTROLLER) for resource in changes}
    yield from ask_all(Ask("changing settings", targets, make, read))


def _change(value: object) -> _Change:
    match value:
        case None:
            return _Change(1, None)
        case Append(added):
            return _Change(2, config_text(added))
        case Subtract(taken):
            return _Change(3, config_text(taken))
        case _:
            return _Change(0, config_text(value))


def config_text(value: object) -> str:
    """A setting's value as it travels: true and false as Kafka writes them, lists with commas."""
    match value:
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)
