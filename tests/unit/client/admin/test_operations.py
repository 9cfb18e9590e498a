"""Operations that are more than one question, or that have to say something in more than one way."""

from __future__ import annotations

from hashlib import pbkdf2_hmac
from typing import Any

import pytest

from harness.scripted_admin import ScriptedAdmin
from headrace.base.ids import id_text
from headrace.client.admin.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    create_acls,
    delete_acls,
    describe_acls,
)
from headrace.client.admin.configs import Append, Resource, Subtract, alter_configs, describe_config
from headrace.client.admin.group_offsets import lag_of_groups
from headrace.client.admin.groups import describe_groups, remove_members
from headrace.client.admin.offsets import list_offsets
from headrace.client.admin.operation import Operation
from headrace.client.admin.replicas import elect_leaders
from headrace.client.admin.topics import NewTopic, create_topics, delete_topics, describe_topics
from headrace.client.admin.transactions import OpenTransaction, abort_transaction
from headrace.client.admin.users import (
    QuotaEntity,
    alter_quotas,
    create_token,
    delete_passwords,
    describe_quotas,
    set_password,
)
from headrace.client.cluster import TopicPartition
from headrace.client.errors import BadResponse, InvalidInput, KafkaError, PartlyFailed, UnsupportedByBroker
from headrace.client.steps import Pending
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import alter_client_quotas, describe_client_quotas
from headrace.protocol.messages import consumer_group_describe as modern
from headrace.protocol.messages import describe_groups as classic
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headrace.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from headrace.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from headrace.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from headrace.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.metadata import MetadataResponse
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headrace.protocol.notation import Response
from headrace.simulator.scripted_cluster import request_of


def played(operation: Operation[Any], *answers: Response | Exception) -> tuple[Pending[Any], list[Any]]:
    """The operation with these answers to its questions, and the questions."""
    admin = ScriptedAdmin()
    admin.cluster.coordinators = {"old": 1, "new": 1, "gone": 1, "readers": 1}
    pending = admin.begin(operation)
    asked: list[Any] = []
    left = list(answers)
    while sent := admin.sent():
        for outgoing in sent:
            asked.append(request_of(outgoing))
            admin.answer(outgoing, left.pop(0))  # type: ignore[arg-type]
    assert not left
    assert pending.is_done
    return pending, asked


def pages(*topics: DescribeTopicPartitionsResponseTopic, then: Cursor | None = None) -> Response:
    return DescribeTopicPartitionsResponse(topics=list(topics), next_cursor=then)


def part(name: str, *indexes: int) -> DescribeTopicPartitionsResponseTopic:
    partitions = [
        DescribeTopicPartitionsResponsePartition(partition_index=index, leader_id=1) for index in indexes
    ]
    return DescribeTopicPartitionsResponseTopic(name=name, partitions=partitions)


