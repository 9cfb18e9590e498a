"""DescribeClientQuotas, key 48, versions 0–1: the quotas of users, client ids and addresses."""

from headrace.machines.metadata.controller.client_quotas import QuotaFilter, find_quotas
from headrace.machines.metadata.controller.decision import Refusal
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


class DescribeClientQuotas:
    def __init__(self, metadata: MetadataLog, access: Access) -> None:
        self._metadata = metadata
        self._access = access

    def handle(self, request: Request) -> DescribeClientQuotasResponse:
        body: DescribeClientQuotasRequest = request.body
        if not self._access.allows(request, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
            return refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        filters = [QuotaFilter(one.entity_type, one.match_type, one.match) for one in body.components]
        try:
            found = find_quotas(self._metadata.image.security, filters, strict=body.strict)
        except Refusal as refusal:
            return refused(refusal.code, refusal.message)
        response = DescribeClientQuotasResponse(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts()],
                    values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
                )
                for entity, values in found
            ]
        )
        return self._metadata.when_durable(request, response)


def refused(code: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
