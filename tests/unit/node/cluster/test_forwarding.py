"""A client asks a broker what only the active controller can answer: the broker forwards it."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

from harness.authorizers import Anybody, ByName, Nobody
from harness.controllers import Controllers
from harness.follower_parts import SETTINGS
from harness.remote_broker import CONTROLLER_ALONE, RemoteBroker
from headrace.machines.configs.values import InvalidConfig
from headrace.node.authorization import Operation, Resource
from headrace.node.connection import Connection
from headrace.node.effects import Mute
from headrace.node.forwarding import encode_address, encode_principal
from headrace.node.handlers.envelope import EnvelopedResponse
from headrace.node.metadata_log import MetadataLog
from headrace.node.peers import Unanswered
from headrace.node.settings import Settings
from headrace.protocol.api import response_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import answer_frame
from headrace.protocol.messages import alter_configs, incremental_alter_configs
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.envelope import EnvelopeRequest
from headrace.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from headrace.simulator.frames import request_bytes
from headrace.simulator.manual_host import ManualHost


class LedElsewhere(MetadataLog):
    """The metadata log of a node that follows node 7."""

    __slots__ = ()

    @property
    def is_active(self) -> bool:
        return False

    @property
    def leader_id(self) -> int:
        return 7


class Pair:
    """A controller, node 7, with broker 1; and node 2, whose clients ask what only node 7 can answer."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        """`settings` of the broker and the controller."""
        more = settings or {}
        self.controller = ManualHost(more | CONTROLLER_ALONE)
        RemoteBroker(self.controller, 1).start()
        voters = {"controller.quorum.voters": "2@127.0.0.1:9193,7@127.0.0.1:9093"}
        self.broker = ManualHost(SETTINGS | voters | more)
        self.broker.node.controller.metadata.__class__ = LedElsewhere
        self.link = self.controller.connect()
        self.client = self.broker.connect()

    def carry(self) -> None:
        """Everything that the broker has sent to the controller, and the answers to it."""
        while self.broker.sent:
            sent = self.broker.sent.popleft()
            assert (sent.peer.id, sent.lane) == (7, "forwarding")
            self.controller.send_frame(self.link, sent.frame[4:])
            answer = self.controller.answers[self.link.id].popleft()
            self.broker.node.answered(self.broker.clock.now(), sent.ticket, memoryview(answer)[4:])
            self.broker.settle()

    def lose(self, reason: Unanswered) -> None:
        sent = self.broker.sent.popleft()
        self.broker.node.answered(self.broker.clock.now(), sent.ticket, reason)
        self.broker.settle()

    def ask(self, request: Any, version: int) -> Any:
        self.broker.send(self.client, request, version)
        self.carry()
        return self.broker.receive(self.client)


def creation(name: str = "t") -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.mark.parametrize("version", range(2, 8))
def test_in_every_version(pair: Pair, version: int) -> None:
    (created,) = pair.ask(creation(), version).topics
    assert (created.name, created.error_code) == ("t", 0)
    assert "t" in pair.controller.node.controller.metadata.image.topics
    (again,) = pair.ask(creation(), version).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("version", range(1, 4))
def test_access_rules_in_every_version(pair: Pair, version: int) -> None:
    pair.controller.node.access.authorizer = Anybody()
    rule = AclCreation(
        resource_type=2, resource_name="t", principal="User:ada", host="*", operation=3, permission_type=3
    )
    (created,) = pair.ask(CreateAclsRequest(creations=[rule]), version).results
    assert created.error_code == 0
    which = DeleteAclsFilter(resource_type_filter=2, resource_name_filter="t", operation=1, permission_type=1)
    which.principal_filter = which.host_filter = None
    (deleted,) = pair.ask(DeleteAclsRequest(filters=[which]), version).filter_results
    assert [one.principal for one in deleted.matching_acls] == ["User:ada"]


@pytest.mark.parametrize("version", [5, 7])  # the first one is throttled only, the other one is refused
def test_the_client_that_the_controller_throttles_is_muted_by_its_broker(pair: Pair, version: int) -> None:
    entity = [EntityData(entity_type="client-id", entity_name="test")]
    quota = EntryData(entity=entity, ops=[OpData(key="controller_mutation_rate", value=1.0)])
    pair.ask(AlterClientQuotasRequest(entries=[quota]), 1)
    created = CreatableTopic(name="big", num_partitions=20, replication_factor=1)
    if version == 7:
        assert pair.ask(CreateTopicsRequest(topics=[created]), 7).throttle_time_ms == 0, "once below zero"
        answer = pair.ask(creation(), 7)
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    else:
        answer = pair.ask(CreateTopicsRequest(topics=[created]), 5)
        assert answer.topics[0].error_code == 0
    assert answer.throttle_time_ms == 9_000  # 20 partitions, 11 of them were saved up
    (mute,) = [effect for effect in pair.broker.effects if isinstance(effect, Mute)]
    assert (mute.connection, mute.until) == (pair.client, pair.broker.clock.mono + 9)
    assert [effect for effect in pair.controller.effects if isinstance(effect, Mute)] == []


def test_users_and_quotas(pair: Pair) -> None:
    user = ScramCredentialUpsertion(
        name="ada", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
    )
    (altered,) = pair.ask(AlterUserScramCredentialsRequest(upsertions=[user]), 0).results
    assert (altered.user, altered.error_code) == ("ada", 0)
    entity = [EntityData(entity_type="user", entity_name="ada")]
    quota = EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=1024.0)])
    (limited,) = pair.ask(AlterClientQuotasRequest(entries=[quota]), 1).entries
    assert limited.error_code == 0
    security = pair.controller.node.controller.metadata.image.security
    assert list(security.credentials) == [("ada", 1)]
    assert list(security.quotas.values()) == [{"producer_byte_rate": 1024.0}]


def test_answers_leave_in_the_order_of_the_requests(pair: Pair) -> None:
    broker, client = pair.broker, pair.client
    broker.send(client, creation("a"), 7)
    broker.send(client, MetadataRequest(topics=[]), 12)
    broker.send(client, creation("b"), 7)
    assert broker.receive(client) is None
    pair.carry()
    assert broker.receive(client).topics[0].name == "a"
    assert broker.receive(client).cluster_id == broker.node.directories.cluster_id
    assert broker.receive(client).topics[0].name == "b"


@pytest.mark.parametrize("reason", Unanswered)
def test_a_lost_one_is_sent_again(pair: Pair, reason: Unanswered) -> None:
    pair.broker.send(pair.client, creation(), 7)
    pair.lose(reason)
    assert pair.broker.receive(pair.client) is None
    pair.broker.advance(0.02)
    pair.carry()
    assert pair.broker.receive(pair.client).topics[0].error_code == 0


def test_a_slow_controller_is_asked_once(pair: Pair) -> None:
    """It would refuse to create a second time what it has just created."""
    pair.broker.send(pair.client, creation(), 7)
    pair.broker.advance(12)
    asked = [one for one in pair.broker.sent if one.lane == "forwarding"]
    assert len(asked) == 1
    pair.broker.sent = deque(asked)
    pair.carry()
    assert pair.broker.receive(pair.client).topics[0].error_code == 0


def test_without_a_controller_the_client_is_told_in_the_end(pair: Pair) -> None:
    topics = [DeleteTopicState(name="t")]
    pair.broker.send(pair.client, DeleteTopicsRequest(topics=topics), 6)
    pair.broker.advance(31)
    (told,) = pair.broker.receive(pair.client).responses
    assert (told.name, told.error_code) == ("t", ErrorCode.REQUEST_TIMED_OUT)


def test_nothing_is_sent_for_a_client_that_was_told_so(pair: Pair) -> None:
    pair.broker.send(pair.client, creation(), 7)
    pair.lose(Unanswered.LOST)
    pair.broker.advance(31)  # nobody answers: several tries end
    pair.broker.sent.clear()
    assert pair.broker.receive(pair.client).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    pair.broker.advance(10)
    late = [one for one in pair.broker.sent if one.lane == "forwarding"]
    assert not late, "a change that the client has given up must not be made minutes later"


def test_a_controller_that_resigns_before_the_commit_is_not_the_clients_business(pair: Pair) -> None:
    pair.broker.send(pair.client, creation(), 7)
    told = CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER, error_message=None)]
    )
    response = EnvelopedResponse(response_codec(19, 7), 1, response_codec(58, 0)).wrapped(told)
    assert response.error_code == ErrorCode.NOT_CONTROLLER, "the broker asks the next controller"
    sent = pair.broker.sent.popleft()
    frame = b"".join(cast("list[bytes]", answer_frame(response_codec(58, 0), sent.ticket, response)))
    pair.broker.node.answered(pair.broker.clock.now(), sent.ticket, memoryview(frame)[4:])
    pair.broker.settle()
    assert pair.broker.receive(pair.client) is None
    pair.broker.advance(0.02)
    pair.carry()
    assert pair.broker.receive(pair.client).topics[0].error_code == 0


def test_a_malformed_one_closes_the_connection(pair: Pair) -> None:
    frame = bytes(request_bytes(19, 7, 1, "c", creation()))
    pair.broker.send_frame(pair.client, frame[:-9])
    pair.carry()
    assert pair.broker.closed[pair.client.id] == "the request is malformed"


def test_a_node_that_is_elected_meanwhile_serves_it_itself() -> None:
    cluster = Controllers(are_brokers=True).start()
    before = cluster.elected()
    cluster.run(3.0)
    before.kill()
    asked = {}
    for one in cluster.nodes.values():
        if one is not before:
            request = creation(f"by-{one.id}")
            asked[one.id] = request, cluster.send_request(one, request, 7, "PLAINTEXT")
    for request, wire in asked.values():
        answer = cluster.answer_on(wire, request, 7, seconds=10.0)
        assert [topic.error_code for topic in answer.topics] == [0]
    assert cluster.elected().id in asked


def test_a_controller_that_cannot_commit_forwards_what_its_own_clients_want() -> None:
    cluster = Controllers(are_brokers=True).start()
    before = cluster.elected()
    cluster.run(3.0)
    cluster.cuts = {(before.id, id) for id in cluster.nodes} | {(id, before.id) for id in cluster.nodes}
    request = creation()
    wire = cluster.send_request(before, request, 7, "PLAINTEXT")
    assert cluster.answer_on(wire, request, 7, seconds=6.0) is None
    assert not before.metadata.is_active
    cluster.cuts.clear()
    answer = cluster.answer_on(wire, request, 7, seconds=5.0)
    assert [topic.error_code for topic in answer.topics] == [0]
    assert "t" in cluster.elected().metadata.image.topics


def test_a_connection_is_not_read_from_while_much_of_it_is_forwarded(pair: Pair) -> None:
    topics = [DeleteTopicState(name=f"{number:06}" * 40) for number in range(18_000)]
    frame = request_bytes(20, 6, 1, "c", DeleteTopicsRequest(topics=topics))
    for number in range(2):
        assert not pair.client.is_full
        pair.broker.send_frame(pair.client, bytes(frame))
        assert pair.client.held_bytes == (number + 1) * len(frame)
    assert pair.client.is_full, "a hundred of them would not fit into memory"
    pair.broker.advance(31)
    assert len(pair.broker.answers[pair.client.id]) == 2
    assert pair.client.held_bytes == 0


def test_a_client_that_has_gone_is_owed_nothing(pair: Pair) -> None:
    pair.broker.send(pair.client, creation(), 7)
    pair.broker.node.disconnected(pair.broker.clock.now(), pair.client)
    pair.carry()
    assert not pair.broker.answers[pair.client.id]


def test_a_very_long_one(pair: Pair) -> None:
    """It is decoded in slices; what the broker asks meanwhile is answered behind it."""
    topics = [DeleteTopicState(name=f"topic-{number}") for number in range(5_000)]
    pair.broker.send(pair.client, DeleteTopicsRequest(topics=topics), 6)
    pair.broker.send(pair.client, creation(), 7)
    tickets = []
    while pair.broker.sent:
        sent = pair.broker.sent.popleft()
        tickets.append(sent.ticket)
        while pair.link.is_full:
            pair.controller.advance(0.001)
        pair.controller.send_frame(pair.link, sent.frame[4:])
    assert not pair.controller.answers[pair.link.id]
    pair.controller.advance(1)
    for ticket in tickets:
        answer = pair.controller.answers[pair.link.id].popleft()
        pair.broker.node.answered(pair.broker.clock.now(), ticket, memoryview(answer)[4:])
        pair.broker.settle()
    told = pair.broker.receive(pair.client).responses
    assert {one.error_code for one in told} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(told) == 5_000
    assert pair.broker.receive(pair.client).topics[0].error_code == 0


def test_one_that_fits_into_no_envelope_closes_the_connection(pair: Pair) -> None:
    frame = request_bytes(20, 6, 1, "c", DeleteTopicsRequest(topics=[]))
    pair.broker.send_frame(pair.client, bytes(frame) + bytes(8 * 1024 * 1024))
    assert "more than the limit" in pair.broker.closed[pair.client.id]


class OnlyBrokers(ByName):
    """Allows everything to brokers, and remembers the others."""

    def __init__(self) -> None:
        self.others: list[tuple[str, str]] = []

    def allows(self, connection: Connection, operation: Operation, resource: Resource, name: str) -> bool:
        if operation is Operation.CLUSTER_ACTION:
            return connection.principal == "User:ANONYMOUS"
        self.others.append((connection.principal, connection.address))
        return False


def test_the_controller_authorizes_the_client(pair: Pair) -> None:
    pair.client.principal = "User:anna:b"
    pair.client.address = "::1"
    pair.controller.node.access.authorizer = authorizer = OnlyBrokers()
    (refused,) = pair.ask(creation(), 7).topics
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert set(authorizer.others) == {("User:anna:b", "::1")}


class TestDelegationTokens:
    """The broker looks at how the client came, and the controller at who it is."""

    SETTINGS = {
        "delegation.token.secret.key": "secret",
        "listeners": "PLAINTEXT://127.0.0.1:9192,LOGIN://127.0.0.1:9194,CONTROLLER://127.0.0.1:9193",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }

    def pair(self) -> Pair:
        """Ada has logged in at the broker."""
        pair = Pair(self.SETTINGS)
        pair.client = Connection(77, listener="LOGIN", address="127.0.0.1", principal="User:ada")
        pair.broker.answers[77], pair.broker.asked[77] = deque(), deque()
        return pair

    def test_a_token_of_a_client_of_another_node(self) -> None:
        pair = self.pair()
        token = pair.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert (token.error_code, token.principal_name) == (ErrorCode.NONE, "ada")
        tokens = pair.controller.node.controller.metadata.image.security.tokens
        assert [one.owner for one in tokens.values()] == ["User:ada"]
        assert pair.ask(RenewDelegationTokenRequest(hmac=bytes(token.hmac)), 2).error_code == 0
        assert pair.ask(ExpireDelegationTokenRequest(hmac=bytes(token.hmac)), 2).error_code == 0

    @pytest.mark.parametrize(
        "request_of",
        [CreateDelegationTokenRequest, RenewDelegationTokenRequest, ExpireDelegationTokenRequest],
    )
    def test_without_a_login_nothing_is_forwarded(self, request_of: Any) -> None:
        pair = self.pair()
        pair.client.listener = "PLAINTEXT"
        pair.broker.send(pair.client, request_of(), 2)
        assert not pair.broker.sent
        told = pair.broker.receive(pair.client)
        assert told.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    def test_the_controller_knows_who_came_with_a_token(self) -> None:
        """Though a broker should not have forwarded it."""
        pair = self.pair()
        frame = request_bytes(38, 3, 1, "c", CreateDelegationTokenRequest(max_lifetime_ms=-1))
        codes = []
        for with_token in (False, True):
            envelope = EnvelopeRequest(
                request_data=bytes(frame),
                request_principal=encode_principal("User:ada", with_token=with_token),
                client_host_address=b"",
            )
            answer = pair.controller.ask(envelope, 0)
            codes.append(int.from_bytes(bytes(answer.response_data)[5:7], "big"))
        assert codes == [0, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED]


class TestEnvelopes:
    def ask(self, pair: Pair, frame: bytes) -> int:
        request = EnvelopeRequest(request_data=frame, request_principal=None, client_host_address=b"")
        code: int = pair.controller.ask(request, 0).error_code
        return code

    def test_what_brokers_answer_themselves_is_not_forwarded(self, pair: Pair) -> None:
        envelope = request_bytes(58, 0, 1, "c", EnvelopeRequest(request_principal=None))
        assert self.ask(pair, bytes(envelope)) == ErrorCode.UNSUPPORTED_VERSION
        metadata = request_bytes(3, 12, 1, "c", MetadataRequest())
        assert self.ask(pair, bytes(metadata)) == ErrorCode.UNSUPPORTED_VERSION

    @pytest.mark.parametrize("frame", [b"", b"\0\x13\0", b"\0\x13\0\x07\0\0\0\x01\xff\xff\0\x7f"])
    def test_garbage(self, pair: Pair, frame: bytes) -> None:
        assert self.ask(pair, frame) == ErrorCode.INVALID_REQUEST

    def test_only_brokers_may_send_them(self, pair: Pair) -> None:
        pair.controller.node.access.authorizer = OnlyBrokers()
        pair.link.principal = "User:stranger"
        pair.broker.send(pair.client, creation(), 7)
        pair.carry()
        (told,) = pair.broker.receive(pair.client).topics
        assert told.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    @pytest.mark.parametrize("is_checked", [True, False])
    def test_a_stranger_cannot_act_as_an_administrator(self, pair: Pair, *, is_checked: bool) -> None:
        """Without the check of the broker that sends the envelope, it could: whom it carries is believed."""
        pair.controller.node.access.authorizer = OnlyAdministrator(trusts_brokers=not is_checked)
        stranger = pair.controller.connect()
        stranger.principal = "User:stranger"
        forged = EnvelopeRequest(
            request_data=bytes(request_bytes(19, 7, 1, "c", creation())),
            request_principal=encode_principal("User:admin"),
            client_host_address=encode_address("127.0.0.1"),
        )
        answer = pair.controller.ask(forged, 0, stranger)
        topics = pair.controller.node.controller.metadata.image.topics
        if is_checked:
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert not topics
        else:
            assert answer.error_code == ErrorCode.NONE
            assert topics


class OnlyAdministrator(ByName):
    """Allows everything to one principal. A planted bug: brokers are not asked who they are."""

    def __init__(self, *, trusts_brokers: bool) -> None:
        self._trusts_brokers = trusts_brokers

    def allows(self, connection: Connection, operation: Operation, resource: Resource, name: str) -> bool:
        if operation is Operation.CLUSTER_ACTION and self._trusts_brokers:
            return True
        return connection.principal == "User:admin"


class Tried:
    """A server that can use no file but `good.pem`."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, wanted: Settings) -> None:
        self.count += 1
        path = wanted.tls_texts["ssl.keystore.location"]
        if path != "good.pem":
            raise InvalidConfig(f"cannot read {path}")