class TestTopics:
    def test_a_large_topic_comes_in_pages(self) -> None:
        pending, asked = played(
            describe_topics(["c", "a", "b"]),
            pages(part("a", 0), part("b", 0, 1), then=Cursor(topic_name="b", partition_index=2)),
            pages(part("b", 2), part("c", 0)),
        )
        found = pending.result()
        assert {name: len(topic.partitions) for name, topic in found.items()} == {"c": 1, "a": 1, "b": 3}
        assert [[topic.name for topic in request.topics] for request in asked] == [
            ["a", "b", "c"],
            ["b", "c"],
        ]

    def test_pages_without_end_are_not_followed(self) -> None:
        same = Cursor(topic_name="a", partition_index=1)
        pending, _ = played(
            describe_topics(["a"]), pages(part("a", 0), then=same), pages(part("a", 0), then=same)
        )
        with pytest.raises(BadResponse, match="repeat the same page"):
            pending.result()

    def test_a_broker_without_pages_is_asked_for_metadata(self) -> None:
        admin = ScriptedAdmin()
        pending = admin.begin(describe_topics(["orders"]))
        (asked,) = admin.sent()
        assert isinstance(asked.question, DescribeTopicPartitionsRequest)
        admin.answer(asked, UnsupportedByBroker("DescribeTopicPartitions"))
        assert admin.sent() == []
        assert [one.leader for one in pending.result()["orders"].partitions] == [1, 2, 1]
        assert admin.cluster.lookups == ["topics orders"]

    def test_topics_by_id(self) -> None:
        raw = bytes(15) + b"\x07"
        admin = ScriptedAdmin()
        pending = admin.begin(describe_topics(ids=[id_text(raw)]))
        (asked,) = admin.session.requests(admin.now)
        request: Any = asked.question
        assert [(topic.topic_id, topic.name) for topic in request.topics] == [(raw, None)]
        admin.answer(asked, MetadataResponse(topics=[admin.cluster.topic("orders")]))
        assert pending.result()[id_text(raw)].name == "orders"

    def test_a_text_that_is_no_id(self) -> None:
        admin = ScriptedAdmin()
        with pytest.raises(InvalidInput, match="'short' is not a topic id"):
            admin.begin(delete_topics(ids=["short"])).result()

    def test_replicas_that_are_placed_by_hand(self) -> None:
        admin = ScriptedAdmin()
        topic = NewTopic(
            "t", partitions=9, assignments=[[1, 2], [2, 1]], configs={"a": True, "b": ["x", "y"]}
        )
        admin.begin(create_topics([topic]))
        (asked,) = admin.sent()
        request: Any = request_of(asked)
        (made,) = request.topics
        assert (made.num_partitions, made.replication_factor) == (-1, -1)
        assert [(one.partition_index, one.broker_ids) for one in made.assignments] == [
            (0, [1, 2]),
            (1, [2, 1]),
        ]
        assert [(one.name, one.value) for one in made.configs] == [("a", "true"), ("b", "x,y")]


class TestGroups:
    def test_the_new_protocol_is_asked_first_and_the_classic_one_for_the_rest(self) -> None:
        not_found = ErrorCode.GROUP_ID_NOT_FOUND
        pending, asked = played(
            describe_groups(["old", "new"]),
            modern.ConsumerGroupDescribeResponse(
                groups=[
                    modern.DescribedGroup(group_id="old", error_code=not_found),
                    modern.DescribedGroup(group_id="new", group_state="Stable"),
                ]
            ),
            classic.DescribeGroupsResponse(
                groups=[classic.DescribedGroup(group_id="old", group_state="Empty")]
            ),
        )
        found = pending.result()
        assert {name: (group.type, group.state) for name, group in found.items()} == {
            "old": ("classic", "Empty"),
            "new": ("consumer", "Stable"),
        }
        assert asked[1].groups == ["old"]

    def test_a_dead_group_is_no_group(self) -> None:
        pending, _ = played(
            describe_groups(["gone"]),
            UnsupportedByBroker("ConsumerGroupDescribe"),
            classic.DescribeGroupsResponse(
                groups=[classic.DescribedGroup(group_id="gone", group_state="Dead")]
            ),
        )
        with pytest.raises(KafkaError, match="group 'gone'") as missing:
            pending.result()
        assert missing.value.code == ErrorCode.GROUP_ID_NOT_FOUND

    @pytest.mark.parametrize("nobody", [{"members": []}, {"instances": []}], ids=["members", "instances"])
    def test_nobody_to_remove_is_nobody_asked(self, nobody: dict[str, list[str]]) -> None:
        pending, asked = played(remove_members("readers", **nobody))  # type: ignore[arg-type]
        assert (pending.result(), asked) == ([], [])

    def test_a_group_that_remembers_a_topic_which_is_gone(self) -> None:
        def offset(topic: str, value: int) -> OffsetFetchResponseTopics:
            one = OffsetFetchResponsePartitions(partition_index=0, committed_offset=value)
            return OffsetFetchResponseTopics(name=topic, partitions=[one])

        pending, _ = played(
            lag_of_groups(["readers"]),
            modern.ConsumerGroupDescribeResponse(
                groups=[modern.DescribedGroup(group_id="readers", group_state="Empty")]
            ),
            OffsetFetchResponse(
                groups=[
                    OffsetFetchResponseGroup(
                        group_id="readers", topics=[offset("orders", 3), offset("deleted", 9)]
                    )
                ]
            ),
            ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name="orders", partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=5)]
                    )
                ]
            ),
        )
        assert [(str(one.at), one.lag) for one in pending.result()["readers"]] == [
            ("deleted-0", None),
            ("orders-0", 2),
        ]


