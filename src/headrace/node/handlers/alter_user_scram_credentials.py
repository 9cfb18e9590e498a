"""AlterUserScramCredentials, key 51, version 0: SCRAM credentials of users are set and removed."""

from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.controller.users import CredentialDeletion, CredentialUpsertion
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.proposals import propose
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


class AlterUserScramCredentials:
    def __init__(self, metadata: MetadataLog, decisions: ControllerDecisions, access: Access) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._access = access

    def handle(self, request: Request) -> AlterUserScramCredentialsResponse | Parked:
        body: AlterUserScramCredentialsRequest = request.body
        if not self._access.allows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            return refused(body, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        deletions = [CredentialDeletion(one.name, one.mechanism) for one in body.deletions]
        upsertions = [
            CredentialUpsertion(
                one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password)
            )
            for one in body.upsertions
        ]
        try:
            decision = self._decisions.alter_credentials(deletions, upsertions)
        except Refusal as refusal:
            return refused(body, refusal.code, refusal.message)
        offset = propose(self._metadata, request.now, decision)
        response = AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(
                    user=altered.user, error_code=altered.error, error_message=altered.message
                )
                for altered in decision.reply
            ]
        )
        return self._metadata.when_known(request, offset, response)


def refused(
    body: AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([one.name for one in body.deletions] + [one.name for one in body.upsertions])
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user in users
        ]
    )