def altering(name: str, key: str, value: str, *others: str) -> list[Any]:
    """In both forms."""
    return [
        kind.__dict__[request](
            resources=[
                kind.AlterConfigsResource(
                    resource_type=4,
                    resource_name=one,
                    configs=[kind.AlterableConfig(name=key, value=value)],
                )
                for one in (name, *others)
            ]
        )
        for kind, request in (
            (alter_configs, "AlterConfigsRequest"),
            (incremental_alter_configs, "IncrementalAlterConfigsRequest"),
        )
    ]


KEYSTORE = "ssl.keystore.location"


def test_a_broker_tries_its_own_certificates_before_it_forwards_them(pair: Pair) -> None:
    tried = Tried()
    pair.broker.node.try_certificates_by(tried)
    own = str(pair.broker.node.id)
    for form, version in zip(altering(own, KEYSTORE, "bad.pem"), (2, 1), strict=True):
        (refused,) = pair.ask(form, version).responses
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == (
            "Validation of dynamic config update of SSLFactory failed: cannot read bad.pem"
        )
        assert refused.resource_name == own
    image = pair.controller.node.controller.metadata.image
    assert image.broker_config(int(own)) == {}
    count = tried.count
    for request in (
        altering(own, "max.connections", "7")[1],  # names no certificate
        altering("7", KEYSTORE, "bad.pem")[1],  # of another broker
    ):
        pair.broker.send(pair.client, request, 1)
        assert pair.broker.sent, "it was forwarded"
        pair.carry()
        pair.broker.receive(pair.client)
    assert tried.count == count
    pair.broker.send(pair.client, altering(own, KEYSTORE, "good.pem")[1], 1)
    assert tried.count == count + 1
    assert pair.broker.sent


def test_no_file_is_touched_for_a_client_without_the_right(pair: Pair) -> None:
    tried = Tried()
    pair.broker.node.try_certificates_by(tried)
    pair.broker.node.access.authorizer = Nobody()
    pair.broker.send(pair.client, altering(str(pair.broker.node.id), KEYSTORE, "bad.pem")[1], 1)
    assert tried.count == 0
    assert pair.broker.sent, "and the controller refuses it"


def test_a_broker_that_is_the_controller_tries_its_certificates_too() -> None:
    tried = Tried()
    host = ManualHost()
    host.node.try_certificates_by(tried)
    own = str(host.node.id)
    asked = altering(own, KEYSTORE, "bad.pem")[1]
    (refused,) = host.ask(asked, 1).responses
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert str(refused.error_message).endswith("failed: cannot read bad.pem")
    (taken,) = host.ask(altering(own, KEYSTORE, "good.pem")[1], 1).responses
    assert taken.error_code == 0
    (other,) = host.ask(altering(own, "max.connections", "7")[1], 1).responses
    assert (other.error_code, tried.count) == (0, 2), "they are not tried again"
