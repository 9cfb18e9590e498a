"""The audit log's entries: who did what, from where, with which result, and by which rule it was refused."""

from __future__ import annotations

from typing import Any

import pytest

from harness.rules import Rules
from headrace.machines.security.acl_rules import (
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.machines.security.repetitions import PERIOD_MS, WRITTEN_OF_KIND_MAX
from headrace.node.audit import UNCOMMITTED_TEXTS_MAX, request_facts
from headrace.node.audit_changes import CHANGES, UNKNOWN_RESULT, UncommittedEntries
from headrace.node.connection import Connection
from headrace.node.effects import LoseAudit, WriteAudit
from headrace.node.rights import RIGHTS
from headrace.node.routes import FORWARDED, Request, Route
from headrace.node.waiting import Waitable
from headrace.protocol.api import ApiKey
from headrace.protocol.messages import alter_configs, incremental_alter_configs
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

GUARDED = {"authorizer.class.name": "standard", "super.users": "User:admin"}
BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])
ADMIN = {"principal": "User:admin", "address": "127.0.0.1", "listener": "PLAINTEXT"}


def entries(host: ManualHost) -> list[dict[str, Any]]:
    """Those since the last call, without what all of a test's requests have in common."""
    told = [one for effect in host.effects if isinstance(effect, WriteAudit) for one in effect.entries]
    host.effects.clear()
    return told


def connect(host: ManualHost, principal: str) -> Connection:
    connection = host.connect()
    connection.principal = principal
    return connection


def topic(name: str, **settings: str) -> CreateTopicsRequest:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in settings.items()]
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    return CreateTopicsRequest(topics=[wanted], timeout_ms=1000)


def changes(
    host: ManualHost, request: Any, version: int, principal: str = "User:admin"
) -> list[dict[str, Any]]:
    """What the audit log says of a request, without its client."""
    entries(host)
    host.ask(request, version, connect(host, principal))
    told = entries(host)
    for one in told:
        assert one["event"] == "changed"
        assert one["principal"] == principal
    common = ("event", "principal", "address", "listener", "client_id", "api")
    return [{key: value for key, value in one.items() if key not in common} for one in told]


class TestWhenThereIsOne:
    @pytest.mark.parametrize(
        ("settings", "is_there"),
        [
            ({}, False),
            (GUARDED, True),
            (GUARDED | {"headrace.audit.log": "off"}, False),
            ({"headrace.audit.log": "on"}, True),
            (
                {
                    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
                    "sasl.enabled.mechanisms": "PLAIN",
                },
                True,
            ),
        ],
    )
    def test_by_default_where_clients_are_somebody(self, settings: dict[str, str], is_there: bool) -> None:
        host = ManualHost(settings)
        assert (host.node.access.audit is not None) == is_there


