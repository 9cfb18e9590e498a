"""DescribeUserScramCredentials, key 50, version 0: which users have SCRAM credentials, without their secrets.

An empty list of users asks for all of them, as in Kafka.
"""

from headrace.machines.metadata.controller.users import describe_users
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


class DescribeUserScramCredentials:
    def __init__(self, metadata: MetadataLog, access: Access) -> None:
        self._metadata = metadata
        self._access = access

    def handle(self, request: Request) -> DescribeUserScramCredentialsResponse:
        body: DescribeUserScramCredentialsRequest = request.body
        if not self._access.allows(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            code, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed."
            return DescribeUserScramCredentialsResponse(
                error_code=code,
                error_message=message,
                results=[
                    DescribeUserScramCredentialsResult(user=user.name, error_code=code, error_message=message)
                    for user in body.users or ()
                ],
            )
        names = [user.name for user in body.users] if body.users else None
        response = DescribeUserScramCredentialsResponse(
            results=[
                DescribeUserScramCredentialsResult(
                    user=told.user,
                    error_code=told.error,
                    error_message=told.message,
                    credential_infos=[
                        CredentialInfo(mechanism=mechanism, iterations=iterations)
                        for mechanism, iterations in told.credentials
                    ],
                )
                for told in describe_users(self._metadata.image.security, names)
            ]
        )
        return self._metadata.when_durable(request, response)