class TestConfigs:
    def test_every_kind_of_change(self) -> None:
        changes = {"a": 1, "b": None, "c": Append("x"), "d": Subtract(["y", "z"]), "e": False}
        admin = ScriptedAdmin()
        admin.begin(alter_configs({Resource.topic("t"): changes, Resource.broker(1): {"f": "g"}}))
        requests: list[Any] = [request_of(outgoing) for outgoing in admin.sent()]
        told = [
            (
                resource.resource_name,
                [(one.name, one.config_operation, one.value) for one in resource.configs],
            )
            for request in requests
            for resource in request.resources
        ]
        assert told == [
            ("t", [("a", 0, "1"), ("b", 1, None), ("c", 2, "x"), ("d", 3, "y,z"), ("e", 0, "false")]),
            ("1", [("f", 0, "g")]),
        ]

    def test_a_key_that_does_not_exist(self) -> None:
        answer = DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=2, resource_name="t")])
        pending, _ = played(describe_config(Resource.topic("t"), ["no.such"]), answer)
        with pytest.raises(InvalidInput, match=r"topic 't' has no setting 'no\.such'"):
            pending.result()

    def test_a_broker_with_a_name(self) -> None:
        admin = ScriptedAdmin()
        with pytest.raises(InvalidInput, match="must be a number, the broker's id"):
            admin.begin(describe_config(Resource.broker(1)._replace(name="one"))).result()


class TestReplicas:
    def elected(self, *codes: int) -> ElectLeadersResponse:
        results = [PartitionResult(partition_id=index, error_code=code) for index, code in enumerate(codes)]
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic="t", partition_result=results)]
        )

    def test_an_election_that_was_not_needed_is_no_error(self) -> None:
        pending, _ = played(
            elect_leaders([("t", 0), ("t", 1)]), self.elected(0, ErrorCode.ELECTION_NOT_NEEDED)
        )
        assert pending.result() == {TopicPartition("t", 0): True, TopicPartition("t", 1): False}

    def test_an_election_without_candidates_is_not_repeated(self) -> None:
        pending, _ = played(
            elect_leaders([("t", 0), ("t", 1)]), self.elected(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        )
        with pytest.raises(PartlyFailed, match="t-1"):
            pending.result()


def test_a_transaction_without_a_coordinator_is_aborted_with_the_first_epoch() -> None:
    admin = ScriptedAdmin()
    admin.begin(abort_transaction(OpenTransaction(TopicPartition("orders", 1), 7, 3, -1, 0, 0)))
    (asked,) = admin.sent()
    request: Any = request_of(asked)
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 0)
    assert not marker.transaction_result


def test_a_time_without_a_zone_is_refused() -> None:
    from datetime import UTC, datetime

    admin = ScriptedAdmin()
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    admin.begin(list_offsets({("orders", 0): moment}))
    (asked,) = admin.sent()
    request: Any = request_of(asked)
    assert request.topics[0].partitions[0].timestamp == 1767225600000
    with pytest.raises(InvalidInput, match="no time zone"):
        admin.begin(list_offsets({("orders", 0): moment.replace(tzinfo=None)})).result()
    with pytest.raises(InvalidInput, match=r"isolation_level=.*: must be one of"):
        admin.begin(list_offsets({("orders", 0): 0}, isolation_level="serializable")).result()