class TestRefusals:
    def test_says_who_from_where_what_and_that_no_rule_is_there(self) -> None:
        host = ManualHost(GUARDED)
        connection = connect(host, "User:eve")
        connection.address = "10.0.0.66"
        host.ask(topic("orders"), 7, connection)
        (told,) = entries(host)
        assert told == {
            "event": "refused",
            "principal": "User:eve",
            "address": "10.0.0.66",
            "listener": "PLAINTEXT",
            "client_id": told["client_id"],
            "api": "create_topics",
            "operation": "CREATE",
            "resource": "topic",
            "name": "orders",
            "rule": "no rule",
            "reason": "no rule is about topic 'orders'",
        }

    def test_names_the_rule_that_denied(self) -> None:
        host = ManualHost({"headrace.audit.log": "on"})
        host.create_topic("orders")
        rules = Rules(host)
        rules.allow(Operation.WRITE, ResourceType.TOPIC, "*")
        rules.allow(
            Operation.WRITE,
            ResourceType.TOPIC,
            "ord",
            permission=Permission.DENY,
            pattern=PatternType.PREFIXED,
        )
        entries(host)
        host.ask(host.produce_request("orders", BATCH, acks=1), 9)
        (told,) = entries(host)
        assert told["rule"] == "deny User:ANONYMOUS WRITE on topic prefix 'ord' from *"
        assert (told["api"], told["operation"], told["name"]) == ("produce", "WRITE", "orders")

    def test_what_is_only_left_out_of_an_answer_is_no_refusal(self) -> None:
        host = ManualHost(GUARDED)
        host.ask(topic("orders"), 7, connect(host, "User:admin"))
        eve = connect(host, "User:eve")
        entries(host)
        host.ask(ListGroupsRequest(), 4, eve)
        host.ask(MetadataRequest(topics=None), 12, eve)
        assert entries(host) == []
        host.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12, eve)
        assert [one["operation"] for one in entries(host)] == ["DESCRIBE"]

    def test_where_another_right_will_do_the_first_is_not_told(self) -> None:
        """CREATE on the cluster is asked before CREATE on the topic."""
        host = ManualHost({"headrace.audit.log": "on"})
        rules = Rules(host)
        rules.allow(Operation.CREATE, ResourceType.TOPIC, "orders")
        entries(host)
        host.ask(topic("orders"), 7)
        assert [one["event"] for one in entries(host)] == ["changed"]

    def test_a_flood_is_counted(self) -> None:
        host = ManualHost(GUARDED)
        eve, mallory = connect(host, "User:eve"), connect(host, "User:mallory")
        for number in range(1_209):
            host.ask(topic(f"t{number}"), 7, eve)
        host.ask(topic("t"), 7, mallory)
        told = entries(host)
        assert [one["principal"] for one in told] == ["User:eve"] * WRITTEN_OF_KIND_MAX + ["User:mallory"]
        host.advance(PERIOD_MS / 1000)
        assert entries(host) == [
            {
                "event": "repeated",
                "of": "refused",
                "principal": "User:eve",
                "operation": "CREATE",
                "resource": "topic",
                "count": 1_204,
                "text": "and 1,204 more like it in 10 s",
            }
        ]
        host.advance(PERIOD_MS / 1000)
        assert entries(host) == []
        host.ask(topic("t"), 7, eve)
        assert len(entries(host)) == 1

    def test_many_refusals_of_one_request_are_one_kind(self) -> None:
        host = ManualHost(GUARDED)
        asked = [MetadataRequestTopic(name=f"t{number}") for number in range(90)]
        host.ask(MetadataRequest(topics=asked), 12, connect(host, "User:eve"))
        assert len(entries(host)) == WRITTEN_OF_KIND_MAX

    def test_long_names_are_cut(self) -> None:
        host = ManualHost(GUARDED)
        host.ask(topic("n" * 30_000), 7, connect(host, "User:eve"))
        (told,) = entries(host)
        assert told["name"] == "n" * 300 + "… (30,000 characters)"
        assert len(told["reason"]) < 400

    def test_counts_are_written_when_the_node_stops(self) -> None:
        host = ManualHost(GUARDED)
        eve = connect(host, "User:eve")
        for number in range(10):
            host.ask(topic(f"t{number}"), 7, eve)
        entries(host)
        host.node.shutdown(host.clock.now())
        host.settle()
        assert [(one["event"], one["count"]) for one in entries(host)] == [("repeated", 5)]


class TestCertificates:
    def test_a_login_and_a_refused_one(self) -> None:
        host = ManualHost({"headrace.audit.log": "on"})
        connection = host.connect()
        host.node.shown_certificate(host.clock.now(), connection, "User:CN=ada")
        host.node.refused_handshake(host.clock.now(), host.connect(), "the certificate has expired")
        host.settle()
        entered, refused = entries(host)
        assert connection.principal == "User:CN=ada"
        assert (entered["event"], entered["principal"], entered["mechanism"]) == (
            "login",
            "User:CN=ada",
            "certificate",
        )
        assert (refused["event"], refused["reason"]) == ("login_refused", "the certificate has expired")


