"""The controller role: the decisions about the cluster, the watch over brokers, and their handlers.

Every voter has this role, and one of them is active: the leader of the metadata log. It decides on an image
of its own, which is ahead of the committed one by what is being replicated. The others answer NOT_CONTROLLER.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.numbers import INT32_MAX, whole_number
from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.machines.metadata.image import ALL_BROKERS, ClusterImage
from headrace.machines.metadata.versions import FINALIZED_AT_FORMAT, METADATA_VERSION
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.broker_watch import BrokerWatch
from headrace.node.error_codes import FAULTS
from headrace.node.group_commit import RETRY_MS
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.ports import Once, Ports
from headrace.node.routes import Handle, Request, Routes
from headrace.node.settings import LiveSettings
from headrace.node.token_requests import TokenRequests, delegation_tokens
from headrace.protocol.api import CONTROLLER, ApiKey, Listener
from headrace.protocol.errors import ErrorCode
from headrace.protocol.notation import Data
from headrace.storage.errors import DiskFull

if TYPE_CHECKING:
    from headrace.machines.security.delegation_tokens import DelegationTokens
    from headrace.node.cluster_metrics import ControllerNumbers
    from headrace.node.handlers.create_topics import CreateTopics
    from headrace.node.handlers.quorum_request import QuorumRequests


class BrokerRequest(Protocol):
    """The handler of an API that only brokers use. A broker in this process calls it without a frame."""

    def decide(self, now: Now, body: Any, /) -> tuple[Any, int]:
        """The response, and the metadata offset whose commit makes it true."""
        ...


class Controller:
    def __init__(
        self,
        settings: LiveSettings,
        directories: LogDirectories,
        metadata: MetadataLog,
        access: Access,
        rng: Randomness,
        ports: Ports,
    ) -> None:
        """Nothing is decided before the node is elected."""
        current = settings.current
        self._node_id = current.node_id
        self._settings = settings
        self._directories = directories
        self._access = access
        self._ports = ports
        self.metadata = metadata
        self.decisions = ControllerDecisions(
            metadata.image,
            rng,
            current.texts,
            partitions=current.num_partitions,
            replication_factor=current.default_replication_factor,
            check_settings=self._check_settings,
        )
        own_broker = self._node_id if "broker" in current.process_roles else None
        self._watch = BrokerWatch(settings, metadata, self.decisions, ports, own_broker)
        self._rng = rng
        self._broker_requests: dict[int, BrokerRequest] = {}
        self._bootstrap = self._read_bootstrap()
        self._ready_at = 0
        self._registration: Registration | None = None  # of the broker in this process
        self._tell_broker: Callable[[Now], None] = lambda now: None

    def _read_bootstrap(self) -> Sequence[Data]:
        """Users and rules that the first active controller of a cluster makes known.

        Read at the start, so that a damaged file is an error (BadMetadata) then.
        """
        may_be_first = METADATA_VERSION not in self.metadata.image.features
        if not may_be_first or "controller" not in self._settings.current.process_roles:
            return ()
        from headrace.node.bootstrap import read_bootstrap

        return read_bootstrap(self._directories.disks[self._directories.metadata_log_dir])

    def follow(self, registration: Registration, poke: Callable[[Now], None]) -> None:
        """This process has a broker too: how it registers, and what it calls when the controller changes."""
        self._registration = registration
        self._tell_broker = poke

    def _check_settings(self, name: str, after: Mapping[str, str]) -> None:
        """InvalidConfig: this node could not take such dynamic settings of its own, or of all brokers."""
        image, settings = self.decisions.image, self._settings.current
        dynamic, cluster = image.broker_config(self._node_id), image.cluster_config
        if name == ALL_BROKERS:
            settings.overlaid(dynamic, after)
        elif whole_number(name, INT32_MAX) == self._node_id:
            from headrace.node.own_certificates import check_certificates

            check_certificates(self._settings, dynamic, after, cluster)

    @cached_property
    def _tokens(self) -> "DelegationTokens":
        """Those that it decides about."""
        texts = self._settings.current.texts
        return delegation_tokens(texts, lambda: self.decisions.image.security.tokens)

    def remove_expired_tokens(self, now: Now) -> None:
        """Every `delegation.token.expiry.check.interval.ms`, if there can be any."""
        if not self.metadata.is_active or not self.decisions.image.security.tokens:
            return
        from headrace.machines.metadata.controller.delegation_tokens import remove_expired

        decision = remove_expired(self._tokens, now.wall_ms)
        if not decision.records:
            return
        try:
            self.metadata.propose(now, decision)
        except FAULTS as fault:
            self._ports.reports.report("error", "tokens_not_removed", error=str(fault))

    # --- while it is active --------------------------------------------------------------------------------

    def elected(self, now: Now, image: ClusterImage) -> None:
        """Decide about this image from now on."""
        self.decisions.lead(image)
        self._decide_first(now, image)
        self._watch.elected(now, image)

    def _decide_first(self, now: Now, image: ClusterImage) -> None:
        """What every cluster has, and the registration of the broker in this process, flushed together."""
        if self.decisions.image is not image or self.metadata.deciding_epoch < 0:
            return  # another node was elected meanwhile
        first: MetadataDecision[None] = self.decisions.finalize_features(FINALIZED_AT_FORMAT)
        is_new = METADATA_VERSION not in image.features
        if is_new:
            first.records += self._bootstrap
        first.records += self.decisions.missing_secret(has_first_users=is_new and bool(self._bootstrap))
        registration = self._registration
        if registration is not None:
            known = image.brokers.get(registration.broker)
            if known is None or known.incarnation_id != registration.incarnation_id:
                offset = self.metadata.end_offset + len(first.records)
                decision = self.decisions.register_broker(registration, offset, is_local=True)
                first = MetadataDecision(None, first.records + decision.records, decision.unclean_elections)
        try:
            self._ready_at = self._watch.propose(now, first)
            if is_new and self._bootstrap:
                self._ports.reports.report("info", "bootstrap_applied", records=len(self._bootstrap))
        except DiskFull as fault:
            self._ports.reports.report("error", "first_decisions_postponed", error=str(fault))
            Once(self._ports.deadlines, now.after_ms(RETRY_MS), lambda now: self._decide_first(now, image))

    def resigned(self, now: Now) -> None:
        self._watch.resigned(now)
        self._tell_broker(now)

    @property
    def is_ready(self) -> bool:
        """There is an active controller, here or elsewhere, and its first decisions are durable."""
        return self.metadata.is_caught_up and self.metadata.committed_offset >= self._ready_at

    def has_left(self, now: Now) -> bool:
        """Whether another voter may lead; asked again after every call."""
        return self.metadata.hand_over(now)

    def numbers(self) -> "ControllerNumbers":
        """Brokers and partitions of the cluster, for metrics."""
        from headrace.node.cluster_metrics import ControllerNumbers, cluster_numbers

        watch = self._watch
        return ControllerNumbers(
            cluster_numbers(self.metadata.image), watch.unclean_elections, watch.fencings
        )

    def disconnected(self, now: Now, broker: int) -> None:
        """A connection of that broker broke: its process may have ended."""
        self._watch.disconnected(now, broker)

    def decide(self, now: Now, body: Any) -> tuple[Any, int]:
        """Answer a request of the broker in this process; the metadata offset that makes the answer true."""
        return self._broker_request(body.KEY).decide(now, body)

    # --- its handlers --------------------------------------------------------------------------------------

    def serve(self, routes: Routes, listeners: Listener) -> None:
        """Registers the APIs that change or describe the metadata, on these listeners, and those that only
        brokers use, if this process may become the active controller.
        """
        for api_key, make in (
            (ApiKey.CREATE_TOPICS, self._create_topics),
            (ApiKey.DELETE_TOPICS, self._delete_topics),
            (ApiKey.CREATE_ACLS, self._create_acls),
            (ApiKey.DELETE_ACLS, self._delete_acls),
            (ApiKey.ALTER_CLIENT_QUOTAS, self._alter_client_quotas),
            (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, self._alter_user_scram_credentials),
            (ApiKey.ALTER_CONFIGS, self._alter_configs),
            (ApiKey.CREATE_PARTITIONS, self._create_partitions),
            (ApiKey.ELECT_LEADERS, self._elect_leaders),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, self._incremental_alter_configs),
            (ApiKey.LIST_PARTITION_REASSIGNMENTS, self._list_partition_reassignments),
            (ApiKey.DESCRIBE_QUORUM, self._describe_quorum),
            (ApiKey.UPDATE_FEATURES, self._update_features),
            (ApiKey.UNREGISTER_BROKER, self._unregister_broker),
        ):
            routes.serve(api_key, listeners, self._only_when_active(make))
        for api_key, make in (
            (ApiKey.CREATE_DELEGATION_TOKEN, self._create_delegation_token),
            (ApiKey.RENEW_DELEGATION_TOKEN, self._renew_delegation_token),
            (ApiKey.EXPIRE_DELEGATION_TOKEN, self._expire_delegation_token),
        ):
            routes.serve(api_key, listeners, self._only_after_a_login(self._only_when_active(make)))
        if CONTROLLER not in listeners:
            return
        for api_key in (
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.ALTER_PARTITION,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ):
            routes.serve(api_key, CONTROLLER, self._from_brokers(api_key))
        for api_key, make in (
            (ApiKey.FETCH, self._fetch_metadata),
            (ApiKey.VOTE, self._vote),
            (ApiKey.BEGIN_QUORUM_EPOCH, self._begin_quorum_epoch),
            (ApiKey.END_QUORUM_EPOCH, self._end_quorum_epoch),
            (ApiKey.FETCH_SNAPSHOT, self._fetch_snapshot),
            (ApiKey.DESCRIBE_CLUSTER, self._describe_controllers),
            (ApiKey.DESCRIBE_ACLS, self._describe_acls),
        ):
            routes.serve(api_key, CONTROLLER, make)
        routes.serve(ApiKey.ENVELOPE, CONTROLLER, lambda: self._envelope(routes))

    def _only_when_active(self, make: Callable[[], Handle]) -> Callable[[], Handle]:
        def made() -> Handle:
            handle = make()
            metadata, access = self.metadata, self._access

            def guarded(request: Request) -> Any:
                if not metadata.is_active:
                    from headrace.node.not_controller import not_controller

                    return self.refusal_of_own(request) or not_controller(request)
                reply = handle(request)
                if access.audit is not None:
                    access.audit.decided(metadata, request, reply)
                return reply

            return guarded

        return made

    def refusal_of_own(self, request: Request) -> Any:
        """Certificates for this broker that it cannot use; None: there are none."""
        api_key = request.route.api_key
        if api_key not in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            return None
        from headrace.node.own_certificates import refusal

        def is_allowed() -> bool:
            return self._access.allows(request, Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)

        image = self.metadata.image
        return refusal(api_key, request.body, self._node_id, image, self._settings, is_allowed)

    def _only_after_a_login(self, make: Callable[[], Handle]) -> Callable[[], Handle]:
        """And not one with a delegation token."""

        def made() -> Handle:
            from headrace.node.not_controller import refused

            handle, requests = make(), TokenRequests(self._settings.current)

            def guarded(request: Request) -> Any:
                if not requests.allows(request.connection):
                    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                    return refused(request.route.api_key, request.version, request.body, code)
                return handle(request)

            return guarded

        return made

    def _from_brokers(self, api_key: ApiKey) -> Callable[[], Handle]:
        """The handler for brokers of other processes."""

        def handle(request: Request) -> Any:
            from headrace.node.not_controller import not_controller, refused

            if not self._access.allows(request, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                return refused(api_key, request.version, request.body, code)
            if not self.metadata.is_active:
                return not_controller(request)
            request.connection.peer = request.body.broker_id
            response, offset = self.decide(request.now, request.body)
            return self.metadata.when_committed(request, offset, response)

        return lambda: handle

    def _broker_request(self, api_key: int) -> BrokerRequest:
        made = self._broker_requests.get(api_key)
        if made is None:
            made = self._broker_requests[api_key] = self._make_broker_request(api_key)
        return made

    def _make_broker_request(self, api_key: int) -> BrokerRequest:
        match api_key:
            case ApiKey.BROKER_REGISTRATION:
                from headrace.node.handlers.broker_registration import BrokerRegistration

                return BrokerRegistration(
                    self._directories, self.metadata, self.decisions, self._watch, self._ports.reports
                )
            case ApiKey.BROKER_HEARTBEAT:
                from headrace.node.handlers.broker_heartbeat import BrokerHeartbeat

                return BrokerHeartbeat(self.metadata, self.decisions, self._watch)
            case ApiKey.ALTER_PARTITION:
                from headrace.node.handlers.alter_partition import AlterPartition

                return AlterPartition(self.metadata, self.decisions, self._watch)
            case ApiKey.ALLOCATE_PRODUCER_IDS:
                from headrace.node.handlers.allocate_producer_ids import AllocateProducerIds

                return AllocateProducerIds(self.metadata, self.decisions)
            case ApiKey.ASSIGN_REPLICAS_TO_DIRS:
                from headrace.node.handlers.assign_replicas_to_dirs import AssignReplicasToDirs

                return AssignReplicasToDirs(self.metadata, self.decisions, self._watch)
            case ApiKey.CREATE_TOPICS:
                return self._topics()
            case _:
                raise AssertionError(f"no broker asks API {api_key}")

    def _envelope(self, routes: Routes) -> Handle:
        from headrace.node.handlers.envelope import Envelope

        ports = self._ports
        return Envelope(routes, self.metadata, self._access, ports.waiting, ports.deadlines).handle

    def _quorum_requests(self) -> "QuorumRequests":
        from headrace.node.handlers.quorum_request import QuorumRequests

        return QuorumRequests(self._node_id, self._directories.cluster_id, self.metadata, self._access)

    def _vote(self) -> Handle:
        from headrace.node.handlers.vote import Vote

        return Vote(self._quorum_requests()).handle

    def _begin_quorum_epoch(self) -> Handle:
        from headrace.node.handlers.begin_quorum_epoch import BeginQuorumEpoch

        return BeginQuorumEpoch(self._quorum_requests()).handle

    def _end_quorum_epoch(self) -> Handle:
        from headrace.node.handlers.end_quorum_epoch import EndQuorumEpoch

        return EndQuorumEpoch(self._quorum_requests()).handle

    def _fetch_metadata(self) -> Handle:
        from headrace.node.handlers.fetch_metadata import FetchMetadata

        bytes_max = self._settings.current.controller_quorum_fetch_max_bytes
        return FetchMetadata(self._quorum_requests(), self.metadata, bytes_max=bytes_max).handle

    def _fetch_snapshot(self) -> Handle:
        from headrace.node.handlers.fetch_snapshot import FetchSnapshot

        bytes_max = self._settings.current.controller_quorum_fetch_snapshot_max_bytes
        return FetchSnapshot(self._quorum_requests(), self.metadata, bytes_max=bytes_max).handle

    def _describe_controllers(self) -> Handle:
        from headrace.node.handlers.describe_cluster import DescribeControllers

        return DescribeControllers(self._directories, self.metadata, self._access).handle

    def _topics(self) -> "CreateTopics":
        from headrace.node.handlers.create_topics import CreateTopics

        quotas = self._ports.waiting.quotas
        return CreateTopics(
            self._node_id, self.metadata, self.decisions, self._settings, self._access, quotas
        )

    def _create_topics(self) -> Handle:
        return self._topics().handle

    def _delete_topics(self) -> Handle:
        from headrace.node.handlers.delete_topics import DeleteTopics

        quotas = self._ports.waiting.quotas
        return DeleteTopics(self.metadata, self.decisions, self._settings, self._access, quotas).handle

    def _alter_configs(self) -> Handle:
        from headrace.node.config_changes import ConfigChanges
        from headrace.node.handlers.alter_configs import AlterConfigs

        return AlterConfigs(ConfigChanges(self.metadata, self.decisions, self._access)).handle

    def _incremental_alter_configs(self) -> Handle:
        from headrace.node.config_changes import ConfigChanges
        from headrace.node.handlers.incremental_alter_configs import IncrementalAlterConfigs

        return IncrementalAlterConfigs(ConfigChanges(self.metadata, self.decisions, self._access)).handle

    def _create_partitions(self) -> Handle:
        from headrace.node.handlers.create_partitions import CreatePartitions

        return CreatePartitions(
            self.metadata, self.decisions, self._access, self._ports.waiting.quotas
        ).handle

    def _create_acls(self) -> Handle:
        from headrace.node.handlers.create_acls import CreateAcls

        return CreateAcls(self.metadata, self.decisions, self._access).handle

    def _delete_acls(self) -> Handle:
        from headrace.node.handlers.delete_acls import DeleteAcls

        return DeleteAcls(self.metadata, self.decisions, self._access).handle

    def _alter_client_quotas(self) -> Handle:
        from headrace.node.handlers.alter_client_quotas import AlterClientQuotas

        return AlterClientQuotas(self.metadata, self.decisions, self._access).handle

    def _alter_user_scram_credentials(self) -> Handle:
        from headrace.node.handlers.alter_user_scram_credentials import AlterUserScramCredentials

        return AlterUserScramCredentials(self.metadata, self.decisions, self._access).handle

    def _create_delegation_token(self) -> Handle:
        from headrace.node.handlers.create_delegation_token import CreateDelegationToken

        return CreateDelegationToken(self.metadata, self._tokens, self._access, self._rng).handle

    def _renew_delegation_token(self) -> Handle:
        from headrace.node.handlers.renew_delegation_token import RenewDelegationToken

        return RenewDelegationToken(self.metadata, self._tokens).handle

    def _expire_delegation_token(self) -> Handle:
        from headrace.node.handlers.expire_delegation_token import ExpireDelegationToken

        return ExpireDelegationToken(self.metadata, self._tokens).handle

    def _describe_acls(self) -> Handle:
        from headrace.node.handlers.describe_acls import DescribeAcls

        return DescribeAcls(self.metadata, self._access).handle

    def _elect_leaders(self) -> Handle:
        from headrace.node.handlers.elect_leaders import ElectLeaders

        return ElectLeaders(self.metadata, self.decisions, self._watch, self._access).handle

    def _list_partition_reassignments(self) -> Handle:
        from headrace.node.handlers.list_partition_reassignments import ListPartitionReassignments

        return ListPartitionReassignments(self.metadata, self._access).handle

    def _describe_quorum(self) -> Handle:
        from headrace.node.handlers.describe_quorum import DescribeQuorum

        return DescribeQuorum(self.metadata, self._access).handle

    def _update_features(self) -> Handle:
        from headrace.node.handlers.update_features import UpdateFeatures

        return UpdateFeatures(self._node_id, self.metadata, self.decisions, self._access).handle

    def _unregister_broker(self) -> Handle:
        from headrace.node.handlers.unregister_broker import UnregisterBroker

        return UnregisterBroker(self.metadata, self.decisions, self._watch, self._access).handle