class TestUsers:
    def test_a_password_travels_salted(self) -> None:
        answer = AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(user="ada")])
        pending, (asked,) = played(
            set_password("ada", "engine", mechanism="SCRAM-SHA-256", iterations=4096), answer
        )
        (credential,) = asked.upsertions
        assert pending.result() is None
        assert (credential.name, credential.mechanism, credential.iterations) == ("ada", 1, 4096)
        assert len(credential.salt) == 24
        assert credential.salted_password == pbkdf2_hmac("sha256", b"engine", credential.salt, 4096)

    def test_a_mechanism_that_is_none(self) -> None:
        with pytest.raises(InvalidInput, match="mechanism='PLAIN': must be one of"):
            ScriptedAdmin().begin(delete_passwords("ada", mechanism="PLAIN")).result()


class TestAcls:
    RULE = Acl(AclResource.TOPIC, "orders", "User:ada", AclOperation.READ)

    def test_answers_are_in_the_order_of_the_rules(self) -> None:
        other = self.RULE._replace(name="payments")
        refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED)
        pending, _ = played(
            create_acls([self.RULE, other]), CreateAclsResponse(results=[AclCreationResult(), refused])
        )
        with pytest.raises(PartlyFailed, match="allow User:ada read on topic 'payments'") as partly:
            pending.result()
        assert list(partly.value.results) == [self.RULE]

    def test_what_came_after_us_is_unknown(self) -> None:
        told = AclDescription(principal="User:ada", host="*", operation=99, permission_type=3)
        resource = DescribeAclsResource(resource_type=2, resource_name="orders", pattern_type=3, acls=[told])
        pending, (asked,) = played(
            describe_acls(AclFilter(AclResource.TOPIC)), DescribeAclsResponse(resources=[resource])
        )
        assert pending.result() == [self.RULE._replace(operation=AclOperation.UNKNOWN)]
        assert (asked.resource_type_filter, asked.resource_name_filter, asked.operation) == (2, None, 1)

    def test_deleted_rules(self) -> None:
        match = DeleteAclsMatchingAcl(
            resource_type=2,
            resource_name="orders",
            pattern_type=AclPattern.LITERAL,
            principal="User:ada",
            host="*",
            operation=AclOperation.READ,
            permission_type=AclPermission.ALLOW,
        )
        answer = DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(matching_acls=[match])])
        pending, _ = played(delete_acls([AclFilter()]), answer)
        assert pending.result() == [self.RULE]


class TestQuotas:
    def test_set_and_taken_away(self) -> None:
        ada, others = QuotaEntity(user="ada"), QuotaEntity(user="", client_id="batch")
        admin = ScriptedAdmin()
        admin.begin(alter_quotas({ada: {"producer_byte_rate": 5.0}, others: {"request_percentage": None}}))
        (asked,) = admin.sent()
        request: Any = request_of(asked)
        told = [
            (
                [(one.entity_type, one.entity_name) for one in entry.entity],
                [(one.key, one.value, one.remove) for one in entry.ops],
            )
            for entry in request.entries
        ]
        assert told == [
            ([("user", "ada")], [("producer_byte_rate", 5.0, False)]),
            ([("user", None), ("client-id", "batch")], [("request_percentage", 0.0, True)]),
        ]
        entries = [alter_client_quotas.EntryResult(entity=entry.entity) for entry in request.entries]
        admin.answer(asked, alter_client_quotas.AlterClientQuotasResponse(entries=entries))

    def test_exactly_one_entity(self) -> None:
        entity = [describe_client_quotas.EntityData(entity_type="user", entity_name=None)]
        values = [describe_client_quotas.ValueData(key="producer_byte_rate", value=5.0)]
        entry = describe_client_quotas.EntryData(entity=entity, values=values)
        pending, (asked,) = played(
            describe_quotas(QuotaEntity(user="")),
            describe_client_quotas.DescribeClientQuotasResponse(entries=[entry]),
        )
        assert pending.result() == {QuotaEntity(user=""): {"producer_byte_rate": 5.0}}
        (component,) = asked.components
        assert (component.entity_type, component.match_type, component.match) == ("user", 1, None)
        assert asked.strict


def test_a_principal_is_a_kind_and_a_name() -> None:
    with pytest.raises(InvalidInput, match="write it as User:ada"):
        ScriptedAdmin().begin(create_token(owner="ada")).result()