class Log(Waitable):
    """Of metadata, as far as entries look at it."""

    deciding_epoch = 5
    committed_offset = 10


class TestUncommitted:
    def wait(self, host: ManualHost) -> tuple[Log, UncommittedEntries]:
        log, audit = Log(), host.node.access.audit
        assert audit is not None
        request = Request(host.clock.now(), host.connect(), route(host), 7, 1, None, None)
        found = [{"change": "topic created", "result": "NONE"}, {"change": "x", "result": "INVALID_CONFIG"}]
        held, client = audit.hold(found), request_facts(request)
        return log, UncommittedEntries(audit, log, client, held, 12)  # type: ignore[arg-type]

    def test_entries_wait_for_the_commit(self) -> None:
        host = ManualHost({"headrace.audit.log": "on"})
        log, waiting = self.wait(host)
        waiting.woken(host.clock.now())
        log.committed_offset = 12
        assert waiting in log.waiters
        waiting.woken(host.clock.now())
        assert waiting not in log.waiters
        host.settle()
        assert [one["result"] for one in entries(host)] == ["NONE", "INVALID_CONFIG"]

    def test_whoever_is_not_the_controller_any_more_does_not_know_the_result(self) -> None:
        host = ManualHost({"headrace.audit.log": "on"})
        log, waiting = self.wait(host)
        log.deciding_epoch = -1
        waiting.woken(host.clock.now())
        host.settle()
        assert [one["result"] for one in entries(host)] == [UNKNOWN_RESULT, "INVALID_CONFIG"]
        assert waiting.is_done

    def test_a_cluster_without_a_majority_keeps_only_so_many_and_counts_the_rest(self) -> None:
        """Clients go on asking for changes, and none of them is committed."""
        host = ManualHost({"headrace.audit.log": "on"})
        audit = host.node.access.audit
        assert audit is not None
        log, waiting = self.wait(host)
        settings = {f"key.{number}": "value" for number in range(9)}
        changes = [{"change": "x", "settings": settings, "result": "NONE"}] * UNCOMMITTED_TEXTS_MAX
        held = audit.hold(changes)
        assert len(held) == (UNCOMMITTED_TEXTS_MAX - 2) // 10
        assert audit.hold(changes[:1]) == []
        host.settle()
        lost = [effect for effect in host.effects if isinstance(effect, LoseAudit)]
        assert [effect.count for effect in lost] == [len(changes) - len(held), 1]
        audit.release(held)
        log.committed_offset = 12
        waiting.woken(host.clock.now())
        assert len(audit.hold([{"change": "x", "result": "NONE"}] * (UNCOMMITTED_TEXTS_MAX + 1))) == (
            UNCOMMITTED_TEXTS_MAX
        ), "room for all of them again"


def route(host: ManualHost) -> Route:
    found = host.node.routes.find("PLAINTEXT", ApiKey.CREATE_TOPICS, 7)
    assert found is not None
    return found


class TestAllowed:
    def test_only_at_debug(self) -> None:
        for level, count in (("info", 0), ("debug", 1)):
            host = ManualHost(GUARDED | {"headrace.audit.log.level": level})
            host.ask(topic("orders"), 7, connect(host, "User:admin"))
            entries(host)
            host.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12, connect(host, "User:admin")
            )
            told = entries(host)
            assert [one["event"] for one in told] == ["allowed"] * count
            assert all((one["operation"], one["name"]) == ("DESCRIBE", "orders") for one in told)

    def test_a_fast_path_asks_nothing(self) -> None:
        host = ManualHost(GUARDED | {"headrace.audit.log.level": "debug"})
        admin = connect(host, "User:admin")
        host.ask(topic("orders"), 7, admin)
        for _ in range(3):
            host.ask(host.produce_request("orders", BATCH, acks=1), 9, admin)
        entries(host)
        host.ask(host.produce_request("orders", BATCH, acks=1), 9, admin)
        assert entries(host) == []


