"""Responses of a node that cannot decide: it is not the active controller, or lost that role meanwhile.

An API has its error code for the whole request, or for each item of it.
"""

from typing import Any

from headrace.node.routes import Request
from headrace.protocol.api import APIS, ApiKey, message_types
from headrace.protocol.errors import ErrorCode
from headrace.protocol.notation import Response


def not_controller(request: Request) -> Any:
    """For a request that only the active controller can answer."""
    return refused(request.route.api_key, request.version, request.body, ErrorCode.NOT_CONTROLLER)


def refused(api_key: int, version: int, body: Any, code: ErrorCode) -> Response:
    """The response that says so for all of the request."""
    match api_key:
        case ApiKey.CREATE_TOPICS:
            from headrace.protocol.messages import create_topics

            return create_topics.CreateTopicsResponse(
                topics=[
                    create_topics.CreatableTopicResult(name=topic.name, error_code=code, error_message=None)
                    for topic in body.topics
                ]
            )
        case ApiKey.DELETE_TOPICS:
            from headrace.protocol.messages import delete_topics

            named = [(topic.name, topic.topic_id) for topic in body.topics]
            named += [(name, bytes(16)) for name in body.topic_names]
            return delete_topics.DeleteTopicsResponse(
                responses=[
                    delete_topics.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code)
                    for name, topic_id in named
                ]
            )
        case ApiKey.CREATE_PARTITIONS:
            from headrace.protocol.messages import create_partitions

            return create_partitions.CreatePartitionsResponse(
                results=[
                    create_partitions.CreatePartitionsTopicResult(
                        name=topic.name, error_code=code, error_message=None
                    )
                    for topic in body.topics
                ]
            )
        case ApiKey.ALTER_CONFIGS:
            from headrace.protocol.messages import alter_configs

            return alter_configs.AlterConfigsResponse(
                responses=[
                    alter_configs.AlterConfigsResourceResponse(**item) for item in resources(body, code)
                ]
            )
        case ApiKey.INCREMENTAL_ALTER_CONFIGS:
            from headrace.protocol.messages import incremental_alter_configs as incremental

            return incremental.IncrementalAlterConfigsResponse(
                responses=[incremental.AlterConfigsResourceResponse(**item) for item in resources(body, code)]
            )
        case ApiKey.CREATE_ACLS:
            from headrace.node.handlers.create_acls import refused as no_rules

            return no_rules(body, code, None)
        case ApiKey.DELETE_ACLS:
            from headrace.node.handlers.delete_acls import refused as no_deletion

            return no_deletion(body, code, None)
        case ApiKey.ALTER_CLIENT_QUOTAS:
            from headrace.node.handlers.alter_client_quotas import refused as no_quotas

            return no_quotas(body, code, None)
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            from headrace.node.handlers.alter_user_scram_credentials import refused as no_users

            return no_users(body, code, None)
        case ApiKey.ELECT_LEADERS:
            from headrace.node.handlers.elect_leaders import refused as no_election

            return no_election(version, body, code, code.text)
        case _:
            response: Any = message_types(APIS[api_key])[1](error_code=code)
            return response  # type: ignore[no-any-return]


def resources(body: Any, code: ErrorCode) -> list[dict[str, Any]]:
    return [
        {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "error_code": code,
            "error_message": None,
        }
        for resource in body.resources
    ]


def is_from_no_controller(response: Any) -> bool:
    """Whether a response says that the node is not the active controller."""
    code = getattr(response, "error_code", ErrorCode.NONE)
    for name in ("topics", "responses", "results", "filter_results", "entries"):
        items = getattr(response, name, None)
        if code == ErrorCode.NONE and items:
            code = getattr(items[0], "error_code", ErrorCode.NONE)
    return bool(code == ErrorCode.NOT_CONTROLLER)
