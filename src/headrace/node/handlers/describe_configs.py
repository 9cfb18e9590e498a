"""DescribeConfigs, key 32, versions 1–4: every setting of a topic or broker, set or not, with its source.

Synonyms are told when asked for, texts from version 3 on. A resource without chosen keys is described in
full. Loggers have no levels of their own here, so a BROKER_LOGGER has no settings.
"""

from headrace.machines.configs.describe import Described, describe_broker, describe_topic
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.controller.names import check_topic_name
from headrace.machines.metadata.image import (
    ALL_BROKERS,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
)
from headrace.node.authorization import CLUSTER_NAME, Operation, Resource
from headrace.node.committed_reply import CommittedReply, when_committed
from headrace.node.config_layers import broker_layers
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(node: Node, request: Request) -> DescribeConfigsResponse | CommittedReply:
    body: DescribeConfigsRequest = request.body
    response = DescribeConfigsResponse(results=[result(node, request, asked) for asked in body.resources])
    return when_committed(node, request, node.metadata.end_offset, response)


def result(node: Node, request: Request, asked: DescribeConfigsResource) -> DescribeConfigsResult:
    body: DescribeConfigsRequest = request.body
    answer = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
    try:
        configs = described(node, request, asked)
    except Refusal as refusal:
        answer.error_code, answer.error_message = refusal.code, refusal.message
        return answer
    answer.configs = [
        DescribeConfigsResourceResult(
            name=config.name,
            value=config.value,
            read_only=config.is_read_only,
            config_source=config.source,
            is_sensitive=config.is_sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
                for synonym in config.synonyms
            ]
            if body.include_synonyms
            else [],
            config_type=config.type,
            documentation=config.doc if body.include_documentation else None,
        )
        for config in configs
    ]
    return answer


def described(node: Node, request: Request, asked: DescribeConfigsResource) -> list[Described]:
    kind, name = asked.resource_type, asked.resource_name
    wanted = asked.configuration_keys
    if kind == TOPIC_RESOURCE:
        if not node.allows(request, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name):
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        check_topic_name(name)
        if name not in node.metadata.image.topics:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return describe_topic(node.metadata.image.topic_config(name), broker_layers(node), wanted)
    if kind not in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    if not node.allows(request, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    if kind == BROKER_RESOURCE and name == ALL_BROKERS:
        return describe_broker(broker_layers(node), wanted, is_cluster_default=True)
    if not name.isdecimal():
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node.id:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.id} or empty string, but received {name}",
        )
    if kind == BROKER_LOGGER_RESOURCE:
        return []
    return describe_broker(broker_layers(node), wanted)
