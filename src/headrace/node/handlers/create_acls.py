"""CreateAcls, key 30, versions 1–3: new access rules, a result for each of them."""

from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.security.acl_rules import AclRule
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.proposals import propose
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


class CreateAcls:
    def __init__(self, metadata: MetadataLog, decisions: ControllerDecisions, access: Access) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._access = access

    def handle(self, request: Request) -> CreateAclsResponse | Parked:
        body: CreateAclsRequest = request.body
        if not self._access.allows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            return refused(body, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        if self._access.authorizer is None:
            return refused(body, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        rules = [
            AclRule(
                one.resource_type,
                one.resource_name,
                one.resource_pattern_type,
                one.principal,
                one.host,
                one.operation,
                one.permission_type,
            )
            for one in body.creations
        ]
        try:
            decision = self._decisions.create_rules(rules)
        except Refusal as refusal:
            return refused(body, refusal.code, refusal.message)
        offset = propose(self._metadata, request.now, decision)
        response = CreateAclsResponse(
            results=[
                AclCreationResult(error_code=created.error, error_message=created.message or "")
                for created in decision.reply
            ]
        )
        return self._metadata.when_known(request, offset, response)


def refused(body: CreateAclsRequest, code: ErrorCode, message: str | None) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in body.creations]
    )
