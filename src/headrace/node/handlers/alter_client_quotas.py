"""AlterClientQuotas, key 49, versions 0–1: quotas are set and removed, a result for each entity."""

from headrace.machines.metadata.controller.client_quotas import Parts, QuotaChange
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.proposals import propose
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
)


class AlterClientQuotas:
    def __init__(self, metadata: MetadataLog, decisions: ControllerDecisions, access: Access) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._access = access

    def handle(self, request: Request) -> AlterClientQuotasResponse | Parked:
        body: AlterClientQuotasRequest = request.body
        if not self._access.allows(request, Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
            return refused(body, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        wanted = [
            QuotaChange(parts(entry), [(op.key, None if op.remove else op.value) for op in entry.ops])
            for entry in body.entries
        ]
        try:
            decision = self._decisions.alter_quotas(wanted, validate_only=body.validate_only)
        except Refusal as refusal:
            return refused(body, refusal.code, refusal.message)
        offset = propose(self._metadata, request.now, decision)
        response = AlterClientQuotasResponse(
            entries=[result(altered.entity, altered.error, altered.message) for altered in decision.reply]
        )
        return self._metadata.when_known(request, offset, response)


def parts(entry: EntryData) -> Parts:
    return tuple((one.entity_type, one.entity_name) for one in entry.entity)


def result(entity: Parts, code: ErrorCode, message: str | None) -> EntryResult:
    return EntryResult(
        error_code=code,
        error_message=message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )


def refused(
    body: AlterClientQuotasRequest, code: ErrorCode, message: str | None
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[result(parts(entry), code, message) for entry in body.entries])
