"""The handlers of the controller role, each with the parts that it needs.

A handler is built, and its module imported, when the first request of its API arrives. Those that change
metadata answer only while this node is the active controller.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.node.authorization import CLUSTER_NAME, Operation, Resource
from headrace.node.routes import Handle, Request, RoleApis, Routes, Served
from headrace.node.token_requests import TokenRequests
from headrace.protocol.api import CONTROLLER, ApiKey, Listener
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.controller import Controller
    from headrace.node.handlers.quorum_request import QuorumRequests


class ControllerHandlers:
    def __init__(self, controller: "Controller", routes: Routes) -> None:
        self.controller = controller
        self.metadata = controller.metadata
        self.access = controller.access
        self.settings = controller.settings
        self._routes = routes
        self._node_id = controller.id
        self._directories = controller.directories
        self._decisions = controller.decisions
        self._ports = controller.ports
        self._watch = controller.watch
        self._rng = controller.rng

    def register(self, listeners: Listener) -> None:
        self._routes.serve(self, served_by_controllers(listeners))

    def envelope(self) -> Handle:
        from headrace.node.handlers.envelope import Envelope

        ports = self._ports
        return Envelope(self._routes, self.metadata, self.access, ports.waiting, ports.deadlines).handle

    def _quorum_requests(self) -> "QuorumRequests":
        from headrace.node.handlers.quorum_request import QuorumRequests

        return QuorumRequests(self._node_id, self._directories.cluster_id, self.metadata, self.access)

    def vote(self) -> Handle:
        from headrace.node.handlers.vote import Vote

        return Vote(self._quorum_requests()).handle

    def begin_quorum_epoch(self) -> Handle:
        from headrace.node.handlers.begin_quorum_epoch import BeginQuorumEpoch

        return BeginQuorumEpoch(self._quorum_requests()).handle

    def end_quorum_epoch(self) -> Handle:
        from headrace.node.handlers.end_quorum_epoch import EndQuorumEpoch

        return EndQuorumEpoch(self._quorum_requests()).handle

    def fetch_metadata(self) -> Handle:
        from headrace.node.handlers.fetch_metadata import FetchMetadata

        bytes_max = self.settings.current.controller_quorum_fetch_max_bytes
        return FetchMetadata(self._quorum_requests(), self.metadata, bytes_max=bytes_max).handle

    def fetch_snapshot(self) -> Handle:
        from headrace.node.handlers.fetch_snapshot import FetchSnapshot

        bytes_max = self.settings.current.controller_quorum_fetch_snapshot_max_bytes
        return FetchSnapshot(self._quorum_requests(), self.metadata, bytes_max=bytes_max).handle

    def describe_controllers(self) -> Handle:
        from headrace.node.handlers.describe_cluster import DescribeControllers

        return DescribeControllers(self._directories, self.metadata, self.access).handle

    def create_topics(self) -> Handle:
        return self.controller.topics().handle

    def delete_topics(self) -> Handle:
        from headrace.node.handlers.delete_topics import DeleteTopics

        quotas = self._ports.waiting.quotas
        return DeleteTopics(self.metadata, self._decisions, self.settings, self.access, quotas).handle

    def alter_configs(self) -> Handle:
        from headrace.node.config_changes import ConfigChanges
        from headrace.node.handlers.alter_configs import AlterConfigs

        return AlterConfigs(ConfigChanges(self.metadata, self._decisions, self.access)).handle

    def incremental_alter_configs(self) -> Handle:
        from headrace.node.config_changes import ConfigChanges
        from headrace.node.handlers.incremental_alter_configs import IncrementalAlterConfigs

        return IncrementalAlterConfigs(ConfigChanges(self.metadata, self._decisions, self.access)).handle

    def create_partitions(self) -> Handle:
        from headrace.node.handlers.create_partitions import CreatePartitions

        return CreatePartitions(
            self.metadata, self._decisions, self.access, self._ports.waiting.quotas
        ).handle

    def create_acls(self) -> Handle:
        from headrace.node.handlers.create_acls import CreateAcls

        return CreateAcls(self.metadata, self._decisions, self.access).handle

    def delete_acls(self) -> Handle:
        from headrace.node.handlers.delete_acls import DeleteAcls

        return DeleteAcls(self.metadata, self._decisions, self.access).handle

    def alter_client_quotas(self) -> Handle:
        from headrace.node.handlers.alter_client_quotas import AlterClientQuotas

        return AlterClientQuotas(self.metadata, self._decisions, self.access).handle

    def alter_user_scram_credentials(self) -> Handle:
        from headrace.node.handlers.alter_user_scram_credentials import AlterUserScramCredentials

        return AlterUserScramCredentials(self.metadata, self._decisions, self.access).handle

    def create_delegation_token(self) -> Handle:
        from headrace.node.handlers.create_delegation_token import CreateDelegationToken

        return CreateDelegationToken(self.metadata, self.controller.tokens, self.access, self._rng).handle

    def renew_delegation_token(self) -> Handle:
        from headrace.node.handlers.renew_delegation_token import RenewDelegationToken

        return RenewDelegationToken(self.metadata, self.controller.tokens).handle

    def expire_delegation_token(self) -> Handle:
        from headrace.node.handlers.expire_delegation_token import ExpireDelegationToken

        return ExpireDelegationToken(self.metadata, self.controller.tokens).handle

    def describe_acls(self) -> Handle:
        from headrace.node.handlers.describe_acls import DescribeAcls

        return DescribeAcls(self.metadata, self.access).handle

    def elect_leaders(self) -> Handle:
        from headrace.node.handlers.elect_leaders import ElectLeaders

        return ElectLeaders(self.metadata, self._decisions, self._watch, self.access).handle

    def list_partition_reassignments(self) -> Handle:
        from headrace.node.handlers.list_partition_reassignments import ListPartitionReassignments

        return ListPartitionReassignments(self.metadata, self.access).handle

    def describe_quorum(self) -> Handle:
        from headrace.node.handlers.describe_quorum import DescribeQuorum

        return DescribeQuorum(self.metadata, self.access).handle

    def update_features(self) -> Handle:
        from headrace.node.handlers.update_features import UpdateFeatures

        return UpdateFeatures(self._node_id, self.metadata, self._decisions, self.access).handle

    def unregister_broker(self) -> Handle:
        from headrace.node.handlers.unregister_broker import UnregisterBroker

        return UnregisterBroker(self.metadata, self._decisions, self._watch, self.access).handle


Make = Callable[[ControllerHandlers], Handle]


@cache
def served_by_controllers(listeners: Listener) -> RoleApis[ControllerHandlers]:
    served: list[Served[ControllerHandlers]] = []
    for api_key, make in (
        (ApiKey.CREATE_TOPICS, ControllerHandlers.create_topics),
        (ApiKey.DELETE_TOPICS, ControllerHandlers.delete_topics),
        (ApiKey.CREATE_ACLS, ControllerHandlers.create_acls),
        (ApiKey.DELETE_ACLS, ControllerHandlers.delete_acls),
        (ApiKey.ALTER_CLIENT_QUOTAS, ControllerHandlers.alter_client_quotas),
        (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ControllerHandlers.alter_user_scram_credentials),
        (ApiKey.ALTER_CONFIGS, ControllerHandlers.alter_configs),
        (ApiKey.CREATE_PARTITIONS, ControllerHandlers.create_partitions),
        (ApiKey.ELECT_LEADERS, ControllerHandlers.elect_leaders),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, ControllerHandlers.incremental_alter_configs),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, ControllerHandlers.list_partition_reassignments),
        (ApiKey.DESCRIBE_QUORUM, ControllerHandlers.describe_quorum),
        (ApiKey.UPDATE_FEATURES, ControllerHandlers.update_features),
        (ApiKey.UNREGISTER_BROKER, ControllerHandlers.unregister_broker),
    ):
        served.append(Served(api_key, listeners, _only_when_active(make)))
    for api_key, make in (
        (ApiKey.CREATE_DELEGATION_TOKEN, ControllerHandlers.create_delegation_token),
        (ApiKey.RENEW_DELEGATION_TOKEN, ControllerHandlers.renew_delegation_token),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, ControllerHandlers.expire_delegation_token),
    ):
        served.append(Served(api_key, listeners, _only_after_a_login(_only_when_active(make))))
    if CONTROLLER not in listeners:
        return RoleApis(served)
    for api_key in (
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ):
        served.append(Served(api_key, CONTROLLER, _from_brokers(api_key)))
    for api_key, make in (
        (ApiKey.FETCH, ControllerHandlers.fetch_metadata),
        (ApiKey.VOTE, ControllerHandlers.vote),
        (ApiKey.BEGIN_QUORUM_EPOCH, ControllerHandlers.begin_quorum_epoch),
        (ApiKey.END_QUORUM_EPOCH, ControllerHandlers.end_quorum_epoch),
        (ApiKey.FETCH_SNAPSHOT, ControllerHandlers.fetch_snapshot),
        (ApiKey.DESCRIBE_CLUSTER, ControllerHandlers.describe_controllers),
        (ApiKey.DESCRIBE_ACLS, ControllerHandlers.describe_acls),
        (ApiKey.ENVELOPE, ControllerHandlers.envelope),
    ):
        served.append(Served(api_key, CONTROLLER, make))
    return RoleApis(served)


def _only_when_active(make: Make) -> Make:
    def made(handlers: ControllerHandlers) -> Handle:
        handle = make(handlers)
        metadata, access = handlers.metadata, handlers.access

        def guarded(request: Request) -> Any:
            if not metadata.is_active:
                from headrace.node.not_controller import not_controller

                return handlers.controller.refusal_of_own(request) or not_controller(request)
            reply = handle(request)
            if access.audit is not None:
                access.audit.decided(metadata, request, reply)
            return reply

        return guarded

    return made


def _only_after_a_login(make: Make) -> Make:
    """And not one with a delegation token."""

    def made(handlers: ControllerHandlers) -> Handle:
        from headrace.node.not_controller import refused

        handle, requests = make(handlers), TokenRequests(handlers.settings.current)

        def guarded(request: Request) -> Any:
            if not requests.allows(request.connection):
                code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                return refused(request.route.api_key, request.version, request.body, code)
            return handle(request)

        return guarded

    return made


def _from_brokers(api_key: ApiKey) -> Make:
    """The handler for brokers of other processes."""

    def made(handlers: ControllerHandlers) -> Handle:
        metadata, access = handlers.metadata, handlers.access

        def handle(request: Request) -> Any:
            from headrace.node.not_controller import not_controller, refused

            if not access.allows(request, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                return refused(api_key, request.version, request.body, code)
            if not metadata.is_active:
                return not_controller(request)
            request.connection.peer = request.body.broker_id
            response, offset = handlers.controller.decide(request.now, request.body)
            return metadata.when_committed(request, offset, response)

        return handle

    return made
