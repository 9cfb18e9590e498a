"""DeleteAcls, key 31, versions 1–3: access rules that filters match go away, and are told for each filter."""

from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.security.acl_rules import AclFilter, AclRule
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.proposals import propose
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

NO_AUTHORIZER = "No Authorizer is configured."


class DeleteAcls:
    def __init__(self, metadata: MetadataLog, decisions: ControllerDecisions, access: Access) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._access = access

    def handle(self, request: Request) -> DeleteAclsResponse | Parked:
        body: DeleteAclsRequest = request.body
        if not self._access.allows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            return refused(body, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        if self._access.authorizer is None:
            return refused(body, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        filters = [
            AclFilter(
                one.resource_type_filter,
                one.resource_name_filter,
                one.pattern_type_filter,
                one.principal_filter,
                one.host_filter,
                one.operation,
                one.permission_type,
            )
            for one in body.filters
        ]
        try:
            decision = self._decisions.delete_rules(filters)
        except Refusal as refusal:
            return refused(body, refusal.code, refusal.message)
        offset = propose(self._metadata, request.now, decision)
        response = DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(
                    error_code=deleted.error,
                    error_message=deleted.message,
                    # when the append failed, nothing is deleted
                    matching_acls=[told(rule) for rule in deleted.rules if deleted.error is ErrorCode.NONE],
                )
                for deleted in decision.reply
            ]
        )
        return self._metadata.when_known(request, offset, response)


def told(rule: AclRule) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=rule.resource_type,
        resource_name=rule.name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def refused(body: DeleteAclsRequest, code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in body.filters]
    )
