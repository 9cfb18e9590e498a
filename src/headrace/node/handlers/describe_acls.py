"""DescribeAcls, key 29, versions 1–3: the access rules that a filter matches, by resource."""

from itertools import groupby

from headrace.machines.metadata.controller.access_rules import find_rules
from headrace.machines.security.acl_rules import AclFilter, InvalidAcl, check_filter
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

NO_AUTHORIZER = "No Authorizer is configured on the broker"


class DescribeAcls:
    def __init__(self, metadata: MetadataLog, access: Access) -> None:
        self._metadata = metadata
        self._access = access

    def handle(self, request: Request) -> DescribeAclsResponse:
        body: DescribeAclsRequest = request.body
        if not self._access.allows(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            return refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        if self._access.authorizer is None:
            return refused(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        which = AclFilter(
            body.resource_type_filter,
            body.resource_name_filter,
            body.pattern_type_filter,
            body.principal_filter,
            body.host_filter,
            body.operation,
            body.permission_type,
        )
        try:
            check_filter(which)
        except InvalidAcl as invalid:
            return refused(ErrorCode.INVALID_REQUEST, str(invalid))
        rules = find_rules(self._metadata.image.security, which)
        response = DescribeAclsResponse(
            resources=[
                DescribeAclsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    pattern_type=pattern_type,
                    acls=[
                        AclDescription(
                            principal=rule.principal,
                            host=rule.host,
                            operation=rule.operation,
                            permission_type=rule.permission,
                        )
                        for rule in same
                    ],
                )
                for (resource_type, name, pattern_type), same in groupby(rules, key=lambda rule: rule[:3])
            ]
        )
        return self._metadata.when_durable(request, response)


def refused(code: ErrorCode, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message)
