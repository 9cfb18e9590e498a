"""DescribeConfigs, key 32, versions 1–4: each setting of a topic, group or broker, set or not, with source.

Synonyms are told when asked for, texts from version 3 on. A resource without chosen keys is described in
full. Loggers have no levels of their own here, so a BROKER_LOGGER has no settings.
"""

from collections.abc import Callable, Mapping

from headrace.base.limits import CONFIGS_PER_RESPONSE_MAX
from headrace.base.numbers import INT32_MAX, whole_number
from headrace.machines.configs.definition import group_config_keys, topic_config_keys
from headrace.machines.configs.describe import (
    Described,
    describe_broker,
    describe_group,
    describe_group_key,
    describe_topic,
    describe_topic_key,
)
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.controller.names import check_topic_name
from headrace.machines.metadata.image import (
    ALL_BROKERS,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.config_changes import broker_layers
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.node.sliced_reply import Slicing
from headrace.node.waiting import Parked
from headrace.protocol.chunked_message import encode_in_chunks
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

# Some 100 microseconds each, with all it has.
RESOURCES_AT_ONCE = 10


class DescribeConfigs:
    def __init__(
        self,
        broker_id: int,
        metadata: MetadataLog,
        settings: LiveSettings,
        access: Access,
        slicing: Slicing,
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._access = access
        self._metadata = metadata
        self._slicing = slicing

    def handle(self, request: Request) -> DescribeConfigsResponse | Parked:
        body: DescribeConfigsRequest = request.body
        teller = Teller(self._broker_id, self._metadata, self._settings, self._access, request)
        if len(body.resources) > RESOURCES_AT_ONCE:
            results = (teller.result(asked) for asked in body.resources)
            steps = encode_in_chunks(
                request.route.response,
                DescribeConfigsResponse(),
                "results",
                results,
                together=RESOURCES_AT_ONCE,
            )
            return self._slicing.reply(request, steps, units=1)
        response = DescribeConfigsResponse(results=[teller.result(asked) for asked in body.resources])
        return self._metadata.when_durable(request, response)


class Teller:
    """Describes the resources of one request. Those without settings of their own share one description."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataLog,
        settings: LiveSettings,
        access: Access,
        request: Request,
    ) -> None:
        body: DescribeConfigsRequest = request.body
        self._broker_id = broker_id
        self._image = metadata.image
        self._access = access
        self._request = request
        self._layers = broker_layers(broker_id, metadata, settings)
        self._tells_synonyms = body.include_synonyms
        self._tells_texts = body.include_documentation
        self._room = CONFIGS_PER_RESPONSE_MAX
        self._shared: dict[tuple[int, str, tuple[str, ...]], list[DescribeConfigsResourceResult]] = {}

    def result(self, asked: DescribeConfigsResource) -> DescribeConfigsResult:
        answer = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
        try:
            # once it is full nothing more is put together: that would cost as much as telling it
            configs = self._configs(asked) if self._room else []
            if not self._room or len(configs) > self._room:
                self._room = 0
                raise Refusal(
                    ErrorCode.POLICY_VIOLATION,
                    f"A response has at most {CONFIGS_PER_RESPONSE_MAX} settings: ask for fewer resources.",
                )
        except Refusal as refusal:
            answer.error_code, answer.error_message = refusal.code, refusal.message
            return answer
        self._room -= len(configs)
        answer.configs = configs
        return answer

    def _configs(self, asked: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        kind, name = asked.resource_type, asked.resource_name
        wanted = tuple(asked.configuration_keys or ())
        if kind == TOPIC_RESOURCE:
            return self._topic(name, wanted)
        if kind == GROUP_RESOURCE:
            return self._group(name, wanted)
        if kind not in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
        if not self._access.allows(self._request, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
            raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        is_cluster_default = kind == BROKER_RESOURCE and name == ALL_BROKERS
        if not is_cluster_default:
            self._check_broker(name)
        if kind == BROKER_LOGGER_RESOURCE:
            return []
        return self._once(
            (kind, name, wanted),
            lambda: describe_broker(self._layers, wanted, is_cluster_default=is_cluster_default),
        )

    def _once(
        self, key: tuple[int, str, tuple[str, ...]], describe: Callable[[], list[Described]]
    ) -> list[DescribeConfigsResourceResult]:
        told = self._shared.get(key)
        if told is None:
            told = self._shared[key] = [self._told(config) for config in describe()]
        return told

    def _with(
        self,
        defaults: list[DescribeConfigsResourceResult],
        overrides: Mapping[str, str],
        describe_key: Callable[[str], Described],
    ) -> list[DescribeConfigsResourceResult]:
        if not overrides:
            return defaults
        return [
            self._told(describe_key(config.name)) if config.name in overrides else config
            for config in defaults
        ]

    def _check_broker(self, name: str) -> None:
        own = self._broker_id
        node_id = whole_number(name, INT32_MAX)
        if node_id is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if node_id != own:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {own} or empty string, but received {name}",
            )

    def _topic(self, name: str, wanted: tuple[str, ...]) -> list[DescribeConfigsResourceResult]:
        if not self._access.allows(self._request, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name):
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        check_topic_name(name)
        image = self._image
        if name not in image.topics:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        keys, overrides = topic_config_keys(), image.topic_config(name)
        return self._with(
            self._once((TOPIC_RESOURCE, "", wanted), lambda: describe_topic({}, self._layers, wanted)),
            overrides,
            lambda key: describe_topic_key(keys[key], overrides, self._layers),
        )

    def _group(self, name: str, wanted: tuple[str, ...]) -> list[DescribeConfigsResourceResult]:
        if not self._access.allows(self._request, Operation.DESCRIBE_CONFIGS, Resource.GROUP, name):
            raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Authorization failed.")
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        keys, overrides = group_config_keys(), self._image.group_config(name)
        return self._with(
            self._once((GROUP_RESOURCE, "", wanted), lambda: describe_group({}, self._layers, wanted)),
            overrides,
            lambda key: describe_group_key(keys[key], overrides, self._layers),
        )

    def _told(self, config: Described) -> DescribeConfigsResourceResult:
        return DescribeConfigsResourceResult(
            name=config.name,
            value=config.value,
            read_only=config.is_read_only,
            config_source=config.source,
            is_sensitive=config.is_sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
                for synonym in config.synonyms
            ]
            if self._tells_synonyms
            else [],
            config_type=config.type,
            documentation=config.doc if self._tells_texts else None,
        )