class TestChanges:
    def test_topics(self) -> None:
        host = ManualHost(GUARDED)
        created = {"change": "topic created", "topic": "t", "settings": {"retention.ms": "1000"}}
        assert changes(host, topic("t", retention_ms="1000"), 7) == [created | {"result": "NONE"}]
        (again,) = changes(host, topic("t"), 7)
        assert again["result"] == "TOPIC_ALREADY_EXISTS"
        more = CreatePartitionsTopic(name="t", count=3, assignments=None)
        assert changes(host, CreatePartitionsRequest(topics=[more], timeout_ms=1000), 3) == [
            {"change": "partitions added", "topic": "t", "partitions": 3, "result": "NONE"}
        ]
        doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert changes(host, doomed, 6) == [{"change": "topic deleted", "topic": "t", "result": "NONE"}]

    def test_a_topic_that_is_created_because_somebody_named_it(self) -> None:
        host = ManualHost(GUARDED)
        named = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        assert changes(host, named, 12) == [{"change": "topic created", "topic": "t", "result": "NONE"}]

    def test_a_request_that_is_only_tried_changes_nothing(self) -> None:
        host = ManualHost(GUARDED)
        tried = topic("t")
        tried.validate_only = True
        assert changes(host, tried, 7) == []

    def test_rules(self) -> None:
        host = ManualHost(GUARDED)
        rule = AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name="orders",
            resource_pattern_type=PatternType.LITERAL,
            principal="User:ada",
            host="*",
            operation=Operation.READ,
            permission_type=Permission.ALLOW,
        )
        text = "allow User:ada READ on topic 'orders' from *"
        assert changes(host, CreateAclsRequest(creations=[rule]), 3) == [
            {"change": "rule created", "rule": text, "result": "NONE"}
        ]
        which = DeleteAclsFilter(
            resource_type_filter=ResourceType.TOPIC,
            resource_name_filter="orders",
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        gone = {"change": "rule deleted", "rule": text, "result": "NONE"}
        assert changes(host, DeleteAclsRequest(filters=[which]), 3) == [gone]
        (nothing,) = changes(host, DeleteAclsRequest(filters=[which]), 3)
        assert (nothing["change"], nothing["count"]) == ("rules deleted", 0)

    def test_users_without_anything_of_their_passwords(self) -> None:
        host = ManualHost(GUARDED)
        salted = b"planted-salted-password-of-64-bytes".ljust(64, b"!")
        upsertion = ScramCredentialUpsertion(
            name="ada", mechanism=2, iterations=4096, salt=b"planted-salt", salted_password=salted
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        told = changes(host, request, 0)
        assert told == [
            {"change": "password set", "user": "ada", "mechanism": "SCRAM-SHA-512", "result": "NONE"}
        ]
        assert "planted" not in str(told)
        deletion = ScramCredentialDeletion(name="ada", mechanism=2)
        removed = changes(host, AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]), 0)
        assert removed == [
            {"change": "password removed", "user": "ada", "mechanism": "SCRAM-SHA-512", "result": "NONE"}
        ]

    def test_quotas(self) -> None:
        host = ManualHost(GUARDED)
        entry = EntryData(
            entity=[EntityData(entity_type="user", entity_name="ada")],
            ops=[OpData(key="producer_byte_rate", value=1024.0, remove=False)],
        )
        assert changes(host, AlterClientQuotasRequest(entries=[entry]), 1) == [
            {
                "change": "quotas changed",
                "entity": {"user": "ada"},
                "quotas": {"producer_byte_rate": 1024.0},
                "result": "NONE",
            }
        ]

    def test_quotas_of_an_entity_that_is_named_twice_hide_no_other_change(self) -> None:
        host = ManualHost(GUARDED)

        def entry(user: str, rate: float, client_id: str | None = None) -> EntryData:
            entity = [EntityData(entity_type="user", entity_name=user)]
            if client_id is not None:
                entity.append(EntityData(entity_type="client-id", entity_name=client_id))
            return EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=rate, remove=False)])

        again = entry("ada", 3.0, "c")
        again.entity.reverse()
        wanted = [entry("ada", 1.0, "c"), again, entry("bob", 9.0)]
        told = changes(host, AlterClientQuotasRequest(entries=wanted), 1)
        assert [(one["entity"]["user"], one["quotas"], one["result"]) for one in told] == [
            ("ada", {"producer_byte_rate": 1.0}, "INVALID_REQUEST"),
            ("ada", {"producer_byte_rate": 3.0}, "INVALID_REQUEST"),
            ("bob", {"producer_byte_rate": 9.0}, "NONE"),
        ]

    def test_settings_with_secrets_hidden(self) -> None:
        host = ManualHost(GUARDED)
        host.ask(topic("t"), 7, connect(host, "User:admin"))
        altered = incremental_alter_configs.AlterConfigsResource(
            resource_type=2,
            resource_name="t",
            configs=[
                incremental_alter_configs.AlterableConfig(
                    name="retention.ms", config_operation=0, value="5000"
                ),
                incremental_alter_configs.AlterableConfig(
                    name="segment.bytes", config_operation=1, value=None
                ),
            ],
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[altered])
        (told,) = changes(host, request, 1)
        assert told["settings"] == {"retention.ms": "5000", "segment.bytes": {"removed": None}}
        assert (told["resource"], told["name"], told["result"]) == ("topic", "t", "NONE")
        secrets = [
            alter_configs.AlterableConfig(name=name, value="planted-secret")
            for name in ("ssl.key.password", "sasl.jaas.config", "nobody.knows.this")
        ]
        resource = alter_configs.AlterConfigsResource(resource_type=4, resource_name="1", configs=secrets)
        (told,) = changes(host, alter_configs.AlterConfigsRequest(resources=[resource]), 2)
        assert set(told["settings"].values()) == {"[hidden]"}
        assert "planted" not in str(told["settings"])

    def test_a_refused_change_is_told_as_a_refusal_and_only_once(self) -> None:
        host = ManualHost(GUARDED)
        entries(host)
        deletion = ScramCredentialDeletion(name="ada", mechanism=2)
        request = AlterUserScramCredentialsRequest(deletions=[deletion] * 50, upsertions=[])
        host.ask(request, 0, connect(host, "User:eve"))
        assert [one["event"] for one in entries(host)] == ["refused"]

    def test_failed_changes_are_limited_and_made_ones_are_not(self) -> None:
        host = ManualHost(GUARDED)
        admin = connect(host, "User:admin")
        for number in range(50):
            host.ask(topic(f"t{number}"), 7, admin)
            host.ask(topic("t0"), 7, admin)
        told = entries(host)
        assert sum(one["result"] == "NONE" for one in told) == 50
        assert sum(one["result"] != "NONE" for one in told) == WRITTEN_OF_KIND_MAX

    def test_a_client_that_leaves_before_its_answer_is_told_all_the_same(self) -> None:
        """Whoever deletes the rules and hangs up must not be missing."""
        host = ManualHost(GUARDED)
        admin = connect(host, "User:admin")
        host.runs_jobs = False  # nothing is flushed, so nothing is committed
        entries(host)
        host.send(admin, topic("t"), 7)
        host.node.disconnected(host.clock.now(), admin)
        assert entries(host) == []
        host.runs_jobs = True
        host.settle()
        (told,) = entries(host)
        assert (told["topic"], told["result"], told["principal"]) == ("t", "NONE", "User:admin")


def test_every_api_that_changes_metadata_has_a_row() -> None:
    """APIs for the controller that change nothing, or nothing that lasts, have none."""
    without = {
        ApiKey.ELECT_LEADERS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
    assert set(FORWARDED) - without <= set(CHANGES)
    assert set(CHANGES) <= set(RIGHTS)
