"""AlterUserScramCredentials and DescribeUserScramCredentials: as Apache Kafka 4.3.1 answers them."""

from __future__ import annotations

from typing import Any

from harness.authorizers import Nobody
from harness.golden_answers import golden
from headrace.machines.security.scram import SHA_256, SHA_512
from headrace.node.authorization import Operation, Resource
from headrace.node.not_controller import is_from_no_controller, refused
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headrace.simulator.manual_host import ManualHost


def upsertion(user: str = "ada", iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user,
        mechanism=SHA_512.id,
        iterations=iterations,
        salt=b"salt",
        salted_password=bytes(SHA_512.digest_bytes),
    )


def alter(host: ManualHost, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    return {result.user: result.error_code for result in host.ask(request, 0).results}


def describe(host: ManualHost, *users: str) -> Any:
    names = [UserName(name=user) for user in users] if users else None
    return host.ask(DescribeUserScramCredentialsRequest(users=names), 0)


def listed(host: ManualHost, *users: str) -> dict[str, list[tuple[int, int]]]:
    return {
        result.user: [(one.mechanism, one.iterations) for one in result.credential_infos]
        for result in describe(host, *users).results
    }


def test_as_kafka() -> None:
    for api in ("describe_user_scram_credentials", "alter_user_scram_credentials"):
        for version, request, answer in golden(api):
            assert ManualHost().ask(request, version) == answer


def test_users_are_there_after_a_restart() -> None:
    host = ManualHost()
    assert alter(host, upsertion(), upsertion("bob", 8192)) == {"ada": 0, "bob": 0}
    assert alter(host, ScramCredentialDeletion(name="bob", mechanism=SHA_512.id)) == {"bob": 0}
    host.restart()
    assert listed(host) == {"ada": [(SHA_512.id, 4096)]}


def test_no_users_are_all_users() -> None:
    host = ManualHost()
    alter(host, upsertion("bob"), upsertion("ada"))
    everybody = {"ada": [(SHA_512.id, 4096)], "bob": [(SHA_512.id, 4096)]}
    assert listed(host) == everybody
    response = host.ask(DescribeUserScramCredentialsRequest(users=[]), 0)
    assert [result.user for result in response.results] == ["ada", "bob"]
    assert listed(host, "bob", "cy") == {"bob": [(SHA_512.id, 4096)], "cy": []}
    (_, missing) = describe(host, "bob", "cy").results
    assert missing.error_code == ErrorCode.RESOURCE_NOT_FOUND


def test_one_user_is_refused_and_the_other_is_not() -> None:
    host = ManualHost()
    assert alter(
        host, upsertion("ada", 1), ScramCredentialDeletion(name="cy", mechanism=1), upsertion("bob")
    ) == {
        "bob": 0,
        "cy": ErrorCode.RESOURCE_NOT_FOUND,
        "ada": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    assert sorted(listed(host)) == ["bob"]


def test_not_everybody_may() -> None:
    host = ManualHost()
    nobody = host.node.access.authorizer = Nobody()
    refused_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    deletion = ScramCredentialDeletion(name="bob", mechanism=SHA_256.id)
    assert alter(host, upsertion(), deletion) == {"ada": refused_code, "bob": refused_code}
    told = describe(host, "ada")
    assert (told.error_code, [one.error_code for one in told.results]) == (refused_code, [refused_code])
    assert nobody.asked == [
        (Operation.ALTER, Resource.CLUSTER, "kafka-cluster"),
        (Operation.DESCRIBE, Resource.CLUSTER, "kafka-cluster"),
    ]


def test_who_is_not_the_controller_says_so() -> None:
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion()])
    assert is_from_no_controller(refused(request.KEY, 0, request, ErrorCode.NOT_CONTROLLER))
